# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Reshapes as index maps, against numpy's reshape."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_mlir import ir

from kiln.passes.torch_to_kiln.reshape import reshape_map, same_size

Expr = ir.AffineExpr


def evaluate(expr: Expr, dims: Sequence[int], symbols: Sequence[int]) -> int:
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position]
    assert isinstance(expr, ir.AffineBinaryExpr)
    lhs, rhs = evaluate(expr.lhs, dims, symbols), evaluate(expr.rhs, dims, symbols)
    if isinstance(expr, ir.AffineAddExpr):
        return lhs + rhs
    if isinstance(expr, ir.AffineMulExpr):
        return lhs * rhs
    return lhs % rhs if isinstance(expr, ir.AffineModExpr) else lhs // rhs


def check(src: Sequence[Expr], dst: Sequence[Expr], symbols: Sequence[int] = ()) -> str:
    found = reshape_map(src, dst, len(symbols))
    sizes = [evaluate(e, (), symbols) for e in src]
    data = np.arange(int(np.prod(sizes))).reshape(sizes)
    result = data.reshape([evaluate(e, (), symbols) for e in dst])
    for index in np.ndindex(*result.shape):
        assert data[tuple(evaluate(e, index, symbols) for e in found.results)] == result[index]
    return str(found)


def constants(*sizes: int) -> list[Expr]:
    return [Expr.get_constant(size) for size in sizes]


@pytest.mark.parametrize(
    ("src", "dst", "text"),
    [
        ((2, 3, 4), (6, 4), "(d0, d1) -> (d0 floordiv 3, d0 mod 3, d1)"),
        ((6, 4), (2, 3, 4), "(d0, d1, d2) -> (d0 * 3 + d1, d2)"),
        ((6, 4), (3, 8), "(d0, d1) -> (d0 * 2 + d1 floordiv 4, d1 mod 4)"),
        ((2, 1, 3), (2, 3), "(d0, d1) -> (d0, 0, d1)"),
        ((), (1, 1), "(d0, d1) -> ()"),
        ((0, 3), (3, 0), "(d0, d1) -> (0, 0)"),
    ],
)
def test_static(src: tuple[int, ...], dst: tuple[int, ...], text: str, context: ir.Context) -> None:
    assert check(constants(*src), constants(*dst)) == text


def test_symbolic(context: ir.Context) -> None:
    s, t = Expr.get_symbol(0), Expr.get_symbol(1)
    k: Callable[[int], Expr] = Expr.get_constant
    assert check([s, t, k(16)], [t * s, k(2), k(8)], (2, 3)) == (
        "(d0, d1, d2)[s0, s1] -> (d0 floordiv s1, d0 mod s1, d1 * 8 + d2)"
    )
    assert check([s * t, k(16)], [t, s, k(16)], (2, 3)) == "(d0, d1, d2)[s0, s1] -> (d0 * s0 + d1, d2)"
    assert check([s + 1, k(3)], [s * 3 + 3], (4,)) == "(d0)[s0] -> (d0 floordiv 3, d0 mod 3)"
    # The sizes agree by a guard alone: s0 is even.
    check([k(4), s, k(16)], [k(8), Expr.get_floor_div(s, k(2)) * 16], (6,))


def test_same_size(context: ir.Context) -> None:
    s, t = Expr.get_symbol(0), Expr.get_symbol(1)
    assert same_size((s + 1) * t, t * s + t)
    assert not same_size(s * t, s + t)


def _factors(draw: st.DrawFn, number: int) -> list[int]:
    out = []
    while number > 1:
        factor = draw(st.sampled_from([d for d in range(1, number + 1) if number % d == 0]))
        out.append(factor)
        number //= factor
    return out


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    number = draw(st.sampled_from([1, 2, 12, 24, 36, 48, 64]))
    return _factors(draw, number), _factors(draw, number)


@settings(max_examples=60)
@given(shapes())
def test_random_shapes(pair: tuple[list[int], list[int]]) -> None:
    with ir.Context():
        check(constants(*pair[0]), constants(*pair[1]))
