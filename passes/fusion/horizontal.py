# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Horizontal fusion: kernels that do not depend on each other become the parts of one kernel."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.reach import Reach

MOST_PARTS = 8
"""Parts of one kernel: its code grows with each, and what they share fits into a cache or it does not."""


def fuse_products(grouping: Grouping) -> None:
    """Products of one lhs (query, key and value; gate and up) become one kernel.

    They walk the same rows of the lhs, which the first one brings into the cache, and one launch does for all.
    """
    reach = Reach(grouping)
    families: dict[tuple[object, ...], list[Group]] = {}
    for group in grouping.groups():
        if group.named is not None and group.named.name == "kiln.matmul":
            families.setdefault(_rows(grouping.graph, group.named), []).append(group)
    for family in families.values():
        fuse_parts(grouping, reach, family, "a product of the same matrix")


def _rows(graph: FusionGraph, product: ir.Operation) -> tuple[object, ...]:
    """What is equal for products whose rows are those of one matrix."""
    lhs = product.operands[0]
    source, index = graph.element_of(product, lhs)
    batch = graph.dims(product.results[0])[:-2]
    return source, index, graph.dims(lhs), str(product.attributes["transpose_lhs"]), batch


def fuse_parts(grouping: Grouping, reach: Reach, family: Sequence[Group], why: str) -> None:
    """Merge the groups of a family in order, as far as none depends on another."""
    rest = list(family)
    while len(rest) > 1:
        first, *others = rest
        rest = []
        for other in others:
            if len(first.all_parts) + len(other.all_parts) > MOST_PARTS or not reach.independent(first, other):
                rest.append(other)
                continue
            merged = grouping.merge(first, other)
            reach.merge(first, other, merged)
            op = other.named or other.ops[-1]
            grouping.decisions.append((op, f"fused into the kernel of {first.ops[-1].name}: {why}"))
            first = merged
