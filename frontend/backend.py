# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The backend itself: what ``torch.compile(model, backend="kiln")`` calls for each graph."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from kiln.frontend.compiler_import import no_collections, no_full_collections
from kiln.frontend.options import Options

__all__ = ["kiln"]


def kiln(
    gm: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile one Dynamo graph.

    Args:
        gm: the graph, with torch-level calls.
        example_inputs: its inputs as FakeTensors and SymInts.
        mode: one of ``kiln.frontend.options.MODES`` or None.
        options: fields of :class:`kiln.frontend.options.Options`.

    Raises:
        BackendOptionError: an unknown mode or option, or an option of the wrong type.
        CompileError: a graph that does not compile, with ``options={"fallback": False}``.
    """
    settings = Options.build(mode, options)
    with no_collections(("kiln.frontend.aot",)):
        from kiln.frontend.aot import compile_dynamo_graph  # imports MLIR: only once there is a graph

    with no_full_collections():
        return compile_dynamo_graph(gm, example_inputs, settings)


def _reset() -> None:
    """Called by ``torch.compiler.reset()``: forget which warnings were given."""
    from kiln.frontend.compile import forget_warnings

    forget_warnings()


kiln.reset = _reset  # type: ignore[attr-defined] - what Dynamo asks a backend for
