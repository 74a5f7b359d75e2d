# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stored graphs: what is written is read, what repeats takes little, what is damaged is refused."""

import dataclasses
import random

import pytest

from kiln.errors import KilnError
from kiln.frontend.cache.stored_graph import StoredGraph
from kiln.frontend.calls.signature import InputSpec, OutputSpec, Signature
from kiln.frontend.report import CompileReport, Decision
from kiln.frontend.report import Kernel as ReportedKernel
from kiln.runtime.plan import Plan


def stored(decisions: int) -> tuple[StoredGraph, CompileReport]:
    report = CompileReport("inference", decisions)
    report.decisions = [
        Decision("torch.aten.mul.Tensor", f'loc("mul_{i}")', "kiln", "a reason that many ops share")
        for i in range(decisions)
    ]
    report.kernels = [ReportedKernel("mul", "pointwise", ("kiln.mul", "kiln.add"), 3)]
    report.workspace_bytes, report.rewrites = random.randrange(1 << 40), {"pattern": 2}
    signature = Signature([InputSpec("tensor", "x", 0)], [OutputSpec("result", 0)], [(0, 1)], [0])
    return StoredGraph.of(signature, Plan("main", 1, "cpu"), report), report


@pytest.mark.parametrize("decisions", [0, 1, 500])
def test_what_is_written_is_read(decisions):
    graph, report = stored(decisions)
    found = StoredGraph.from_bytes(graph.to_bytes())
    assert found.signature == graph.signature
    assert found.plan == graph.plan
    filled = CompileReport("inference", decisions)
    found.fill(filled)
    assert dataclasses.asdict(filled) == dataclasses.asdict(report)


def test_decisions_that_repeat_take_few_bytes():
    none, many = (len(stored(count)[0].to_bytes()) for count in (0, 1000))
    assert many - none < 20 * 1000  # 90 and more each as text


def test_damaged_data_is_refused():
    data = stored(20)[0].to_bytes()
    for length in (0, 3, 12, 40, len(data) // 2, len(data) - 1):
        with pytest.raises(KilnError):
            StoredGraph.from_bytes(data[:length])
    start = data.index(b"\x78\x01")  # the report, as zlib begins it
    broken = bytearray(data)
    broken[start + 20] ^= 0xFF
    with pytest.raises(KilnError):
        StoredGraph.from_bytes(bytes(broken))
    with pytest.raises(KilnError, match="version"):
        StoredGraph.from_bytes(bytes([4]) + data[1:])
