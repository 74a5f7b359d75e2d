# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random programs compiled by Kiln against eager: dtypes and strides exactly, values and gradients against float64.

`pytest test/property` runs a fixed sample; `pytest test/property/test_random_graphs.py --slow` runs two thousand
programs that differ each time, goes on behind failures, and prints at the end how many of each kind there were, with
the seed that repeats the run (`--hypothesis-seed=N`; the same `--jobs=N` as well, which is the number of processes).
"""

import random

import pytest
from campaign import campaign
from compiling import DYNAMIC, SETTINGS, Setting, run
from families import programs
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from programs import Program

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": False}
GRAPHS = 2000


@settings(max_examples=60, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs(), st.sampled_from(SETTINGS))
def test_sample(program: Program, setting: Setting) -> None:
    assume(run(program, setting))


@settings(max_examples=20, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs(6))
def test_dynamic(program: Program) -> None:
    assume(run(program, DYNAMIC))


@pytest.mark.slow
def test_many(request: pytest.FixtureRequest, summary: list[str]) -> None:
    chosen = request.config.getoption("hypothesis_seed", None)
    number = random.SystemRandom().randrange(1 << 32) if chosen is None else int(chosen)
    tally, failures = campaign(number, GRAPHS, request.config.getoption("--jobs", 1))
    summary.append(f"random programs: {tally}")
    assert not failures, f"{len(failures)} of {tally.total} programs:\n\n" + "\n\n".join(failures)
    assert tally.total >= GRAPHS
