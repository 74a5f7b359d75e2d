# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Who wants traces: blocks that gather them, and the option ``trace_html``. Costs nothing where nobody does."""

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from kiln.frontend.report.compile_report import CompileReport

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from kiln.frontend.options import Options
    from kiln.frontend.report.trace.records import GraphTrace
    from kiln.passes.instruments import Instrument
    from kiln.runtime.plan import Plan

__all__ = ["gathering", "is_gathering", "recorders", "tell"]

_gathering: "list[list[GraphTrace]]" = []
"""Of the process: autograd may compile a backward graph in a thread of its own."""
_written: "dict[str, list[GraphTrace]]" = {}
"""The graphs in each file that this process has written."""


def is_gathering() -> bool:
    """Whether a block wants the traces of graphs that are compiled now."""
    return bool(_gathering)


@contextlib.contextmanager
def gathering() -> "Generator[list[GraphTrace], None, None]":
    """Gather the traces of every graph that is compiled inside the block."""
    traces: list[GraphTrace] = []
    _gathering.append(traces)
    try:
        yield traces
    finally:
        # By identity: blocks inside of each other may have gathered the same.
        _gathering[:] = [other for other in _gathering if other is not traces]


def recorders(options: "Options", report: CompileReport, target: str) -> "list[Instrument]":
    """The instrument that records a graph, if somebody wants its trace."""
    if not (options.trace_html or is_gathering()):
        return []
    from kiln.frontend.report.trace.recorder import Recorder
    from kiln.frontend.report.trace.records import GraphTrace

    return [Recorder(GraphTrace(report, target, tf32=options.tf32))]


def tell(recorded: "list[Instrument]", gm: "GraphModule", plan: "Plan", options: "Options") -> None:
    """Hand a graph's trace to whoever wants it, once its report is complete.

    Raises KilnError for a file that cannot be written.
    """
    if not recorded:
        return
    from kiln.frontend.report.trace.model_source import nodes_of
    from kiln.frontend.report.trace.recorder import Recorder

    for recorder in recorded:
        assert isinstance(recorder, Recorder)
        trace = recorder.trace
        trace.nodes, trace.plan = nodes_of(gm), plan
        for gathered in _gathering:
            gathered.append(trace)
        if options.trace_html:
            from kiln.frontend.report.trace.page import write_page

            traces = _written.setdefault(options.trace_html, [])
            traces.append(trace)
            write_page(options.trace_html, traces)
