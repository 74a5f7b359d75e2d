# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One AOT graph to a boxed callable: import, passes, host plan, executor; or ATen with the reason."""

import logging
import warnings
from collections.abc import Callable
from typing import Any

from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule

from kiln.errors import BackendOptionError, CompileError, KilnError, NumericsError, ProofError
from kiln.frontend.cache.compiled_graphs import compile_cached
from kiln.frontend.calls.aten_executor import AtenExecutor
from kiln.frontend.freezing.integer_products import NOTES, use_integer_products
from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.frontend.import_.limits import LIMITS, guard_sizes, needs_guards
from kiln.frontend.import_.random_state import complete_random_values
from kiln.frontend.import_.signs import NEGATIVE, guard_signs
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport, Freezing
from kiln.frontend.report.announce import announce
from kiln.frontend.saved_channels_last import write_channels_last

__all__ = ["compile_graph", "forget_warnings"]

log = logging.getLogger("kiln")
_warned: set[str] = set()
_WANTED = (NumericsError, ProofError, BackendOptionError)
"""What a graph that would run with ATen must not hide: what the user asked to look for, or got wrong."""


def compile_graph(
    gm: GraphModule,
    options: Options,
    kind: str,
    freezing: Freezing | None = None,
) -> Callable[[list[Any]], list[Any]]:
    """Compile one functional ATen graph.

    Args:
        gm: AOTAutograd's graph; every node carries ``meta["val"]``.
        options: settings of this compilation.
        kind: "inference", "forward" or "backward".
        freezing: what was frozen, for the report.

    Returns:
        A callable with ``_boxed_call = True`` that takes one list (which it empties) and returns a list; the tensors
        in it have the strides of ``meta["val"]``.

    Raises:
        CompileError: the graph does not compile and ``options.fallback`` is off.
    """
    nodes = sum(node.op == "call_function" for node in gm.graph.nodes)
    report = CompileReport(kind, nodes, freezing=freezing)
    try:
        complete_random_values(gm)
        if kind == "inference":
            use_integer_products(gm)
        gm.meta[NEGATIVE] = guard_signs(gm)
        gm.meta[LIMITS] = guard_sizes(gm) if needs_guards(gm, options.target) else []
        run = _compile_native(gm, options, report)
        report.notes += gm.meta.get(NOTES, [])
    except ImportUnsupported as unsupported:
        run = _fall_back(gm, options, report, str(unsupported), None)
    except (KilnError, Exception) as error:  # noqa: BLE001 - a defect of any pass must not break the user's model
        run = _fall_back(gm, options, report, f"{type(error).__name__}: {error}", error)
    announce(report, options)
    return run


def _compile_native(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[Any]], list[Any]]:
    # AOTAutograd calls compilers under its FakeTensorMode; constants of the graph are real tensors.
    with unset_fake_temporarily():
        return compile_cached(gm, options, report)


def _fall_back(
    gm: GraphModule, options: Options, report: CompileReport, reason: str, error: BaseException | None
) -> AtenExecutor:
    """The whole graph with ATen, warning once per reason; or an error where the user asked for one (as by `verify`, or
    by `check`), or where an option is wrong for the target.
    """
    if isinstance(error, BackendOptionError):
        raise error
    if isinstance(error, CompileError):
        report.reproducer = error.command or error.reproducer or ""
    is_found = options.verify and isinstance(error, CompileError)
    if not options.fallback or is_found or (error is not None and isinstance(error.__cause__, _WANTED)):
        if isinstance(error, CompileError):
            raise error
        raise CompileError(f"the {report.graph} graph does not compile: {reason}") from error
    report.executor, report.fallback_reason = "aten", reason
    report.decisions.clear()
    report.kernels.clear()
    log.info("graph (%s, %d nodes) runs with ATen: %s", report.graph, report.nodes, reason)
    if error is not None and reason not in _warned:
        _warned.add(reason)
        warnings.warn(f"kiln: a graph did not compile and runs with ATen: {reason}", RuntimeWarning, stacklevel=2)
    write_channels_last(gm)
    return AtenExecutor(gm)


def forget_warnings() -> None:
    """Warn again about reasons already warned about."""
    _warned.clear()
