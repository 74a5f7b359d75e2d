# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides of a kernel's result with which a view of it has the strides that are asked for."""

import pytest
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.affine import constant_of
from kiln.lowering.host.layout import HostGraph, constant
from kiln.lowering.host.view_strides import strides_behind


def behind(shape: tuple[int, ...], viewed: tuple[int, ...], map_: str, wanted: tuple[int, ...]) -> list[int] | None:
    """Strides of a result of `shape` whose view by `map_`, of shape `viewed`, gets the strides `wanted`."""
    source, result = (f"tensor<{'x'.join(map(str, (*sizes, 'f32')))}>" for sizes in (shape, viewed))
    text = f"""
        func.func @main(%x: {source}) -> {result} {{
          %s = "kiln.fusion"(%x) ({{
          ^bb0(%a: {source}):
            "kiln.yield"(%a) : ({source}) -> ()
          }}) {{kind = "pointwise", name = "copy"}} : ({source}) -> {source}
          %v = "kiln.view"(%s) {{map = affine_map<{map_}>, shape = affine_map<() -> {viewed}>}} : ({source}) -> {result}
          return %v : {result}
        }}"""
    with create_context() as context:
        module = parse(text, context)
        graph = HostGraph(module.body.operations[0])
        fusion, view = list(graph.block)[:2]
        root, strides = fusion.results[0], tuple(constant(s) for s in wanted)
        found = strides_behind(graph, root, view.results[0], strides)
        assert strides_behind(graph, root, root, strides) == strides
        if found is not None:  # with them, the view has what was asked for
            graph.assign(root, found)
            layout = graph.layout(view.results[0])
            assert layout is not None and layout.same_strides(strides)
        return None if found is None else [number(s) for s in found]


def number(expr: ir.AffineExpr) -> int:
    found = constant_of(expr)
    assert found is not None
    return found


def test_of_a_permutation():
    assert behind((4, 8, 2), (2, 4, 8), "(d0, d1, d2) -> (d1, d2, d0)", (32, 8, 1)) == [8, 1, 32]


def test_of_joined_dims():
    split = "(d0, d1, d2) -> (d0, d1 floordiv 8, d1 mod 8, d2)"
    assert behind((2, 3, 8, 5), (2, 24, 5), split, (120, 5, 1)) == [120, 40, 5, 1]
    assert behind((2, 3, 8, 5), (2, 24, 5), split, (120, 1, 24)) == [120, 8, 1, 24]
    other = "(d0, d1, d2) -> (d0, d1 mod 3, d1 floordiv 3, d2)"
    assert behind((2, 3, 8, 5), (2, 24, 5), other, (120, 5, 1)) == [120, 5, 15, 1]


def test_of_a_dim_of_size_1():
    assert behind((4, 1, 3), (4, 3), "(d0, d1) -> (d0, 0, d1)", (1, 4)) == [1, 1, 4]


@pytest.mark.parametrize(
    "viewed, map_, wanted",
    [
        ((2, 16, 5), "(d0, d1, d2) -> (d0, d1 floordiv 8, d1 mod 8, d2)", (80, 1, 16)),  # a part of the result
        ((2, 3, 8, 5), "(d0, d1, d2, d3) -> (d0, d1, 7 - d2, d3)", (120, 40, 5, 1)),  # backwards
        ((2, 3, 8, 5), "(d0, d1, d2, d3) -> (d0, d1, d1 + d2, d3)", (120, 40, 5, 1)),  # of two indices together
    ],
)
def test_of_no_such_view(viewed: tuple[int, ...], map_: str, wanted: tuple[int, ...]):
    assert behind((2, 3, 8, 5), viewed, map_, wanted) is None
