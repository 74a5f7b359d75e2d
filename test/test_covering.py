# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which cases of a grid of parameters a quick run takes."""

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
import pytest

@pytest.mark.parametrize("a", range(6))
@pytest.mark.parametrize("b, c", [(1, 2), (1, 3), (2, 3), (4, 4)])
def test_grid(a, b, c):
    print("met", ("a", a), (b, c))

@pytest.mark.parametrize("a", range(30))
def test_list(a):
    pass

@pytest.mark.parametrize("a", range(2))
@pytest.mark.parametrize("b", range(4))
def test_small(a, b):
    pass
"""
_HOOK = """
from covering import left_out

def pytest_collection_modifyitems(items):
    others = left_out(items)
    items[:] = [item for item in items if item not in others]
"""


def test_each_value_of_a_grid_is_met_twice(pytester: pytest.Pytester):
    pytester.makeconftest(_HOOK)
    pytester.makepyfile(_TESTS)
    lines = pytester.runpytest_inprocess("-q", "-s", "-p", "no:xdist").outlines
    met = [line for line in lines if line.startswith((".met", "met"))]
    for value in [*(f"('a', {a})" for a in range(6)), "(1, 2)", "(1, 3)", "(2, 3)", "(4, 4)"]:
        assert sum(value in line for line in met) >= 2
    assert 12 <= len(met) < 20
    assert any(f"{30 + 8 + len(met)} passed" in line for line in lines)
