# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Splitting of a flat leading dim: ``[B * S, N]`` as ``[B, S, N]`` for an op and for what it reads.

PyTorch runs a linear layer on ``[B, S, K]`` as a flattening view, a matrix product and a view back. Working on the
split dims instead makes the product's neighbours (bias, activation, residual) share its shape, so no view stands
between them and fusion needs no index arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul

from torch_mlir import ir

from kiln.dialects import affine
from kiln.passes.views.function_views import Expr, FunctionViews, View, divisions

__all__ = ["Split", "find_split", "merged", "split_of_user", "split_view"]


@dataclass(frozen=True)
class Split:
    """Dim 0 of size ``prod(sizes)`` seen as one dim for each of ``sizes``, outermost first."""

    sizes: tuple[Expr, ...]

    @property
    def count(self) -> int:
        """Number of dims that dim 0 becomes."""
        return len(self.sizes)

    def flat(self) -> Expr:
        """Dim 0 as an expression over the split dims."""
        total = ir.AffineExpr.get_constant(0)
        for k, size in enumerate(self.sizes):
            total = total * size + ir.AffineExpr.get_dim(k)
        return total

    def dims(self, rank: int) -> list[Expr]:
        """Each dim of a tensor of ``rank`` over the dims after the split."""
        return [self.flat(), *(ir.AffineExpr.get_dim(self.count + k) for k in range(rank - 1))]


def find_split(views: FunctionViews, view: View) -> Split | None:
    """How a view's dim 0 was flattened: the source dims that depend on it alone, if they make up its size.

    Source dims of size 1 at their left count too, so that ``[1, S, K]`` flattened to ``[S, K]`` splits back.
    """
    source = views.sizes(view.source)
    sizes: list[Expr] = []
    found = 0
    for index, size in zip(view.indices, source, strict=True):
        dims = affine.dims_in(index)
        if dims == {0}:
            sizes.append(size)
            found += 1
        elif not dims and affine.constant_of(size) == 1:
            sizes.append(size)
        elif 0 in dims:
            return None
    if len(sizes) < 2 or not found:
        return None
    if not affine.equal(_product(sizes), view.sizes[0]):
        return None
    # Longer runs of unit dims than the source has before its other dims would only move them around.
    return Split(tuple(sizes)) if len(source) == len(sizes) + len(view.sizes) - 1 else None


def split_of_user(view: View, size: Expr) -> Split | None:
    """How a view splits dim 0, of ``size``, of its source: into its own leading dims, row-major, the others staying
    last. A view of the first rows alone is at the same index, but no split.
    """
    trailing = len(view.indices) - 1
    leading = len(view.sizes) - trailing
    if leading < 2 or any(d < leading for e in view.indices[1:] for d in affine.dims_in(e)):
        return None
    split = Split(view.sizes[:leading])
    if not affine.equal(_product(split.sizes), size):
        return None
    return split if affine.equal(split.flat(), view.indices[0], view.sizes) else None


def _product(sizes: Sequence[Expr]) -> Expr:
    return reduce(mul, sizes, ir.AffineExpr.get_constant(1))


def split_view(view: View, split: Split) -> View | None:
    """The same elements with dim 0 split; None if that leaves more index arithmetic than there was."""
    sizes = (*split.sizes, *view.sizes[1:])
    dims = split.dims(len(view.sizes))
    indices = tuple(affine.simplify(affine.substitute(e, dims), sizes) for e in view.indices)
    before = divisions(view.indices)
    after = divisions(indices)
    return View(view.source, indices, sizes) if after == 0 or after < before else None


def merged(value: ir.Value, split: Split, sizes: Sequence[Expr]) -> View:
    """``value``, which has split dims, as the flat tensor of ``sizes`` that it stands for."""
    rest: Expr = ir.AffineExpr.get_dim(0)
    inner: list[Expr] = []
    for size in reversed(split.sizes[1:]):
        inner.append(ir.AffineExpr.get_mod(rest, size))
        rest = ir.AffineExpr.get_floor_div(rest, size)
    leading = [rest, *reversed(inner)]
    trailing = [ir.AffineExpr.get_dim(k) for k in range(1, len(sizes))]
    indices = tuple(affine.simplify(e, list(sizes)) for e in [*leading, *trailing])
    return View(value, indices, tuple(sizes))
