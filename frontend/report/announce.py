# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Telling of a graph that was compiled, or loaded: to collectors, to stderr, to TORCH_LOGS and to TORCH_TRACE."""

import logging
import sys

from torch._logging._internal import trace_log, trace_structured

from kiln.frontend.options import Options
from kiln.frontend.report.compile_report import CompileReport, publish
from kiln.frontend.report.log_topics import log_of

__all__ = ["announce", "is_traced"]


def announce(report: CompileReport, options: Options) -> None:
    """Called once for each graph, when its code is there.

    TORCH_LOGS="+kiln" logs a line, and what each pass has noted with the logger of the pass's module or of its topic:
    TORCH_LOGS="kiln_fusion" tells of fusion alone. TORCH_TRACE gets the report as tlparse's artifact.
    """
    publish(report)
    if options.trace:
        print(one_line(report), file=sys.stderr)
    log = logging.getLogger("kiln.frontend.report.announce")
    if log.isEnabledFor(logging.INFO):
        log.info("%s", one_line(report))
    logs = {name: log_of(name) for name in {note.pass_name for note in report.notes}}
    for note in report.notes if any(logs.values()) else ():
        note_log = logs[note.pass_name]
        if note_log is not None:
            note_log("%s", note)
    if is_traced():
        trace_structured(
            "artifact",
            metadata_fn=lambda: {"name": f"kiln_{report.graph}_report", "encoding": "string"},
            payload_fn=lambda: _text(report),
            expect_trace_id=False,
        )


def is_traced() -> bool:
    """Whether PyTorch writes a structured trace (TORCH_TRACE)."""
    return bool(trace_log.handlers)


def one_line(report: CompileReport) -> str:
    """What became of a graph."""
    ways = ", ".join(f"{count} {way}" for way, count in sorted(report.ways().items()))
    outcome = f"{len(report.kernels)} kernels ({ways})" if report.executor == "kiln" else report.fallback_reason
    loaded = " from the cache" if report.cache == "loaded" else ""
    return f"kiln: {report.graph} graph of {report.nodes} ops in {report.seconds:.2f} s{loaded}: {outcome}"


def _text(report: CompileReport) -> str:
    from kiln.frontend.report.explain import Explanation

    text = Explanation([report]).to_text(verbose=True)
    if report.cache == "loaded":
        text += "The graph was loaded from the cache; with KILN_CACHE=0 the trace has its stages, too.\n"
    return text
