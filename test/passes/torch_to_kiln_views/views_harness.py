# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Trace a function into ATen, convert it, run the result: through loops, or call by call where it is all ATen."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.execute import run_reference
from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.passes.convert_torch_to_kiln import ConvertTorchToKiln, Decision
from kiln.runtime.aten_call import decode_call

__all__ = ["check", "convert", "run_calls", "run_loops"]


def convert(
    fn: Callable[..., Any], inputs: Sequence[torch.Tensor], context: ir.Context, dynamic: bool = False
) -> tuple[ImportedGraph, list[Decision]]:
    """The converted graph of ``fn`` and which way each op went."""
    graphs: list[GraphModule] = []

    def capture(gm: GraphModule, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

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


def arguments(imported: ImportedGraph, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """The arguments of ``@main``: tensors, and ints for the symbols."""
    values: list[Any] = []
    known: dict[str, int] = {}
    for spec in imported.inputs:
        if spec.kind == "tensor":
            values.append(inputs[spec.index])
            continue
        if spec.kind == "constant":
            values.append(imported.constants[spec.name])
            continue
        if spec.kind == "size":
            known[spec.name] = inputs[spec.index].shape[spec.dim]
        else:
            assert spec.expr is not None, spec
            known[spec.name] = int(spec.expr.subs({s: known[s.name] for s in spec.expr.free_symbols}))
        values.append(known[spec.name])
    return values


def run_loops(imported: ImportedGraph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run a function without kiln.aten through the reference executor."""
    arrays = [
        v if isinstance(v, int) else (v.float() if v.dtype == torch.bfloat16 else v).contiguous().numpy()
        for v in arguments(imported, inputs)
    ]
    return [torch.from_numpy(result.copy()) for result in run_reference(imported.module, arrays)]


def run_calls(imported: ImportedGraph, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run a function that holds only kiln.aten, by decoding each call."""
    block = imported.module.body.operations[0].operation.regions[0].blocks[0]
    values: dict[ir.Value, Any] = dict(zip(block.arguments, arguments(imported, inputs), strict=True))
    for op in [op.operation for op in block.operations]:
        if op.name == "func.return":
            return [values[operand] for operand in op.operands]
        assert kiln.name_of(op) == "kiln.aten", op
        text = {name: ir.StringAttr(op.attributes[name]).value for name in ("op", "args", "kwargs")}
        call = decode_call(text["op"], text["args"], text["kwargs"])
        tensors = [values[v] for v in op.operands if not isinstance(v.type, ir.IndexType)]
        symbols = [values[v] for v in op.operands if isinstance(v.type, ir.IndexType)]
        results = call(tensors, symbols)
        for source in op.attributes["unbacked"] if "unbacked" in op.attributes else []:
            where = list(ir.DenseI64ArrayAttr(source))
            if len(where) > 1:
                results.append(results[where[0]].shape[where[1]])
        values.update(zip(op.results, results, strict=True))
    raise AssertionError("no return")


def check(
    fn: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    context: ir.Context,
    dynamic: bool = False,
    way: str = "kiln",
    tolerance: float = 1e-6,
) -> list[Decision]:
    """Assert that the conversion of ``fn`` goes only ``way`` and gives eager's values; returns the decisions."""
    imported, decisions = convert(fn, inputs, context, dynamic)
    others = [d for d in decisions if d.way != way]
    assert not others, others
    with torch.no_grad():
        expected = fn(*inputs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    with context, ir.Location.unknown():
        results = (run_calls if way == "aten" else run_loops)(imported, inputs)
    found: list[Any] = []
    for spec in imported.outputs:
        found.append(results[spec.index] if spec.kind == "result" else inputs[spec.index])
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        if want.dtype in (torch.bfloat16, torch.float16) and got.dtype != want.dtype:
            got = got.to(want.dtype)
        if want.dtype == torch.uint8:
            got = got.view(torch.uint8)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    return decisions
