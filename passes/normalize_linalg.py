# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Linalg and tensor ops of upstream conversions, rewritten to what Kiln's code generation takes."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.errors import UnsupportedError
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["NormalizeLinalg"]


@register_pass
@dataclass
class NormalizeLinalg(Pass):
    """Rewrite tensor reshapes, slices, pads and linalg ops into kiln.view, kiln.pad, kiln.cat and linalg.generic.

    Run it after ``linalg-generalize-named-ops``. Sizes come from the function's index arguments (``tensor.dim`` and
    arithmetic on it become affine expressions over them), so a dynamic argument needs its ``kiln.shape``. A function
    that holds something without a form in Kiln is left as it was, with a note that tells why.

    Before::

        func.func @main(%x: tensor<4x8xf32>) -> tensor<32xf32> {
          %0 = tensor.collapse_shape %x [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
          return %0 : tensor<32xf32>
        }

    After::

        #map = affine_map<(d0) -> (d0 floordiv 8, d0 mod 8)>
        #map1 = affine_map<() -> (32)>
        func.func @main(%arg0: tensor<4x8xf32>) -> tensor<32xf32> {
          %0 = "kiln.view"(%arg0) {map = #map, shape = #map1} : (tensor<4x8xf32>) -> tensor<32xf32>
          return %0 : tensor<32xf32>
        }
    """

    name = "normalize-linalg"
    strict: bool = False
    """Fail on what has no form in Kiln, instead of leaving the function alone."""

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if not len(function.regions[0].blocks) or not may_rewrite(function):
                continue
            try:
                _Function(function).rewrite()
                self.count("matched")
            except UnsupportedError as error:
                if self.strict:
                    raise
                self.count("failed")
                self.note(function, error.reason)


class _Function:
    def __init__(self, function: ir.Operation) -> None:
        from kiln.dialects.shapes import SymbolicShapes
        from kiln.passes.torch_to_kiln.emitter import Emitter
        from kiln.passes.torch_to_kiln.function_state import FunctionState
        from kiln.passes.torch_to_kiln.linalg_import import LinalgImporter

        self.block = function.regions[0].blocks[0]
        self.shapes = SymbolicShapes(function)
        self.state = FunctionState()
        for number, symbol in enumerate(self.shapes.symbols):
            self.state.bind(f"s{number}", symbol)
        self.importer = LinalgImporter(Emitter(self.state), "normalize-linalg", str(function.location))

    def rewrite(self) -> None:
        """New ops go before the terminator; the old ones are erased once all have a counterpart."""
        old = [op.operation for op in self.block.operations]
        terminator = old[-1]
        for value in self.block.arguments:
            self._know(value)
        count = len(old)
        try:
            with ir.InsertionPoint(terminator):
                for op in old[:-1]:
                    with op.location:
                        self._copy(op) if kiln.name_of(op).startswith("kiln.") else self.importer.convert(op)
            returned = [self.importer.tensor(operand) for operand in terminator.operands]
        except UnsupportedError:
            self._undo(count)
            raise
        for k, value in enumerate(returned):
            terminator.operands[k] = value
        for op in reversed(old[:-1]):
            op.erase()

    def _know(self, value: ir.Value) -> None:
        """Record the sizes and element type of a value that stays."""
        if isinstance(value.type, ir.IndexType):
            self.importer.sizes[value] = self.shapes.expr(value)
        elif isinstance(value.type, ir.RankedTensorType):
            self.state.set_info(value, self.shapes.dims(value), self.importer.dtype(value))
            self.importer.values[value] = value

    def _copy(self, op: ir.Operation) -> None:
        """One of Kiln's own ops, on the rewritten operands."""
        for result in op.results:
            self._know(result)
        copied = op.clone().operation
        for k, operand in enumerate(op.operands):
            if operand in self.importer.values:
                copied.operands[k] = self.importer.values[operand]
            elif not isinstance(operand, ir.BlockArgument):
                raise self.importer.unsupported("a size computed outside of an affine map")
        for old, new in zip(op.results, copied.results, strict=True):
            if isinstance(new.type, ir.RankedTensorType):
                info = self.state.info(old)
                self.importer.values[old] = self.state.set_info(new, info.shape, info.dtype)

    def _undo(self, count: int) -> None:
        """Erase what was made, which lies between the old ops and the terminator."""
        operations = [op.operation for op in self.block.operations]
        for op in reversed(operations[count - 1 : -1]):
            op.erase()
