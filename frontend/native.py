# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native path of one graph: import, pass pipeline, host plan, executor, and the boxed callable around it."""

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from kiln.dialects import create_context
from kiln.frontend.fx_import import ImportedGraph, import_graph
from kiln.frontend.fx_types import ImportUnsupported
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport

__all__ = ["compile_native"]


def compile_native(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[Any]], list[Any]]:
    """Compile ``gm`` to kernels and a host plan.

    Raises:
        ImportUnsupported: the graph holds what the torch dialect cannot express.
        KilnError: a pass or a lowering failed.
    """
    with report.stage("import"):
        imported = import_graph(gm, create_context())
    report.symbols, report.opaque = list(imported.symbols), imported.opaque
    return _compile_imported(imported, options, report)


def _compile_imported(
    imported: ImportedGraph, options: Options, report: CompileReport
) -> Callable[[list[Any]], list[Any]]:
    raise ImportUnsupported("the CPU pipeline is not part of this build")
