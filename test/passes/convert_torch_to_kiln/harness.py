# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tracing a function into ATen, importing it, converting it: what the numeric tests of the rules share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule
from torch_mlir import ir

from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.passes.convert_torch_to_kiln import ConvertTorchToKiln, Decision

__all__ = ["Case", "convert", "main_arguments"]


@dataclass
class Case:
    """One function of tensors. ``ways`` lists which ways its ops may go; ``tol`` is relative to the largest value.

    ``dynamic`` is false where PyTorch itself does not trace the op with symbolic sizes.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    tol: float = 2e-6
    ways: tuple[str, ...] = ("kiln",)
    dynamic: bool = True


def convert(
    fn: Callable[..., Any], inputs: Sequence[torch.Tensor], context: ir.Context, dynamic: bool = False
) -> tuple[ImportedGraph, list[Decision]]:
    """Trace ``fn`` with AOTAutograd (composite ops taken apart, nothing else), import the graph, convert it in place."""
    graphs: list[GraphModule] = []

    def capture(graph: GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    def call(*args: torch.Tensor) -> Any:
        return fn(*args)

    with torch.no_grad():
        aot_function(call, fw_compiler=capture, inference_compiler=capture, dynamic=dynamic)(*inputs)
    imported = import_graph(graphs[0], context)
    conversion = ConvertTorchToKiln()
    with context, ir.Location.unknown():
        conversion.run(imported.module)
        imported.module.operation.verify()
    return imported, conversion.decisions


def main_arguments(imported: ImportedGraph, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """The arguments of ``@main`` for these graph inputs: tensors, and ints for the symbols."""
    values: list[Any] = []
    for spec in imported.inputs:
        if spec.kind == "tensor":
            values.append(inputs[spec.index])
        elif spec.kind == "size":
            values.append(inputs[spec.index].shape[spec.dim])
        elif spec.kind == "constant":
            values.append(imported.constants[spec.name])
        elif spec.kind == "derived" and spec.expr is not None:
            known = {s.name: v for s, v in zip(imported.inputs, values, strict=False) if isinstance(v, int)}
            values.append(int(spec.expr.subs({symbol: known[symbol.name] for symbol in spec.expr.free_symbols})))
        else:
            raise NotImplementedError(f"argument {spec.name} of kind {spec.kind}")
    return values
