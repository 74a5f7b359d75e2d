# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ruff: noqa: E501 - a string attribute is one line

"""Calls in place of kernels without code."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.interpret.interpreter import unknown_op
from kiln.dialects.kiln import KernelOp, LaunchOp, PackOp, aten
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op, ops_inside
from kiln.errors import CompileError, UnsupportedError, location_text
from kiln.lowering.host.kernels import kernels_of
from kiln.lowering.host.layout import contiguous_strides, linear_strides
from kiln.lowering.host.references import reference_text
from kiln.lowering.tile.bounds import CHECKED, unclamped
from kiln.passes.core import Pass, register_pass
from kiln.runtime.evaluate import EVALUATE

__all__ = ["CallUnsupportedKernels", "Called"]

_KEPT = ("kind", "name", "shapes")
"""Attributes of a fusion that say what it computes, in place of how a kernel does."""


@dataclass(frozen=True)
class Called:
    """A kernel that became calls. location: that of its fusion. is_defect: the reason is a bug, and no known limit."""

    name: str
    location: str
    op: str
    reason: str
    is_defect: bool

    def __str__(self) -> str:
        return str(UnsupportedError(self.op, self.location, self.reason))


@register_pass
@dataclass
class CallUnsupportedKernels(Pass):
    """Replace the launches of kernels that have no code (`unsupported`) by calls that compute the same.

    The call `kiln.evaluate` has the kernel's fusion as text and computes it op by op with ATen's ops, on any device
    (dialects/interpret). Its results are memory of their own, with the strides that the kernel's have, so `in_place`
    and `writes` are dropped: the host copies what is to be in an argument's memory.

    Before::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%x: tensor<4xf32>):
            %0 = "kiln.fusion"(%x) ({
            ^bb0(%a: tensor<4xf32>):
              "kiln.yield"(%a) : (tensor<4xf32>) -> ()
            }) {kind = "pointwise", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], name = "copy"}
              : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
          }) {sym_name = "copy_0", unsupported = "no such copies", unsupported_op = "kiln.fusion"} : () -> ()
          func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = "kiln.launch"(%x) {kernel = "copy_0", layouts = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }

    After::

        #map = affine_map<() -> (4)>
        #map1 = affine_map<() -> (1)>
        module attributes {kiln.outlined} {
          func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
            %0 = "kiln.aten"(%arg0)
                {args = "[[{\\"operand\\": 0}], [], \\"module {\\\\n  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> attributes {kiln.symbols = []} {\\\\n    %0 = \\\\\\"kiln.fusion\\\\\\"(%arg0) ({\\\\n    ^bb0(%arg1: tensor<4xf32>):\\\\n      \\\\\\"kiln.yield\\\\\\"(%arg1) : (tensor<4xf32>) -> ()\\\\n    }) {kind = \\\\\\"pointwise\\\\\\", name = \\\\\\"copy\\\\\\"} : (tensor<4xf32>) -> tensor<4xf32>\\\\n    return %0 : tensor<4xf32>\\\\n  }\\\\n}\\\\n\\", [{\\"expr\\": \\"1\\"}], {\\"device\\": \\"cpu\\"}]", elsewhere, kwargs = "{}", name = "copy", op = "kiln.evaluate.default", pure = true, reason = "no kernel at -:13:10: no such copies", shapes = [#map], strides = [#map1]} : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }
    """

    name = "call-unsupported-kernels"

    device: str = "cpu"
    """Where the graph runs ("cuda:0")."""
    strict: bool = False
    """Fail where the reason is a defect of the compiler, and not a known limit."""

    def __post_init__(self) -> None:
        #: What became calls, for the report.
        self.called: list[Called] = []

    @override
    def run(self, module: ir.Module) -> None:
        missing = {
            kernel.symbol: kernel for kernel in kernels_of(module) if "unsupported" in kernel.operation.attributes
        }
        if not missing:
            return
        for kernel in missing.values():
            self._look_at(kernel)
        for function in [op for op in module.body if op.operation.name == "func.func"]:
            for op in list(function.operation.regions[0].blocks[0]):
                if isinstance(op, LaunchOp):
                    kernel = missing.get(ir.StringAttr(op.operation.attributes["kernel"]).value)
                    if kernel is not None:
                        self._replace(op.operation, kernel)
        for kernel in missing.values():
            kernel.operation.erase()

    def _look_at(self, kernel: KernelOp) -> None:
        """Raises where no call can stand for a kernel, or is not wanted."""
        attributes = kernel.operation.attributes
        reason, op = (ir.StringAttr(attributes[key]).value for key in ("unsupported", "unsupported_op"))
        location = str(kernel.fusion.operation.location)
        called = Called(kernel.symbol, location, op, reason, "defect" in attributes)
        if self.strict and called.is_defect:
            raise CompileError(str(called), pass_name=self.name)
        unknown = unknown_op(kernel.fusion.operation)
        if unknown is not None:
            raise UnsupportedError(op, location, f"{reason}; and no ATen op computes {unknown}")
        self.called.append(called)
        self.note(kernel.fusion, f"called: {reason}")
        self.count("called")

    def _replace(self, launch: ir.Operation, kernel: KernelOp) -> None:
        operands = [_unpacked(v) for v in launch.operands if isinstance(v.type, ir.RankedTensorType)]
        symbols = [v for v in launch.operands if isinstance(v.type, ir.IndexType)]
        shapes = _shapes(kernel.fusion, len(symbols))
        strides = _strides(launch, len(operands), shapes)
        arguments = [
            [{"operand": i} for i in range(len(operands))],
            [{"sym": i} for i in range(len(symbols))],
            _text(kernel.fusion.operation, is_checked=self.device == "cpu"),
            [{"expr": str(e)} for map_ in strides for e in map_.results],
            {"device": self.device},
        ]
        where = location_text(launch.location)
        why = ir.StringAttr(kernel.operation.attributes["unsupported"]).value
        reason = f"no kernel{' at ' if where else ''}{where}: {why}"
        with ir.InsertionPoint(launch), launch.location:
            types = [r.type for r in launch.results]
            call = aten(EVALUATE, operands, arguments, {}, types, shapes, strides, symbols, reason=reason).operation
        call.attributes["name"] = launch.attributes["name"]
        # It reads its constants from the CPU's memory, which a recording of a GPU's calls would not do again.
        call.attributes["elsewhere"] = ir.UnitAttr.get()
        for old, new in zip(launch.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        launch.erase()


def _unpacked(value: ir.Value) -> ir.Value:
    """A constant as the fusion reads it, where a kernel would read it packed."""
    op = defining_op(value)
    return op.operands[0] if op is not None and isinstance(op.opview, PackOp) else value


def _shapes(fusion: ir.OpView, symbols: int) -> list[ir.AffineMap]:
    """The sizes of the results over the fusion's symbols."""
    found = SymbolicShapes(fusion)
    returned = list(fusion.regions[0].blocks[0].operations)[-1].operands
    return [ir.AffineMap.get(0, symbols, list(found.dims(value))) for value in returned]


def _strides(launch: ir.Operation, operands: int, shapes: Sequence[ir.AffineMap]) -> list[ir.AffineMap]:
    """The strides of the results in elements, over the same symbols."""
    layouts = list(ir.ArrayAttr(launch.attributes["layouts"]))[operands:] if "layouts" in launch.attributes else []
    found: list[ir.AffineMap] = []
    for i, shape in enumerate(shapes):
        sizes = tuple(shape.results)
        linear = linear_strides(ir.AffineMapAttr(layouts[i]).value.results[0], sizes) if layouts else None
        strides = contiguous_strides(sizes) if linear is None else linear[1]
        found.append(ir.AffineMap.get(0, shape.n_symbols, list(strides)))
    return found


def _text(fusion: ir.Operation, *, is_checked: bool) -> str:
    """What a fusion computes, as a module of its own. is_checked: an index out of range is an error, as in kernels of
    the CPU; those of a GPU clamp it.
    """
    copy = fusion.clone().operation
    for key in list(copy.attributes):
        if key not in _KEPT:
            del copy.attributes[key]
    for op in list(ops_inside(copy)):
        index = unclamped(op) if is_checked and CHECKED in op.attributes else None
        if index is not None:
            op.results[0].replace_all_uses_with(index)
    try:
        return reference_text(copy, debug_info=False) or ""
    finally:
        copy.erase()
