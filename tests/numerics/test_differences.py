"""What the values of a TABLE can differ by."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosakit.numerics._differences import Table, steepest


@pytest.mark.parametrize(("is_wide", "entries", "codes"), [(False, 256, 1 << 7), (True, 513, 1 << 15)])
@given(data=st.data())
def test_the_steepest_step_is_that_of_the_values_in_reach(is_wide, entries, codes, data):
    seed = data.draw(st.integers(0, 1 << 30))
    first, last = sorted(data.draw(st.tuples(*[st.integers(-codes, codes - 1)] * 2)))
    table = Table(np.random.default_rng(seed).integers(-(1 << 15), 1 << 15, entries), first, last, is_wide)
    assert len(table.values) == last - first + 1
    assert table.steepest_step == steepest(table.values, 1) == max(np.abs(np.diff(table.values)), default=0)
