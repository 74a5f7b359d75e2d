# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers that depend on sizes, as ops of the torch dialect: written from their expressions, not node by node."""

from typing import Any

import sympy
from torch_mlir import ir
from torch_mlir.extras import fx_importer as tm

from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.frontend.import_.op_forms import AFFINE_OPS
from kiln.frontend.import_.symbols import SymbolSpace

__all__ = ["SymbolicNumbers"]


class SymbolicNumbers(tm.GraphNodeImporter):
    """An importer that has a value for each expression over its symbols. ``symbols``: the values of these, by name."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.space = SymbolSpace()
        self.symbols: dict[str, ir.Value] = {}
        self._ints: dict[Any, ir.Value] = {}

    def int_value(self, expr: sympy.Expr) -> ir.Value:
        """``!torch.int`` value of an integer expression over the symbols, emitted once."""
        key = ir.AffineMap.get(0, len(self.space.names), [self.space.affine(expr)])
        return self._affine_value(key.results[0])

    def _affine_value(self, expr: ir.AffineExpr) -> ir.Value:
        key = str(expr)
        if key not in self._ints:
            self._ints[key] = self._emit_affine(expr)
        return self._ints[key]

    def _emit_affine(self, expr: ir.AffineExpr) -> ir.Value:
        if isinstance(expr, ir.AffineConstantExpr):
            return self._import_literal(expr.value)
        if isinstance(expr, ir.AffineSymbolExpr):
            name = self.space.names[expr.position]
            if name not in self.symbols:
                raise ImportUnsupported(f"symbol {name} has no value at this point of the graph")
            return self.symbols[name]
        for kind, op in AFFINE_OPS:
            if isinstance(expr, kind):
                operands = [self._affine_value(expr.lhs), self._affine_value(expr.rhs)]
                return ir.Operation.create(op, results=[self._cc.torch_int_type], operands=operands).result
        raise ImportUnsupported(f"no integer op for {expr}")

    def float_value(self, expr: sympy.Expr) -> ir.Value:
        """``!torch.float`` of a size-dependent float: a converted integer, or the quotient of two integers."""
        name = type(expr).__name__
        if expr.is_number:
            return self._import_literal(float(expr))
        if name == "ToFloat":
            op, operands = "torch.aten.Float.Scalar", [self.int_value(expr.args[0])]
        elif name == "IntTrueDiv":
            op, operands = "torch.aten.div.int", [self.int_value(arg) for arg in expr.args]
        else:
            raise ImportUnsupported(f"the size-dependent float {expr}")
        return ir.Operation.create(op, results=[self._cc.torch_float_type], operands=operands).result
