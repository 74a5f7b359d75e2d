# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

from kiln.runtime.plan import Operand, Output, Symbol
from kiln.runtime.statistics import memory_report


def test_memory_report(chain_plan):
    plan = chain_plan("s0", 8, [Symbol("s0", "size", 0, 0)], outputs=[Output(Operand(3))])
    report = memory_report(plan, [10])
    assert [(s.read, s.written) for s in report.steps] == [(2 * 320, 320), (2 * 320, 320)]
    assert report.moved == 6 * 320
    assert [s.live for s in report.steps] == [320, 320]
    assert (report.workspace, report.least, report.intermediates, report.tensors) == (320, 320, 320, 320)
    assert (report.peak, report.scratch) == (640, 8)
    assert memory_report(plan, [0]).workspace == 0
