# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""When one value may stand for another: memory and layout as the caller and ATen calls see them."""

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import op_name

from .expressions import NoMatch
from .values import base_of, escapes, is_view, same_strides, same_type

__all__ = ["check_replacement"]

# Ops whose result depends on the layout of what they read only in its own layout, which the graph has recorded.
_LAYOUT_FREE = frozenset(
    """
    add sub mul div neg abs exp log relu sigmoid tanh sqrt rsqrt reciprocal pow maximum minimum where sum mean amax
    amin mm bmm matmul addmm expand permute transpose t unsqueeze gelu silu eq ne lt le gt ge softmax _softmax
    """.split()
)


def check_replacement(root: ir.Operation, new: ir.Value) -> None:
    """Raise NoMatch unless ``new`` can take the place of the root's result in every use.

    A copy must not become its source where the caller would see that the two are one: eager returns distinct memory.
    """
    old = root.results[0]
    if not same_type(old, new):
        raise NoMatch("the result has other sizes or another element type")
    made = defining_op(new)
    if isinstance(new, ir.BlockArgument):
        if escapes(old):
            raise NoMatch("the result is returned: it would be the argument itself")
    elif not is_view(root) and _existed(root, made):
        base = base_of(new)
        if escapes(old) and (isinstance(base, ir.BlockArgument) or escapes(base)):
            raise NoMatch("the result is returned: it would share memory with another tensor of the caller")
    if not same_strides(old, new) and not all(_layout_free(use.owner.operation) for use in old.uses):
        raise NoMatch("the result has other strides, and a user that depends on them")


def _existed(root: ir.Operation, made: ir.Operation | None) -> bool:
    """Whether the replacement is a value of the graph rather than an op made for this rewrite."""
    if made is None:
        return True
    # A new op has no user yet; every value of the graph that a rule can return has the matched ops.
    return any(True for result in made.results for _ in result.uses)


def _layout_free(op: ir.Operation) -> bool:
    parts = op_name(op).split(".")
    return len(parts) > 2 and parts[2] in _LAYOUT_FREE
