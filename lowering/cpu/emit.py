# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`kiln.fusion` to a vector-stage kernel: `.fused.mlir` / `.sched.mlir` in, one `func.func` per kernel out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.schedule_attr import from_attribute
from kiln.lowering.cpu.tile.attention import emit_attention_fusion, plan_attention
from kiln.lowering.cpu.tile.body import FusionBody
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.memory import Scratch
from kiln.lowering.cpu.tile.nest import NestEmitter, group_roots, plan_nest, work
from kiln.lowering.cpu.tile.product import emit_matmul_fusion, plan_matmul
from kiln.lowering.cpu.tile.scan import emit_scan_fusion


def emit_kernel(fusion: ir.OpView, name: str) -> ir.Module:
    """The kernel of a fusion as a module with one function `name` at the vector stage.

    Arguments: one 1-D memref per tensor operand, then per result (booleans as i8); the fusion's symbols as index;
    this thread's scratch; thread id; thread count. Attributes `kiln.scratch_bytes` and `kiln.work` are affine maps
    over the symbols: bytes of scratch per thread, estimated elementary operations.

    Raises UnsupportedError, naming the op, for what the code generator cannot express.
    """
    body = FusionBody(fusion)
    layouts = fusion_layouts(fusion, body)
    with fusion.operation.location:
        module = ir.Module.create()
        kernel = Kernel(module, name, body, layouts)
        with ir.InsertionPoint(kernel.function.entry_block):
            kernel.emit()
            func.ReturnOp([])
        kernel.finish()
    return module


def fusion_layouts(fusion: ir.OpView, body: FusionBody) -> list[ir.AffineMap]:
    """Element offsets of the operands and results: the `layouts` attribute, or row-major where it is absent."""
    attributes = fusion.operation.attributes
    if "layouts" in attributes:
        return [ir.AffineMapAttr(a).value for a in ir.ArrayAttr(attributes["layouts"])]
    return [contiguous(body.dims(v), len(body.symbols)) for v in [*body.tensors, *body.roots]]


def contiguous(sizes: Sequence[ir.AffineExpr], symbols: int) -> ir.AffineMap:
    """Row-major layout of a tensor of these sizes."""
    offset: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for i, size in enumerate(sizes):
        offset = offset * size + ir.AffineDimExpr.get(i)
    return ir.AffineMap.get(len(sizes), symbols, [offset])


class Kernel:
    """One kernel function under construction."""

    def __init__(self, module: ir.Module, name: str, body: FusionBody, layouts: list[ir.AffineMap]):
        self.body, self.layouts = body, layouts
        index = ir.IndexType.get()
        tensors = [*body.tensors, *body.roots]
        types: list[ir.Type] = [memory_type(v.type) for v in tensors]
        types += [index] * len(body.symbols)
        types += [ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8)), index, index]
        with ir.InsertionPoint(module.body):
            self.function = func.FuncOp(name, ir.FunctionType.get(types, []))
        entry = self.function.add_entry_block()
        arguments = list(entry.arguments)
        count = len(tensors)
        self.buffers = arguments[:count]
        self.symbols: list[Index] = list(arguments[count : count + len(body.symbols)])
        self.scratch = Scratch(arguments[-3])
        self.tid, self.nt = arguments[-2:]
        self.b = Builder(entry)
        self.work: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        attributes = body.fusion.operation.attributes
        self.schedule: dict[str, Any] = from_attribute(attributes["schedule"]) if "schedule" in attributes else {}

    def emit(self) -> None:
        """Write the body."""
        kind = ir.StringAttr(self.body.fusion.operation.attributes["kind"]).value
        special = KERNEL_KINDS.get(kind)
        if special is not None:
            special.emit(self)
            return
        for group in group_roots(self.body):
            e = self.evaluator()
            nest = plan_nest(e, group)
            NestEmitter(e, nest, self.tid, self.nt).emit()
            self.work = self.work + work(e, nest)

    def evaluator(self) -> Evaluator:
        """A fresh evaluator on the kernel's buffers."""
        return Evaluator(self.b, self.body, self.buffers, self.layouts, self.symbols, self.scratch)

    def finish(self) -> None:
        """Attach what the host needs to know."""
        n = len(self.body.symbols)
        for key, expr in (("kiln.scratch_bytes", self.scratch.bytes), ("kiln.work", self.work)):
            self.function.operation.attributes[key] = ir.AffineMapAttr.get(ir.AffineMap.get(0, n, [expr]))


def memory_type(type_: ir.Type) -> ir.MemRefType:
    """1-D memref of a tensor's elements."""
    element = ir.RankedTensorType(type_).element_type
    if isinstance(element, ir.IntegerType) and element.width == 1:
        element = ir.IntegerType.get_signless(8)
    return ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)


@dataclass(frozen=True)
class KernelKind:
    """A kind of fusion with its own emitter. `plan` gives its schedule from the body and the layouts."""

    emit: Callable[[Kernel], None]
    plan: Callable[[FusionBody, list[ir.AffineMap]], dict[str, Any]] | None = None


KERNEL_KINDS = {
    "matmul": KernelKind(emit_matmul_fusion, plan_matmul),
    "attention": KernelKind(emit_attention_fusion, plan_attention),
    "scan": KernelKind(emit_scan_fusion),
}
"""Fusions that are not generated from their loops alone, by `kind`."""
