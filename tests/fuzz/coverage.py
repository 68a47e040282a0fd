"""Let coverage guide the damage: atheris (``pip install -e ".[fuzz]"``) on the loader and what follows it.

``python tests/fuzz/coverage.py CORPUS_DIRECTORY [-max_total_time=SECONDS ...]``, the options being libFuzzer's. An
empty directory gets the seeds of the campaign; what reaches new code is kept there, so the next run goes on from it.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))

with atheris.instrument_imports(include=["tosakit.io", "tosakit.ir", "tosakit.spec"]):
    from tests.fuzz.promise import check
    from tests.support.hostile import seeds


def target(data: bytes) -> None:
    """One case; most would end at the identifier otherwise."""
    check(data[:4] + b"TOSA" + data[8:])


def main() -> None:
    """Fuzz until an option ends it, or a promise is broken."""
    for argument in sys.argv[1:2]:
        folder = Path(argument)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in () if any(folder.iterdir()) else seeds():
            (folder / name).write_bytes(data)
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
