# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What all `kiln` ops share: the dialect, type aliases for op fields, attribute builders, dims and symbols."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from torch_mlir import ir
from torch_mlir.dialects import ext
from torch_mlir.dialects.irdl import Variadicity

from kiln.dialects import affine

DYNAMIC: int = ir.ShapedType.get_dynamic_size()
"""The size that MLIR's tensor types give a dynamic dimension."""

Dim = int | ir.AffineExpr
"""A dimension or an index: a constant, or an expression over symbols (and dims, in view maps)."""


class Kiln(ext.Dialect, name="kiln"):
    """The fused-op dialect: named tensor ops, views, fusions and calls to ATen, on ranked builtin tensors."""


class Operation(Kiln.Operation):
    """Base of all `kiln` ops: at most one variadic operand and result group, the last one, so without segment sizes.

    `ext` would give every op with a variadic operand an `operandSegmentSizes` attribute, in text as well.  With one
    trailing group the positions are known, so the accessors are replaced by plain indexing and ops are made with
    `create`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in kwargs:
            return
        operands, _, results, _ = ext.partition_fields(cls._fields)
        for kind, fields in (("operands", operands), ("results", results)):
            for i, field in enumerate(fields):
                setattr(cls, field.name, _positional(kind, i, field.variadicity))
        cls._ODS_OPERAND_SEGMENTS = None
        cls._ODS_RESULT_SEGMENTS = None

    @classmethod
    def create(
        cls,
        operands: Sequence[ir.Value],
        results: Sequence[ir.Type],
        attributes: Mapping[str, ir.Attribute],
        regions: int = 0,
    ) -> Any:
        """Make the op at the current insertion point and location; returns its view."""
        op = ir.Operation.create(
            cls.OPERATION_NAME, operands=operands, results=results, attributes=attributes, regions=regions
        )
        return op.opview


def _positional(kind: str, index: int, variadicity: Any) -> property:
    """An accessor for field `index` of `kind` ("operands" or "results")."""
    if variadicity == Variadicity.single:
        return property(lambda op: getattr(op, kind)[index])
    if variadicity == Variadicity.optional:
        return property(lambda op: getattr(op, kind)[index] if len(getattr(op, kind)) > index else None)
    return property(lambda op: list(getattr(op, kind))[index:])


class PureUnless:
    """Trait factory: pure, except where `impure(op)` holds; such an op is kept, in order, and never merged."""

    def __init__(self, impure: Callable[[Any], bool]) -> None:
        self.impure = impure

    def attach(self, op_name: str) -> None:
        """Attach the trait to the op of a registered name."""
        impure = self.impure

        class Effects(ir.MemoryEffectsOpInterface):
            @staticmethod
            def get_effects(op: Any, effects: Any) -> None:
                if impure(op):
                    effects.append(ir.MemoryEffect.Read)
                    effects.append(ir.MemoryEffect.Write)

        class Speculation(ir.ConditionallySpeculatable):
            @staticmethod
            def get_speculatability(op: Any) -> Any:
                return ir.Speculatability.NotSpeculatable if impure(op) else ir.Speculatability.Speculatable

        Effects.attach(op_name)
        Speculation.attach(op_name)


class I64Array(ir.Attribute):
    """Constraint for `array<i64: ...>` attributes (the bindings give their class no name)."""

    attr_name = "builtin.dense_array"


if TYPE_CHECKING:
    _T = TypeVar("_T")

    class Result(ir.OpResult, Generic[_T]):
        """A result field of an op; the stubs of the bindings do not know that `OpResult` takes a type."""
else:
    Result = ir.OpResult

Tensor = ir.RankedTensorType
Index = ir.IndexType
Pure = ext.Pure


# ---------------------------------------------------------------------------------------------- attribute builders


def i64(value: int) -> ir.IntegerAttr:
    """An `i64` attribute."""
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def f64(value: float) -> ir.FloatAttr:
    """An `f64` attribute."""
    return ir.FloatAttr.get(ir.F64Type.get(), value)


def boolean(value: bool) -> ir.BoolAttr:
    """A boolean attribute; any true value is `true`."""
    return ir.BoolAttr.get(bool(value))


def string(value: str) -> ir.StringAttr:
    """A string attribute."""
    return ir.StringAttr.get(value)


def i64s(values: Sequence[int]) -> ir.DenseI64ArrayAttr:
    """An `array<i64: ...>` attribute."""
    return ir.DenseI64ArrayAttr.get(list(values))


def maps(values: Sequence[ir.AffineMap | None]) -> ir.ArrayAttr:
    """An array of affine maps; `None` becomes `unit`."""
    return ir.ArrayAttr.get([ir.UnitAttr.get() if m is None else ir.AffineMapAttr.get(m) for m in values])


# -------------------------------------------------------------------------------------------------- types and dims


def value_of(x: Any) -> ir.Value:
    """The single SSA value that `x`, an op or a value, stands for."""
    if isinstance(x, ir.Value):
        return cast(ir.Value, x)
    return x.result


def as_expr(dim: Dim) -> ir.AffineExpr:
    """A dimension as an expression: a number becomes a constant."""
    return ir.AffineExpr.get_constant(dim) if isinstance(dim, int) else dim


def floordiv(dim: Any, divisor: int) -> Any:
    """`dim` divided by a positive constant, rounded down; for ints and affine expressions."""
    return dim // divisor if isinstance(dim, int) else ir.AffineExpr.get_floor_div(dim, divisor)


def as_map(results: ir.AffineMap | Sequence[Dim], n_dims: int, n_symbols: int) -> ir.AffineMap:
    """`results` as an affine map; a map is returned as it is."""
    if isinstance(results, ir.AffineMap):
        return results
    return ir.AffineMap.get(n_dims, n_symbols, [as_expr(e) for e in results])


def tensor_type(element_type: ir.Type, shape: ir.AffineMap) -> ir.RankedTensorType:
    """The tensor type with the sizes of `shape`: constants are static, everything else is `?`."""
    sizes = [affine.constant_of(e) for e in shape.results]
    return ir.RankedTensorType.get([DYNAMIC if s is None or s < 0 else s for s in sizes], element_type)


def static_shape(type_: ir.Type) -> list[int | None]:
    """Sizes of a ranked tensor type, None for each dynamic one."""
    return [None if s == DYNAMIC else s for s in ir.RankedTensorType(type_).shape]


def ranked(shape: Sequence[int | None], element_type: ir.Type) -> ir.RankedTensorType:
    """Inverse of `static_shape`."""
    return ir.RankedTensorType.get([DYNAMIC if s is None else s for s in shape], element_type)


def compress_symbols(
    all_maps: Sequence[ir.AffineMap], symbols: Sequence[ir.Value]
) -> tuple[list[ir.AffineMap], list[ir.Value]]:
    """Drop the symbols that no map uses and renumber the others, so that static ops carry no index operands."""
    used: set[int] = set()
    for m in all_maps:
        for e in m.results:
            used |= affine.symbols_in(e)
    keep = sorted(used)
    if len(keep) == len(symbols):
        return list(all_maps), list(symbols)
    renumber = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(keep)}
    out = [
        ir.AffineMap.get(m.n_dims, len(keep), [affine.substitute(e, {}, renumber) for e in m.results]) for m in all_maps
    ]
    return out, [symbols[i] for i in keep]
