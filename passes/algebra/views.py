# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Views of views, copies and concatenations that change nothing."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import op_name

from .expressions import Match, NoMatch
from .rules import Safety, row, rule
from .values import same_strides, same_type, sizes_of

T = "views"
EXACT = Safety.EXACT

row("alias", "alias(x)", "x", EXACT, "the same tensor", T)
row("detach", "detach(x)", "x", EXACT, "the graph holds no gradients", T)
row("lift-fresh", "lift_fresh_copy(x)", "x", EXACT, "values are never written to", T)


def _unchanged(m: Match) -> ir.Value:
    if not same_type(m["x"], m.result):
        raise NoMatch("")
    return m["x"]


_SAME = "the sizes are those of x"
rule("view-same", "view(x)", "x  (same sizes)", EXACT, _SAME, T)(_unchanged)
rule("expand-same", "expand(x)", "x  (same sizes)", EXACT, _SAME, T)(_unchanged)
rule("slice-all", "slice(x)", "x  (same sizes)", EXACT, "a slice as long as the dimension is all of it", T)(_unchanged)
rule("squeeze-none", "squeeze(x)", "x  (same sizes)", EXACT, "a dimension that is not 1 stays", T)(_unchanged)


@rule("clone", "clone(x)", "x  (same strides)", EXACT, "values are never written to; a copy may not be returned", T)
def clone(m: Match) -> ir.Value:
    """A copy of the same strides is its operand."""
    value = m.like_root(m["x"])
    m.need(same_strides(value, m.result), "the copy changes the layout")
    return value


def _outer(m: Match, name: str) -> ir.Value:
    """The root's op on the operand of its operand."""
    return m.build(name, m["x"], *list(m.root.operands)[1:])


@rule("view-view", "view(view(x))", "view(x)", EXACT, "the elements keep their order", T)
def view_view(m: Match) -> ir.Value:
    """A view of a view is one view, or none where it restores the type."""
    return m["x"] if same_type(m["x"], m.result) else _outer(m, "view")


@rule("view-unsqueeze", "view(unsqueeze(x))", "view(x)", EXACT, "the elements keep their order", T)
def view_unsqueeze(m: Match) -> ir.Value:
    """A view of `unsqueeze` is a view of its operand."""
    return m["x"] if same_type(m["x"], m.result) else _outer(m, "view")


@rule("view-permute", "view(permute(x))", "view(x)", EXACT, "where dimensions of size 1 alone move", T)
def view_permute(m: Match) -> ir.Value:
    """A view of a permutation that only moves dims of size 1 is a view of its operand."""
    sizes = sizes_of(m["x"])
    order = _permutation(m, m.operand(0))
    moved = [d for d in order if sizes is not None and sizes[d] != 1]
    if sizes is None or moved != sorted(moved):
        raise NoMatch("")
    return m["x"] if same_type(m["x"], m.result) else _outer(m, "view")


@rule("expand-expand", "expand(expand(x))", "expand(x)", EXACT, "broadcasting twice is broadcasting once", T)
def expand_expand(m: Match) -> ir.Value:
    """An expansion of an expansion is one expansion."""
    return _outer(m, "expand")


@rule("squeeze-unsqueeze", "squeeze(unsqueeze(x, a), b)", "x  (a = b)", EXACT, "the new dimension goes", T)
def squeeze_unsqueeze(m: Match) -> ir.Value:
    """`squeeze` of the dim that `unsqueeze` made is the operand."""
    sizes = sizes_of(m["x"])
    a, b = m.const("a"), m.const("b")
    if sizes is None or a % (len(sizes) + 1) != b % (len(sizes) + 1):
        raise NoMatch("")
    return m.like_root(m["x"])


@rule("flip-flip", "flip(flip(x, a), b)", "x  (a = b)", EXACT, "reversed twice", T)
def flip_flip(m: Match) -> ir.Value:
    """Reversing the same dims twice is the operand."""
    rank = len(sizes_of(m["x"]) or ())
    if sorted(d % rank for d in m.const("a")) != sorted(d % rank for d in m.const("b")):
        raise NoMatch("other dimensions are reversed")
    return m.like_root(m["x"])


# -- permutations


def _permutation(m: Match, value: ir.Value) -> list[int]:
    """``p`` such that dimension i of the transposed tensor is dimension p[i] of its operand."""
    op = defining_op(value)
    assert op is not None
    rank = len(sizes_of(op.operands[0]) or ())
    order = list(range(rank))
    name = op_name(op)
    if name == "torch.aten.t":
        return order[::-1]
    if name == "torch.aten.permute":
        return [d % rank for d in m.const_of(op.operands[1], "the order of dimensions")]
    if not rank:
        return []  # 0 and -1 are dims of a tensor without any
    a, b = (m.const_of(op.operands[k], "a dimension") % rank for k in (1, 2))
    order[a], order[b] = order[b], order[a]
    return order


def _permuted(m: Match, order: Sequence[int]) -> ir.Value:
    if list(order) == list(range(len(order))):
        return m.like_root(m["x"])
    return m.build("permute", m["x"], m.ints(order))


def _identity(m: Match) -> ir.Value:
    order = _permutation(m, m.result)
    if order != list(range(len(order))):
        raise NoMatch("")
    return m.like_root(m["x"])


def _composed(m: Match) -> ir.Value:
    inner = _permutation(m, m.operand(0))
    return _permuted(m, [inner[d] for d in _permutation(m, m.result)])


_NAMES = ("t", "transpose", "permute")
for _name in _NAMES:
    rule(f"{_name}-nothing", f"{_name}(x)", "x  (order kept)", EXACT, "no dimension moves", T)(_identity)
    for _inner in _NAMES:
        _why = "the orders compose; to nothing where they undo each other"
        rule(f"{_name}-{_inner}", f"{_name}({_inner}(x))", "permute(x) or x", EXACT, _why, T)(_composed)
