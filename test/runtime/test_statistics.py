# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

from kiln.runtime.plan import Operand, Output, Symbol
from kiln.runtime.statistics import memory_report


def test_memory_report(chain_plan):
    plan = chain_plan("s0", 8, [Symbol("s0", "size", 0, 0)], outputs=[Output(Operand(3))])
    report = memory_report(plan, [10])
    assert [s.touched for s in report.steps] == [3 * 320, 3 * 320]
    assert [s.live for s in report.steps] == [320, 320]
    assert (report.workspace, report.peak, report.intermediates, report.tensors) == (320, 320, 320, 320)
    assert memory_report(plan, [0]).workspace == 0
