# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of tensors as expressions over the symbols of the enclosing function or fusion."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, shape_rules
from kiln.dialects.kiln.base import compress_symbols, static_shape
from kiln.dialects.kiln.family import name_of

Dims = tuple[ir.AffineExpr, ...]


class SymbolicShapes:
    """Analysis of one function or `kiln.fusion`: tensor value to sizes, index value to expression.

    Symbols are, in order, the region's index arguments and the `index` results of its `kiln.aten` ops.  What cannot be
    expressed over these becomes a fresh symbol (`fresh` says of which value and dim), one per unknown.  Results are
    kept by value: after erasing ops make a new analysis, or `forget` their results first.  `outer`, the analysis of the
    function around a fusion, is only asked for arguments of a fusion without `shapes`, and made then if not given.
    """

    def __init__(self, region_op: Any, outer: "SymbolicShapes | None" = None) -> None:
        self.op: ir.Operation = region_op.operation
        self._outer = outer
        self.block: ir.Block = self.op.regions[0].blocks[0]
        self.symbols: list[ir.Value] = [a for a in self.block.arguments if isinstance(a.type, ir.IndexType)]
        self.n_arguments = len(self.symbols)
        for op in self.block.operations:
            if name_of(op) == "kiln.aten":
                self.symbols += [r for r in op.results if isinstance(r.type, ir.IndexType)]
        self.fresh: list[tuple[ir.Value, int | None]] = []
        self._exprs: dict[ir.Value, ir.AffineExpr] = {
            s: ir.AffineExpr.get_symbol(i) for i, s in enumerate(self.symbols)
        }
        self._dims: dict[ir.Value, Dims] = {}

    # ------------------------------------------------------------------------------------------------------ queries

    def dims(self, value: ir.Value) -> Dims:
        """Sizes of a ranked tensor; `()` for any other type."""
        found = self._dims.get(value)
        if found is None:
            found = self._dims[value] = self._compute(value)
        return found

    def expr(self, value: ir.Value) -> ir.AffineExpr:
        """An index (or integer) value as an expression."""
        found = self._exprs.get(value)
        if found is None:
            computed = shape_rules.index_expr(self, value)
            found = self._exprs[value] = affine.simplify(computed) if computed is not None else self._new(value, None)
        return found

    def shape_map(self, value: ir.Value) -> ir.AffineMap:
        """The sizes of `value` as an affine map over all symbols."""
        return ir.AffineMap.get(0, self.n_symbols, list(self.dims(value)))

    def hint(self, expr: ir.AffineExpr) -> int | None:
        """What a size is likely to be: what it is, or, of one known at run time only, what it was about when the graph
        was traced (`kiln.hint` of the function's index arguments; of those of a fusion, what `outer` says). None where
        nothing tells, or where it would divide by 0 there.
        """
        used = affine.symbols_in(expr)
        hints = {i: n for i in used if i < self.n_arguments and (n := self._hint_of(self.symbols[i])) is not None}
        if len(hints) < len(used):
            return None
        try:
            return affine.evaluate(expr, symbols=[hints.get(i, 0) for i in range(max(used, default=-1) + 1)])
        except ZeroDivisionError:
            return None

    def _hint_of(self, symbol: ir.Value) -> int | None:
        if self._outer is not None:
            return self._outer.hint(self._outer.expr(self.op.operands[ir.BlockArgument(symbol).arg_number]))
        if "arg_attrs" not in self.op.attributes:
            return None
        own = ir.DictAttr(ir.ArrayAttr(self.op.attributes["arg_attrs"])[ir.BlockArgument(symbol).arg_number])
        return ir.IntegerAttr(own["kiln.hint"]).value if "kiln.hint" in own else None

    @property
    def n_symbols(self) -> int:
        """Number of symbols, fresh ones included."""
        return len(self.symbols) + len(self.fresh)

    def values(self, used: set[int]) -> list[ir.Value]:
        """The SSA value of each symbol; those not `used` may be any index value.

        Fresh symbols become `tensor.dim` ops at the current insertion point.
        """
        from torch_mlir.dialects import arith, tensor

        made: dict[int, ir.Value] = {}
        for i, (value, dim) in enumerate(self.fresh, start=len(self.symbols)):
            if i in used:
                made[i] = value if dim is None else tensor.dim(value, arith.constant(ir.IndexType.get(), dim))
        out = list(self.symbols)
        for i in range(len(self.symbols), self.n_symbols):
            # Not used: whatever value there is.  Without any, nothing is used and nothing asked for.
            out += [made[i]] if i in made else [*self.symbols, *made.values()][:1]
        return out

    def pack(self, *groups: tuple[int, Sequence[ir.AffineExpr]]) -> tuple[list[ir.AffineMap], list[ir.Value]]:
        """Maps for groups of `(number of dims, results)`, over the symbols that they use, and the values of these."""
        symbols = self.values({symbol for _, exprs in groups for e in exprs for symbol in affine.symbols_in(e)})
        maps = [ir.AffineMap.get(n_dims, len(symbols), list(exprs)) for n_dims, exprs in groups]
        return compress_symbols(maps, symbols)

    def forget(self, value: ir.Value) -> None:
        """Drop what is known of `value`, whose op is about to be erased."""
        self._dims.pop(value, None)
        self._exprs.pop(value, None)

    # ------------------------------------------------------------------------------------------------------- rules

    def map_results(self, op: ir.Operation, map_: ir.AffineMap) -> Dims:
        """The results of a map over the trailing index operands of `op`."""
        if not map_.n_symbols:
            return tuple(map_.results)
        operands = [self.expr(v) for v in list(op.operands)[len(op.operands) - map_.n_symbols :]]
        return tuple(affine.simplify(affine.substitute(e, (), operands)) for e in map_.results)

    def _compute(self, value: ir.Value) -> Dims:
        if not isinstance(value.type, ir.RankedTensorType):
            return ()
        static = static_shape(value.type)
        if None not in static:
            return tuple(ir.AffineExpr.get_constant(s) for s in static if s is not None)
        found = self._rule(value)
        dims: list[ir.AffineExpr] = []
        for i, size in enumerate(static):
            known = ir.AffineExpr.get_constant(size) if size is not None else found[i] if found else None
            dims.append(self._new(value, i) if known is None else known.maybe_downcast())
        return tuple(dims)

    def _rule(self, value: ir.Value) -> Sequence[ir.AffineExpr | None] | None:
        if isinstance(value, ir.BlockArgument) or isinstance(value.owner, ir.Block):
            return self._argument(ir.BlockArgument(value))
        op = value.owner.operation
        rule = shape_rules.shape_rule(op)
        return rule(self, op, ir.OpResult(value).result_number) if rule is not None else None

    def _argument(self, argument: ir.BlockArgument) -> Sequence[ir.AffineExpr | None] | None:
        if argument.owner != self.block:
            return None
        if name_of(self.op) == "kiln.fusion":
            return self._fusion_argument(argument)
        attributes = self.op.attributes
        if "arg_attrs" not in attributes:
            return None
        own = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[argument.arg_number])
        return list(ir.AffineMapAttr(own["kiln.shape"]).value.results) if "kiln.shape" in own else None

    def _fusion_argument(self, argument: ir.BlockArgument) -> Sequence[ir.AffineExpr | None] | None:
        if "shapes" in self.op.attributes:
            # One map per tensor operand; these come first.
            return list(ir.AffineMapAttr(self.op.attributes["shapes"][argument.arg_number]).value.results)
        if self.op.parent is None:
            return None
        self._outer = outer = self._outer or SymbolicShapes(self.op.parent)
        operand = self.op.operands[argument.arg_number]
        inverse: dict[ir.AffineExpr, ir.AffineExpr] = {}
        indices = [v for v in self.op.operands if isinstance(v.type, ir.IndexType)]
        for i, v in enumerate(indices):
            inverse.setdefault(outer.expr(v), ir.AffineExpr.get_symbol(i))
        by_position = {e.position: s for e, s in inverse.items() if isinstance(e, ir.AffineSymbolExpr)}
        out: list[ir.AffineExpr | None] = []
        for e in outer.dims(operand):
            if e in inverse:
                out.append(inverse[e])
            elif affine.symbols_in(e) <= by_position.keys():
                out.append(affine.substitute(e, (), by_position))
            else:
                out.append(None)
        return out

    def _new(self, value: ir.Value, dim: int | None) -> ir.AffineExpr:
        self.fresh.append((value, dim))
        return ir.AffineExpr.get_symbol(len(self.symbols) + len(self.fresh) - 1)
