# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import os

import pytest
import torch

from kiln.runtime.executor import Executor
from kiln.runtime.launches import ReadyLaunch, Touched, launch_groups
from kiln.runtime.plan import Operand, Output, Symbol


def launch(entry, threads, reads=(), writes=(), scratch=0):
    """A launch that touches memory by number."""
    touched = [Touched(m, 0, 8, False) for m in reads] + [Touched(m, 0, 8, True) for m in writes]
    return ReadyLaunch(entry, threads, [0, 0], touched, scratch)


def parsed(words):
    """[(threads, [(entry, mode, threads word)])] of a table's groups."""
    groups, at = [], 0
    while at < len(words):
        threads, length = words[at : at + 2]
        launches, i = [], at + 2
        while words[i]:
            entry, mode, n = words[i : i + 3]
            i += 3 + 2 * n
            launches.append((entry, mode, words[i - 1]))
        assert i + 1 == at + length
        groups.append((threads, launches))
        at += length
    return groups


def test_one_region_from_the_first_shared_launch_to_the_last():
    chain = [launch(1, 1, [0], [1]), launch(2, 4, [1], [2]), launch(3, 1, [2], [3]), launch(4, 2, [3], [4]),
             launch(5, 1, [4], [5])]  # fmt: skip
    assert parsed(launch_groups(chain)) == [
        (1, [(1, 0, 0)]),
        (4, [(2, 0, 4), (3, 3, 0), (4, 1, 2)]),
        (1, [(5, 0, 0)]),
    ]
    assert [len(launches) for _, launches in parsed(launch_groups(chain, regions=False))] == [1] * 5


def test_independent_launches_do_not_wait():
    both = [launch(1, 2, [0], [1]), launch(2, 2, [0], [2]), launch(3, 2, [1, 2], [3])]
    assert [mode for _, mode, _ in parsed(launch_groups(both))[0][1]] == [0, 0, 1]


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (launch(1, 2, [0], [1]), launch(2, 2, [1], [2]), True),  # reads what was written
        (launch(1, 2, [0], [1]), launch(2, 2, [2], [0]), True),  # writes what was read
        (launch(1, 2, [0], [1]), launch(2, 2, [2], [1]), True),  # writes what was written
        (launch(1, 2, [0], [1]), launch(2, 2, [0], [2]), False),
        (launch(1, 2, [0], [1], 64), launch(2, 2, [0], [2], 64), False),
        (launch(1, 2, [0], [1], 64), launch(2, 2, [0], [2], 128), True),  # each other's scratch memory
    ],
)
def test_what_waits(first, second, waits):
    assert second.waits_for(first) is waits


def test_workspace_ranges():
    a, b, c = Touched(-1, 0, 64, True), Touched(-1, 64, 128, False), Touched(-1, 60, 100, False)
    assert not a.conflicts(b) and a.conflicts(c) and not b.conflicts(c)


def test_region_computes_the_same(chain_plan):
    symbols = [Symbol("s0", "size", 0, 0), Symbol("s1", "size", 0, 1)]
    executor = Executor(chain_plan("s0", "s1", symbols, outputs=[Output(Operand(3))]))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for rows in (1, 400, 3):
            x = [torch.randn(rows, 500) for _ in range(2)]
            for _ in range(5):
                assert torch.equal(executor(x)[0], x[0] + x[1] + x[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_process(chain_plan):
    """The child has no pool: it computes alone instead of waiting for threads that are not there."""
    executor = Executor(chain_plan(400, 500, outputs=[Output(Operand(3))]))
    x = [torch.randn(400, 500) for _ in range(2)]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = executor(x)[0].tolist()
        child = os.fork()
        if child == 0:
            os._exit(0 if executor(x)[0].tolist() == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)
