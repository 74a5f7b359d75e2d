# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions as kernels of a module: equal fusions are one `kiln.kernel`, and each is launched in its place."""

import hashlib
import re

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import FusionOp, KernelOp, LaunchOp, yield_
from kiln.lowering.gpu.compile_cost import compile_cost
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.host.layout import HostGraph, constant, mul

__all__ = ["fusion_key", "is_outlined", "kernel_name", "kernels_of", "outline_kernels"]

_OF_LAUNCHES = ("name", "offsets", "reference", "writes")
"""Attributes of a fusion that do not change its kernel."""
_READ_BY_HOST = (*_OF_LAUNCHES, "layouts", "in_place")
_OUTLINED = "kiln.outlined"
_ALIGNMENT = 16
"""Bytes that a thread of a GPU moves at once, at most."""


def fusion_key(fusion: ir.Operation) -> str:
    """Text that is equal for fusions with equal kernels: without names, locations, pointer offsets, and the numbers of
    the function's arguments that results are written to.
    """
    saved = {key: fusion.attributes[key] for key in _OF_LAUNCHES if key in fusion.attributes}
    for key in saved:
        del fusion.attributes[key]
    try:
        return fusion.get_asm(
            print_generic_op_form=True, use_local_scope=True, enable_debug_info=False, assume_verified=True
        )
    finally:
        for key, value in saved.items():
            fusion.attributes[key] = value


def kernels_of(module: ir.Module) -> list[KernelOp]:
    """The kernels of a module, in order."""
    return [op for op in module.body if isinstance(op, KernelOp)]


def is_outlined(module: ir.Module) -> bool:
    """Whether the module is a graph whose kernels, if there are any, are symbols."""
    return _OUTLINED in module.operation.attributes


def outline_kernels(module: ir.Module, *, is_gpu: bool = False) -> list[tuple[ir.Operation, str]]:
    """Makes kernels of the fusions of all functions, and launches in their places.

    A kernel's name is the first fusion's with a hash of what it computes, so equal kernels of two graphs have one name.
    Kernels stand in front of the functions: on a GPU those first that take longest to compile, so that none of them
    begins late where several are compiled at once; otherwise in the order of their first launches.

    is_gpu: note on each fusion which tensors may start elsewhere than at multiples of 16 bytes (`unaligned`).

    Returns the launches of kernels that there were already, with the kernel's name.
    """
    found: dict[str, KernelOp] = {}
    shared: list[tuple[ir.Operation, str]] = []
    with module.context, ir.Location.unknown():
        for function in [op for op in module.body if op.operation.name == "func.func"]:
            fusions = [op for op in function.operation.regions[0].blocks[0] if isinstance(op, FusionOp)]
            if is_gpu and fusions:
                graph = HostGraph(function)
                for fusion in fusions:
                    _mark_alignment(graph, fusion.operation)
            for fusion in fusions:
                key = fusion_key(fusion.operation)
                is_new = key not in found
                if is_new:
                    found[key] = _kernel(fusion.operation, key, ir.InsertionPoint(function))
                launch = _launch(fusion.operation, found[key].symbol)
                if is_new:
                    _move(fusion.operation, found[key])
                else:
                    fusion.operation.erase()
                    shared.append((launch, found[key].symbol))
        module.operation.attributes[_OUTLINED] = ir.UnitAttr.get()
        if is_gpu and found:
            _order_by_cost(list(found.values()))
    return shared


def kernel_name(fusion: ir.Operation, key: str) -> str:
    """The name of a fusion's kernel, which no other kernel has. key: its `fusion_key`."""
    stem = re.sub(r"\W", "_", ir.StringAttr(fusion.attributes["name"]).value)[:48]
    return f"{stem}_{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _kernel(fusion: ir.Operation, key: str, place: ir.InsertionPoint) -> KernelOp:
    with place, fusion.location:
        kernel = KernelOp.create([], [], {"sym_name": ir.StringAttr.get(kernel_name(fusion, key))})
    return kernel


def _launch(fusion: ir.Operation, kernel: str) -> ir.Operation:
    attributes = {key: fusion.attributes[key] for key in _READ_BY_HOST if key in fusion.attributes}
    attributes["kernel"] = ir.StringAttr.get(kernel)
    with ir.InsertionPoint(fusion), fusion.location:
        launch = LaunchOp.create(list(fusion.operands), [r.type for r in fusion.results], attributes)
    for old, new in zip(fusion.results, launch.results, strict=True):
        old.replace_all_uses_with(new)
    return launch.operation


def _move(fusion: ir.Operation, kernel: KernelOp) -> None:
    """Makes the fusion what the kernel computes."""
    operands = list(fusion.operands)
    block = kernel.regions[0].blocks.append(
        *[v.type for v in operands], arg_locs=[ir.Location.unknown()] * len(operands)
    )
    fusion.detach_from_parent()
    block.append(fusion)
    for i, argument in enumerate(block.arguments):
        fusion.operands[i] = argument
    for key in ("offsets", "reference", "writes"):
        if key in fusion.attributes:
            del fusion.attributes[key]
    with ir.InsertionPoint(block):
        yield_(list(fusion.results))


def _order_by_cost(kernels: list[KernelOp]) -> None:
    ordered = sorted(kernels, key=lambda kernel: -compile_cost(kernel.fusion.operation))
    for before, kernel in zip(ordered, ordered[1:], strict=False):
        kernel.operation.move_after(before.operation)


def _mark_alignment(graph: HostGraph, op: ir.Operation) -> None:
    """Says which operands and results may start elsewhere than at multiples of 16 bytes."""
    tensors = [v for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)]
    offsets = [mul(graph.strided_layout(v).offset, constant(item_bytes(v.type))) for v in tensors]
    found = [i for i, offset in enumerate(offsets) if not affine.is_multiple(offset, _ALIGNMENT)]
    if found:
        op.attributes["unaligned"] = ir.DenseI64ArrayAttr.get(found)
