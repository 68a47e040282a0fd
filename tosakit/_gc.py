"""Pause Python's cycle collector where many objects are made that all stay: it would search them again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LIMIT: Final = 1_000_000
"""Objects made in paused blocks until a full collection is due: dropped programs, which are cycles, wait so long.

Of small programs these take some 130 MiB; one of 96,000 operators is half of them."""


class _Debt:
    """How many objects became old, without the collector's own count of them, since the last full collection."""

    objects = 0
    collections = 0


def _full_collections() -> int:
    return int(gc.get_stats()[-1]["collections"])


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside the block (or the decorated function); afterwards as before, whatever happens.

    What was made counts as old afterwards, so that the next collection of young objects does not search all of it.
    """
    if not gc.isenabled():
        yield
        return
    if _Debt.objects > LIMIT and _full_collections() == _Debt.collections:
        gc.collect()
    if _full_collections() != _Debt.collections:  # ours, or someone else's
        _Debt.objects, _Debt.collections = 0, _full_collections()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what an application has frozen is not for us to thaw
            _Debt.objects += gc.get_count()[0]
            gc.freeze()
            gc.unfreeze()  # all is of the oldest generation now: lists were joined, nothing was searched
        gc.enable()
