# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is known of values of the torch dialect: element types, sizes, strides, constants, aliasing."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, op_name, python_value

__all__ = [
    "base_of",
    "dtype_of",
    "escapes",
    "is_tensor",
    "is_view",
    "same_strides",
    "same_type",
    "size_exprs",
    "sizes_of",
    "splat_of",
    "strides_of",
]

_VIEWS = frozenset(
    """
    alias as_strided detach diagonal expand movedim narrow numpy_T permute real imag select slice split
    split_with_sizes squeeze t transpose unbind unfold unsqueeze view view_as_real view_as_complex ListUnpack chunk
    _reshape_alias reshape swapaxes swapdims mT adjoint unflatten lift_fresh
    """.split()
)
# Creation ops whose elements all are one number, and the operand that holds it (None: the number is in the name).
_SPLATS: dict[str, tuple[int | None, int]] = {
    "torch.aten.full": (1, 0),
    "torch.aten.full_like": (1, 0),
    "torch.aten.new_full": (2, 0),
    "torch.aten.scalar_tensor": (0, 0),
    "torch.prim.NumToTensor.Scalar": (0, 0),
    "torch.aten.fill.Scalar": (1, 0),
    **{f"torch.aten.{name}": (None, 1) for name in ("ones", "ones_like", "new_ones")},
    **{f"torch.aten.{name}": (None, 0) for name in ("zeros", "zeros_like", "new_zeros")},
}
_SAME_ELEMENTS = frozenset(
    f"torch.aten.{name}" for name in ("expand", "view", "clone", "lift_fresh_copy", "alias", "detach", "unsqueeze")
)


def is_tensor(value: ir.Value) -> bool:
    """Whether the value is a tensor of known rank and element type."""
    return parse_tensor_type(type_text(value.type)) is not None


def dtype_of(value: ir.Value) -> str:
    """The element type as the torch dialect writes it (``f32``, ``si64``, ``i1``); empty for what is no tensor."""
    parsed = parse_tensor_type(type_text(value.type))
    return parsed[1] if parsed else ""


def is_float(value: ir.Value) -> bool:
    """Whether the elements are real floating-point numbers."""
    return dtype_of(value).startswith(("f", "bf"))


def is_integral(value: ir.Value) -> bool:
    """Whether the elements are integers or booleans."""
    return dtype_of(value).startswith(("si", "ui", "i1"))


def _layout(value: ir.Value, of_op: str, of_argument: str) -> tuple[str, ...] | None:
    """The results of an affine map attribute of the value's op or argument, as text over the function's symbols."""
    found = _layout_map(value, of_op, of_argument)
    return None if found is None else tuple(str(expr) for expr in found.results)


def _layout_map(value: ir.Value, of_op: str, of_argument: str) -> ir.AffineMap | None:
    if isinstance(value, ir.BlockArgument):
        function = value.owner.owner
        if "arg_attrs" not in function.attributes:
            return None
        attrs = ir.DictAttr(function.attributes["arg_attrs"][value.arg_number])
        entry = attrs[of_argument] if of_argument in attrs else None
    else:
        op = defining_op(value)
        assert op is not None
        entries = op.attributes[of_op] if of_op in op.attributes else None
        entry = None if entries is None else ir.ArrayAttr(entries)[ir.OpResult(value).result_number]
    return entry.value if isinstance(entry, ir.AffineMapAttr) else None


def size_exprs(value: ir.Value) -> tuple[list[ir.AffineExpr], int] | None:
    """The sizes as affine expressions over the function's symbols, and how many symbols their map has.

    None where a size is not known.
    """
    parsed = parse_tensor_type(type_text(value.type))
    if parsed is None:
        return None
    found = _layout_map(value, "kiln.shapes", "kiln.shape")
    if found is None and None in parsed[0]:
        return None
    constants = [None if size is None else ir.AffineExpr.get_constant(size) for size in parsed[0]]
    exprs = [found.results[k] if c is None and found is not None else c for k, c in enumerate(constants)]
    return [e for e in exprs if e is not None], found.n_symbols if found is not None else 0


def sizes_of(value: ir.Value) -> tuple[int | str, ...] | None:
    """The sizes: numbers, and expressions over the function's symbols as text; None where one is not known."""
    parsed = parse_tensor_type(type_text(value.type))
    if parsed is None:
        return None
    if None not in parsed[0]:
        return tuple(size for size in parsed[0] if size is not None)
    exprs = _layout(value, "kiln.shapes", "kiln.shape")
    if exprs is None:
        return None
    return tuple(exprs[k] if size is None else size for k, size in enumerate(parsed[0]))


def strides_of(value: ir.Value) -> tuple[str, ...] | None:
    """The strides in elements, as text; ``*`` for dimensions of size 1, whose stride never counts."""
    strides, sizes = _layout(value, "kiln.strides", "kiln.strides"), sizes_of(value)
    if strides is None or sizes is None:
        return None
    return tuple("*" if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))


def same_type(a: ir.Value, b: ir.Value) -> bool:
    """Whether two tensors have the same element type and provably the same sizes."""
    if a.type != b.type:
        return False
    sizes = sizes_of(a)
    return sizes is not None and sizes == sizes_of(b)


def same_strides(a: ir.Value, b: ir.Value) -> bool:
    """Whether two tensors of the same sizes are laid out alike. IR without ``kiln.strides`` is taken to be."""
    return strides_of(a) is None or strides_of(b) is None or strides_of(a) == strides_of(b)


def splat_of(value: ir.Value) -> int | float | bool | None:
    """The number that all elements have, for a number, a filled tensor or views of one; else None."""
    constant: Any = python_value(value)
    if constant is not NOT_CONSTANT:
        return constant if isinstance(constant, int | float) else None
    op = defining_op(value)
    if op is None:
        return None
    name = op_name(op)
    found: int | float | None = None
    if name in _SPLATS:
        operand, number = _SPLATS[name]
        found = number if operand is None else splat_of(op.operands[operand])
    elif name == "torch.vtensor.literal":
        dense = op.attributes["value"]
        if isinstance(dense, ir.DenseElementsAttr) and dense.is_splat:
            found = dense.get_splat_value().value
    elif name in _SAME_ELEMENTS:
        found = splat_of(op.operands[0])
    return bool(found) if found is not None and dtype_of(value) == "i1" else found


def is_view(op: ir.Operation) -> bool:
    """Whether the op's result shares memory with its first operand."""
    parts = op_name(op).split(".")
    return len(parts) > 2 and parts[2] in _VIEWS


def base_of(value: ir.Value) -> ir.Value:
    """The tensor whose memory ``value`` is, as eager has it: views are looked through."""
    op = defining_op(value)
    while op is not None and is_view(op):
        value = op.operands[0]
        op = defining_op(value)
    return value


def escapes(value: ir.Value) -> bool:
    """Whether the caller gets the memory of ``value``: it, or a view of it, is returned."""
    stack = [value]
    while stack:
        for use in stack.pop().uses:
            user = use.owner.operation
            if user.name == "func.return":
                return True
            if is_view(user):
                stack += list(user.results)
    return False
