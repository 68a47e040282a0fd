"""Every mutant breaks code that is there, or the run that looks for survivors would stop."""

import pytest

from tests.fuzz.mutant import Mutant
from tests.fuzz.mutants import MUTANTS, ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}: {mutant.what}")
def test_a_mutant_is_one_change_to_one_place(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} has this {text.count(mutant.old)} times: {mutant.old!r}"
    assert mutant.new != mutant.old
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    missing = [path for path in mutant.paths if not (ROOT / path).exists()]
    assert not missing
