"""The collector rests while many objects are made, and nothing that was dropped stays for ever."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from tosakit import _gc
from tosakit._gc import collector_paused


@pytest.fixture(autouse=True)
def _enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


class Node:
    """Half of a cycle."""

    def __init__(self) -> None:
        self.other = self


def test_nothing_is_collected_inside_and_what_was_made_is_old_afterwards() -> None:
    gc.collect()
    with collector_paused():
        assert not gc.isenabled()
        made = [Node() for _ in range(5_000)]
    assert gc.isenabled()
    assert not any(isinstance(thing, Node) for thing in gc.get_objects(generation=0))
    assert len([thing for thing in gc.get_objects(generation=2) if isinstance(thing, Node)]) == len(made)


def test_an_application_that_paused_it_finds_it_paused() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_what_an_application_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector_paused():
            pass
        assert gc.get_freeze_count() >= frozen > 0
    finally:
        gc.unfreeze()


def test_dropped_cycles_are_found_once_enough_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gc, "LIMIT", 1_000)
    monkeypatch.setattr(_gc._Debt, "objects", 0)
    watched = []
    for _ in range(4):
        with collector_paused():
            made = [Node() for _ in range(600)]
        watched.append(weakref.ref(made[0]))
        del made
    assert [alive() is not None for alive in watched] == [False, False, True, True]


def test_a_full_collection_by_someone_else_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gc, "LIMIT", 1_000)
    with collector_paused():
        made = [Node() for _ in range(2_000)]
    gc.collect()
    before = gc.get_stats()[2]["collections"]
    with collector_paused():
        del made
    assert gc.get_stats()[2]["collections"] == before


def test_an_error_inside_leaves_it_enabled() -> None:
    with pytest.raises(ValueError, match="broken"), collector_paused():
        raise ValueError("broken")
    assert gc.isenabled()
