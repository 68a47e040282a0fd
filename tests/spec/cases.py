"""One minimal program for every diagnostic code: ``broken`` has exactly that fault, its legal sibling has none."""

from tests.spec import cases_of_operators, cases_of_programs
from tests.spec.nets import CASES, Case

__all__ = ["CASES", "Case", "cases_of_operators", "cases_of_programs"]
