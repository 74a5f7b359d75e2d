# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simplification of affine expressions: known results, and equality on random points."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch_mlir import ir

from kiln.dialects import affine, create_context, polynomial

CONTEXT = create_context()


@pytest.fixture(autouse=True)
def _context():
    with CONTEXT:
        yield


def parse(text: str) -> ir.AffineExpr:
    """The expression over d0..d3 and s0..s3."""
    attribute = ir.Attribute.parse(f"affine_map<(d0, d1, d2, d3)[s0, s1, s2, s3] -> ({text})>")
    return ir.AffineMapAttr(attribute).value.results[0]


@pytest.mark.parametrize(
    ("text", "extents", "expected"),
    [
        ("(d0 floordiv 8) * 8 + d0 mod 8", {}, "d0"),
        ("d0 mod 8", {0: 8}, "d0"),
        ("d0 floordiv 8", {0: 8}, "0"),
        ("(d0 * 8 + d1) floordiv 8", {1: 8}, "d0"),
        ("(d0 * 8 + d1) mod 8", {1: 8}, "d1"),
        ("(d0 * 8 + d1) floordiv 8", {}, "d0 + d1 floordiv 8"),
        ("(d0 * 8 + d1) mod 8", {}, "d1 mod 8"),
        ("(d0 * s0 + d1) floordiv s0", {0: "s1", 1: "s0"}, "d0"),
        ("(d0 * s0 + d1) mod s0", {0: "s1", 1: "s0"}, "d1"),
        ("(d0 floordiv s0) * s0 + d0 mod s0", {}, "d0"),
        ("(d0 * 4 + d1) floordiv 8", {1: 4}, "d0 floordiv 2"),
        ("(d0 * 4 + d1) mod 8", {1: 4}, "d1 + (d0 mod 2) * 4"),
        ("(d0 floordiv 4) floordiv 3", {}, "d0 floordiv 12"),
        ("(d0 floordiv 12) * 12 + (d0 floordiv 4) mod 3 * 4 + d0 mod 4", {}, "d0"),
        ("(d0 mod 12) mod 4", {}, "d0 mod 4"),
        ("(d0 floordiv 2) mod 3 * 2 + d0 mod 2", {}, "d0 mod 6"),
        ("(d0 floordiv 2) mod 3 * 2 + d0 mod 2", {0: 6}, "d0"),
        ("((d0 floordiv s0) mod 3) * s0 + d0 mod s0", {}, "d0 mod (s0 * 3)"),
        ("((d0 * s0 + d1) * s1 + d2) floordiv (s0 * s1)", {1: "s0", 2: "s1"}, "d0"),
        ("((d0 * s0 + d1) * s1 + d2) mod (s0 * s1)", {1: "s0", 2: "s1"}, "d1 * s1 + d2"),
        ("(d0 * (s0 * 4) + d1 * 4 + d2) floordiv 4", {2: 4}, "d0 * s0 + d1"),
        ("(d0 * (s0 + 1) + d1) floordiv (s0 + 1)", {1: "s0 + 1"}, "d0"),
        ("((d0 * (s0 + 1) + d1) * 64 + d2) mod (s0 * 64 + 64)", {1: "s0 + 1", 2: 64}, "d1 * 64 + d2"),
        ("(d1 * 64 + d2) floordiv (s0 * 64 + 64)", {2: 64}, "d1 floordiv (s0 + 1)"),
        ("(((d0 * 12 + d1) * s0 + d2) * 64 + d3) floordiv (s0 * 768)", {1: 12, 2: "s0", 3: 64}, "d0"),
        ("(((d0 * 12 + d1) * s0 + d2) * 64 + d3) mod (s0 * 768) floordiv (s0 * 64)", {1: 12, 2: "s0", 3: 64}, "d1"),
        ("(((d0 * s0 + d1) * 768 + d2 * 64 + d3) mod 768) floordiv 64", {1: "s0", 2: 12, 3: 64}, "d2"),
        ("d0 + d1", {0: 1}, "d1"),
        ("s0 - s0 + 3 * s1 - s1", {}, "s1 * 2"),
        ("(s0 * 8) floordiv 4", {}, "s0 * 2"),
        ("d0 mod 4", {}, "d0 mod 4"),
        ("(d0 - 1) mod 4", {0: 4}, "(d0 + 3) mod 4"),
        ("(d0 + 4) mod 8", {0: 4}, "d0 + 4"),
        ("((d0 + 68) mod 70 + 65) mod 70", {0: 70}, "(d0 + 63) mod 70"),
        ("((d0 + s0 - 3) mod s0 + s0 - 2) mod s0", {0: "s0"}, "(d0 - 5) mod s0"),
        ("((d0 + (d1 + 41) floordiv 70) mod 27) * 70 + (d1 + 41) mod 70", {}, "(d0 * 70 + d1 + 41) mod 1890"),
    ],
)
def test_known(text: str, extents: dict[int, int | str], expected: str) -> None:
    known = {d: e if isinstance(e, int) else parse(e) for d, e in extents.items()}
    assert str(affine.simplify(parse(text), known)) == expected


_LEAVES = st.sampled_from(["d0", "d1", "d2", "s0", "s1", "1", "2", "3", "5", "12"])
_DIVISORS = st.sampled_from(
    ["2", "3", "4", "6", "12", "s0", "s1", "(s0 * 2)", "(s0 * s1)", "(s0 + 1)", "(s0 * 2 + s1 + 2)"]
)


def _nodes(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(children, st.sampled_from(["+", "-"]), children).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(children, _DIVISORS).map(lambda t: f"({t[0]} * {t[1]})"),
        st.tuples(children, st.sampled_from(["floordiv", "mod", "ceildiv"]), _DIVISORS).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
    )


_EXTENTS = st.sampled_from([1, 2, 3, 4, 6, 12, "s0", "s1", "s0 * s1", "s0 * 2", "s0 + 1"])


@settings(max_examples=400)
@given(
    st.recursive(_LEAVES, _nodes, max_leaves=8),
    st.dictionaries(st.sampled_from([0, 1, 2]), _EXTENTS),
    st.lists(st.integers(0, 6), min_size=2, max_size=2),
    st.data(),
)
def test_simplify_keeps_values(text, extents, symbols, data) -> None:
    with CONTEXT:
        expr = parse(text)
        known = {d: e if isinstance(e, int) else parse(e) for d, e in extents.items()}
        simple = affine.simplify(expr, known)
        linear = affine.linear_coefficients(expr)
        for _ in range(4):
            dims = []
            for d in range(3):
                bound = extents.get(d)
                size = 40 if bound is None else bound
                if isinstance(size, str):
                    size = affine.evaluate(parse(size), [], symbols)
                assume(size >= 1)
                dims.append(data.draw(st.integers(0 if bound is not None else -40, size - 1)))
            try:
                expected = affine.evaluate(expr, dims, symbols)
            except ZeroDivisionError:
                assume(False)
            assert affine.evaluate(simple, dims, symbols) == expected, (str(expr), str(simple), dims, symbols)
            if linear is not None:
                value = affine.evaluate(linear[0], dims, symbols)
                value += sum(affine.evaluate(c, dims, symbols) * dims[d] for d, c in linear[1].items())
                assert value == expected


def test_linear_coefficients() -> None:
    constant, coefficients = affine.linear_coefficients(parse("d0 * s0 * 4 + d2 + s1 + d2 * 3 + 7"))
    assert str(constant) == "s1 + 7"
    assert {d: str(c) for d, c in coefficients.items()} == {0: "s0 * 4", 2: "4"}
    assert affine.linear_coefficients(parse("d0 floordiv 2")) is None
    assert not affine.is_linear(parse("d0 mod s0 + d1"))


def test_compose_reshape_chain() -> None:
    # [4, 6, 8] -> [24, 8] -> [4, 6, 8] is the identity.
    flat = ir.AffineMapAttr(ir.Attribute.parse("affine_map<(d0, d1) -> (d0 floordiv 6, d0 mod 6, d1)>")).value
    back = ir.AffineMapAttr(ir.Attribute.parse("affine_map<(d0, d1, d2) -> (d0 * 6 + d1, d2)>")).value
    assert affine.compose(flat, back, [4, 6, 8]) == ir.AffineMap.get_identity(3)


@pytest.mark.parametrize("text", ["(d0 mod 0) + d1", "d0 floordiv 0 + (d0 mod 0) mod 7", "(d0 floordiv 0) mod 3"])
def test_divisors_below_one_are_kept(text):
    """The layouts of empty tensors divide by their sizes; nothing evaluates them, but they are simplified."""
    with create_context():
        expr = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<(d0, d1) -> ({text})>")).value.results[0]
        simple = affine.simplify(expr.maybe_downcast(), [4, 5])
        assert affine.dims_in(simple) == affine.dims_in(expr.maybe_downcast())


def test_a_remainder_by_products_of_sums_ends() -> None:
    """The windows of a convolution whose image and kernel are of unknown sizes; the division went on for ever."""
    blocks = "((s0 * s0 * (s1 + s2 + 3) + s0 * s1 * s2 + 127) floordiv 128 - s0 * s0 * (s1 + s2))"
    expr = parse(f"(d0 + (d1 mod {blocks}) * 128) floordiv ((s1 - s0 + 1) * (s2 - s0 + 3))")
    simple = affine.simplify(expr)
    point = [5, 7], [1, 8, 8, 0]
    assert affine.evaluate(simple, *point) == affine.evaluate(expr, *point)


_ATOMS = st.sampled_from(
    [("d", 0), ("d", 1), ("s", 0), ("s", 1), ("f", polynomial.atom(("d", 0)), polynomial.const(4))]
)
_POLYNOMIALS = st.dictionaries(
    st.lists(_ATOMS, max_size=3).map(lambda atoms: tuple(sorted(atoms))), st.integers(-9, 9).filter(bool), min_size=1
).map(lambda terms: tuple(sorted(terms.items())))


@given(_POLYNOMIALS, _POLYNOMIALS)
def test_exact_division(p, k) -> None:
    assert polynomial.divide_exact(polynomial.mul(p, k), k) == p
    quotient = polynomial.divide_exact(p, k)
    assert quotient is None or polynomial.mul(quotient, k) == p
