# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Intermediates in the memory of outputs: side by side, in bounds, and never where something is alive."""

import random

import pytest

from kiln.lowering.host.hosting import host_in_tensors
from kiln.runtime.plan import Buffer, Launch, Operand, Output, Plan, Pointer
from kiln.runtime.statistics import memory_report


def chain(sizes: list[int], returned: int, reach: int = 1) -> Plan:
    """Launch k reads the `reach` buffers before it and writes buffer k; the last one, of `returned` bytes, is returned.

    sizes: bytes of the workspace buffers.
    """
    plan = Plan("main", 0)
    last = len(sizes)
    for k, size in enumerate([*sizes, returned]):
        kind = "tensor" if k == last else "workspace"
        end = max(k, min(last, k + reach)) if k < last else k
        plan.buffers.append(Buffer(kind, "uint8", (size,), (1,), size, first=k, last=end))
        read = tuple(Pointer(i, 0, plan.buffers[i].bytes) for i in range(max(0, k - reach), k))
        plan.steps.append(Launch(0, (*read, Pointer(k, 0, size)), (), results=1, name=f"f{k}"))
    plan.outputs = [Output(Operand(last))]
    return plan


def run(plan: Plan) -> list[list[str]]:
    """What each launch reads: names of the launches that wrote there; memory that is overwritten is forgotten."""
    held: dict[tuple[int, int], tuple[int, str]] = {}
    seen = []
    for step in plan.steps:
        assert isinstance(step, Launch)
        places = []
        for p in step.pointers:
            size = int(plan.buffers[p.buffer].bytes)
            start, end = p.within or (0, size)
            assert 0 <= start == p.bytes and start % 64 == 0 and end - start == p.size and end <= size
            places.append((p.buffer, start, end))
        seen.append([held[b, start][1] for b, start, _ in places[:-1]])
        buffer, start, end = places[-1]
        held = {k: v for k, v in held.items() if k[0] != buffer or k[1] >= end or v[0] <= start}
        held[buffer, start] = end, step.name
    return seen


def test_side_by_side():
    plan = chain([128, 100, 64, 32], 256)
    before, expected = memory_report(plan).peak, run(plan)
    host_in_tensors(plan)
    assert run(plan) == expected
    # Only the last one's operand is outside.
    assert [b.kind for b in plan.buffers] == ["workspace", "tensor"]
    assert memory_report(plan).peak == 256 + 64 < before


def test_no_room():
    plan = chain([300, 8], 256)
    host_in_tensors(plan)
    assert [b.bytes for b in plan.buffers if b.kind == "workspace"] == [300, 8]


def test_in_bounds():
    """The last bytes of a tensor whose size is no multiple of the alignment are not there."""
    plan = chain([64, 1], 60)
    host_in_tensors(plan)
    assert len(plan.buffers) == 3


def test_symbols():
    plan = chain([8, 8], 8)
    for i, b in enumerate(plan.buffers):
        plan.buffers[i] = Buffer(b.kind, b.dtype, ("s0",), (1,), "s0", first=b.first, last=b.last)
    host_in_tensors(plan)
    assert [b.kind for b in plan.buffers] == ["workspace", "tensor"]


@pytest.mark.parametrize("seed", range(40))
def test_random(seed):
    choose = random.Random(seed)
    sizes = [choose.randint(1, 300) for _ in range(choose.randint(2, 12))]
    reach = choose.randint(1, 3)
    plan = chain(sizes, choose.randint(1, 1200), reach)
    before, expected = memory_report(plan).peak, run(plan)
    host_in_tensors(plan)
    assert run(plan) == expected
    assert memory_report(plan).peak <= before
