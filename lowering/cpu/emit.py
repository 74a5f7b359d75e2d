# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`kiln.fusion` to a vector-stage kernel: `.fused.mlir` / `.sched.mlir` in, one `func.func` per kernel out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.lowering.cpu.tile.attention import emit_attention_fusion, plan_attention
from kiln.lowering.cpu.tile.body import FusionBody
from kiln.lowering.cpu.tile.kernel import Kernel, fusion_layouts
from kiln.lowering.cpu.tile.nest import NestEmitter, group_roots, plan_nest, work
from kiln.lowering.cpu.tile.product import emit_matmul_fusion, plan_matmul
from kiln.lowering.cpu.tile.scan import emit_scan_fusion


def emit_kernel(fusion: ir.OpView, name: str) -> ir.Module:
    """The kernel of a fusion as a module with one function `name` at the vector stage.

    Arguments: one 1-D memref per tensor operand, then per result (booleans as i8); the fusion's symbols as index;
    this thread's scratch; thread id; thread count. Attributes `kiln.scratch_bytes` and `kiln.work` are affine maps
    over the symbols: bytes of scratch per thread, estimated elementary operations. `kiln.shared` lists the memrefs
    that may be one memory: a result that is written over an operand (`in_place` of the fusion).

    Raises UnsupportedError, naming the op, for what the code generator cannot express.
    """
    body = FusionBody(fusion)
    layouts = fusion_layouts(fusion, body)
    with fusion.operation.location:
        module = ir.Module.create()
        kernel = Kernel(module, name, body, layouts)
        with ir.InsertionPoint(kernel.function.entry_block):
            _emit(kernel)
            func.ReturnOp([])
        kernel.finish()
    return module


def _emit(kernel: Kernel) -> None:
    special = KERNEL_KINDS.get(ir.StringAttr(kernel.body.fusion.operation.attributes["kind"]).value)
    if special is not None:
        special.emit(kernel)
        return
    for group in group_roots(kernel.body):
        e = kernel.evaluator()
        nest = plan_nest(e, group)
        NestEmitter(e, nest, kernel.tid, kernel.nt).emit()
        kernel.work = kernel.work + work(e, nest)


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
