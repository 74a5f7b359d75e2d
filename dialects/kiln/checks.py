# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Verifier helpers: each names the operand, result or attribute, what was expected and what was found."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln.base import static_shape

Size = int | None


class InvalidOp(Exception):
    """Raised inside `verified` functions; its message is the diagnostic, without the op's name."""


def verified(check: Callable[[Any], None]) -> Callable[[Any], bool]:
    """Make a `verify_invariants` of a function that raises `InvalidOp`: the hook says False after emitting an error."""

    def verify_invariants(op: Any) -> bool:
        try:
            check(op)
        except InvalidOp as error:
            plain: str = getattr(cast(Any, type(op)), "PLAIN_NAME", None) or op.OPERATION_NAME
            op.location.emit_error(f"'{plain}' op {error}")
            return False
        except (KeyError, AttributeError, TypeError, IndexError, ValueError):
            # Too malformed to look at: an operand or attribute is missing or of another kind.  This hook runs before
            # the generated verifier, which says so.
            return True
        return True

    return verify_invariants


def require(condition: bool, what: str, expected: object, found: object) -> None:
    """Raise `InvalidOp` unless `condition` holds."""
    if not condition:
        raise InvalidOp(f"{what}: expected {expected}, found {found}")


def tensors_then_indices(values: Sequence[ir.Value], what: str = "operand") -> None:
    """Ranked tensors first, then values of index type."""
    seen_index = False
    for i, value in enumerate(values):
        is_index = isinstance(value.type, ir.IndexType)
        good = is_index or isinstance(value.type, ir.RankedTensorType)
        require(good, f"{what} {i}", "a ranked tensor or index", value.type)
        require(is_index or not seen_index, f"{what} {i}", "index values last", value.type)
        seen_index |= is_index


def text(sizes: Sequence[Size]) -> str:
    """Sizes as in a tensor type: [4, ?]."""
    return "[" + ", ".join("?" if s is None else str(s) for s in sizes) + "]"


def agree(a: Size, b: Size) -> bool:
    """Whether two sizes can be the same."""
    return a is None or b is None or a == b


def sizes_of(value: ir.Value) -> list[Size]:
    """Static sizes, None for dynamic ones."""
    return static_shape(value.type)


def same_sizes(what: str, expected: Sequence[Size], value: ir.Value) -> None:
    """The tensor `value` must have these sizes, as far as known."""
    found = sizes_of(value)
    matches = len(found) == len(expected) and all(map(agree, expected, found))
    if not matches:
        raise InvalidOp(f"{what} sizes: expected {text(expected)}, found {text(found)}")


def rank_is(what: str, value: ir.Value, rank: int) -> None:
    """Raise `InvalidOp` unless the tensor `value`, called `what`, has this rank."""
    require(value.type.rank == rank, f"{what} rank", rank, value.type.rank)


def rank_at_least(what: str, value: ir.Value, rank: int) -> None:
    """Raise `InvalidOp` if the tensor `value`, called `what`, has a smaller rank."""
    require(value.type.rank >= rank, f"{what} rank", f"at least {rank}", value.type.rank)


def same_element(what: str, value: ir.Value, other: ir.Value) -> None:
    """`value` must have the element type of `other`."""
    expected, found = other.type.element_type, value.type.element_type
    require(expected == found, f"{what} element type", expected, found)


def same_or_wide(what: str, value: ir.Value, other: ir.Value) -> None:
    """`value` must have the element type of `other`, or f32 where that is a narrower float."""
    element = other.type.element_type
    if not (
        isinstance(value.type.element_type, ir.F32Type) and isinstance(element, ir.FloatType) and element.width < 32
    ):
        same_element(what, value, other)


def is_i8(value: ir.Value) -> bool:
    """Whether the elements of `value` are 8-bit integers."""
    element = value.type.element_type
    return isinstance(element, ir.IntegerType) and element.width == 8


def is_float(what: str, value: ir.Value) -> None:
    """Raise `InvalidOp` unless the tensor's elements are f16, bf16, f32 or f64."""
    element = value.type.element_type
    floats = (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)
    require(isinstance(element, floats), f"{what} element type", "a float type", element)


def is_integer(what: str, value: ir.Value, width: int | None = None) -> None:
    """Raise `InvalidOp` unless the elements are integers (of `width` bits, if given), booleans excluded."""
    element = value.type.element_type
    good = isinstance(element, ir.IntegerType) and element.width > 1 and width in (None, element.width)
    require(good, f"{what} element type", f"i{width}" if width else "an integer type", element)


def same_type(what: str, value: ir.Value, other: ir.Value) -> None:
    """`value` must have the type of `other`."""
    require(value.type == other.type, f"{what} type", other.type, value.type)


def flag(op: Any, name: str) -> bool:
    """A boolean attribute."""
    attribute = op.attributes[name]
    require(isinstance(attribute, ir.BoolAttr), f"attribute {name}", "true or false", attribute)
    return attribute.value


def dim_in_range(op: Any, name: str, rank: int) -> int:
    """An integer attribute in [0, rank)."""
    value = op.attributes[name].value
    require(0 <= value < rank, f"attribute {name}", f"a dim in [0, {rank})", value)
    return value


def one_of(op: Any, name: str, choices: Sequence[str]) -> str:
    """A string attribute from a list."""
    value = op.attributes[name].value
    require(value in choices, f"attribute {name}", f"one of {', '.join(choices)}", f'"{value}"')
    return value


def ints(op: Any, name: str, length: int | None = None, least: int | None = None) -> list[int]:
    """An `array<i64>` attribute, of a length and with a least value if these are given."""
    attribute = op.attributes[name]
    require(isinstance(attribute, ir.DenseI64ArrayAttr), f"attribute {name}", "array<i64>", attribute)
    values = list(attribute)
    if length is not None:
        require(len(values) == length, f"attribute {name}", f"{length} entries", len(values))
    if least is not None:
        require(all(v >= least for v in values), f"attribute {name}", f"entries of at least {least}", values)
    return values


def positive(op: Any, name: str) -> int:
    """An integer attribute that is at least 1."""
    value = op.attributes[name].value
    require(value >= 1, f"attribute {name}", "at least 1", value)
    return value


def map_of(op: Any, name: str, n_dims: int, n_results: int, n_symbols: int) -> ir.AffineMap:
    """An affine map attribute with these counts; one that uses no symbols may have none."""
    map_ = ir.AffineMapAttr(op.attributes[name]).value
    check_map(f"attribute {name}", map_, n_dims, n_results, n_symbols)
    return map_


def check_map(what: str, map_: ir.AffineMap, n_dims: int, n_results: int, n_symbols: int) -> None:
    """Counts of a map's dims, results and symbols."""
    require(map_.n_dims == n_dims, f"{what} dims", n_dims, map_.n_dims)
    require(len(map_.results) == n_results, f"{what} results", n_results, len(map_.results))
    require(map_.n_symbols in (0, n_symbols), f"{what} symbols", f"{n_symbols}, one per index operand", map_.n_symbols)


def reads_in_bounds(view: Any) -> None:
    """Where the map of a view reads along one dim of the result, or at a constant, that must exist in the operand.

    Static sizes alone; other expressions are not looked at.
    """
    sizes, result = sizes_of(view.x), sizes_of(view.result)
    if 0 in result:
        return
    for i, (expr, size) in enumerate(zip(view.map.value.results, sizes, strict=True)):
        if size is None:
            continue
        last = affine.constant_of(expr)
        if last is None and isinstance(expr, ir.AffineDimExpr):
            extent = result[expr.position]
            last = None if extent is None else extent - 1
        if last is not None and not 0 <= last < size:
            raise InvalidOp(f"attribute map: reads index {last} of dimension {i}, which has size {size}")


def shape_matches(what: str, map_: ir.AffineMap, value: ir.Value) -> None:
    """Constant sizes of `map_` must be the tensor type's static sizes."""
    expected = [affine.constant_of(e) for e in map_.results]
    found = sizes_of(value)
    matches = all(e == f or e is None for e, f in zip(expected, found, strict=True))
    if not matches:
        raise InvalidOp(f"{what} sizes: expected {text(expected)}, found {text(found)}")
