# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of images enlarged by whole numbers, as sums over windows.

PyTorch takes interpolation apart into gathers at positions that it computes from the numbers of pixels; their gradients
add each number to an element of zeros, one atomic addition each on a GPU. Where positions are those of windows, as many
pixels to an element everywhere but at the edges, an element's gradient is the sum over its window, and what the edges
add. Positions are computed here once more, and only where no step of that rounds: no kernel can have others then.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.node import Argument, map_aggregate

from kiln.frontend.graph_ops import call, cast_to, size_of, value_of
from kiln.lowering import paths

__all__ = ["find_windows", "sum_windows"]

aten, prims = torch.ops.aten, torch.ops.prims

_TAKEN = paths.group("any enlarging-gradients", "windows", "other positions")

_PUTS = (aten._unsafe_index_put.default, aten.index_put.default)
_ZEROS = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)
_FROM_NUMBERS = frozenset({
    aten.arange.default, aten.arange.start, aten.arange.start_step, prims.iota.default, aten._to_copy.default,
    prims.convert_element_type.default, aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor,
    aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default, aten.view.default, aten.unsqueeze.default,
    aten.floor.default,
})  # fmt: skip
_MOST_PIXELS = 1 << 14
"""Of a dim whose positions are computed here."""
_MOST_EDGES = 4
"""Pixels that belong to no window of their element: each is a term of its own."""


@dataclass(frozen=True)
class _Windows:
    """Pixel ``o`` of those from ``first`` up to ``last`` belongs to element ``(o - shift) // step`` of ``size``; the
    ``edges`` are others, with their elements.
    """

    size: int
    step: int
    shift: int
    first: int
    last: int
    edges: tuple[tuple[int, int], ...]


def sum_windows(joint: GraphModule) -> int:
    """Rewrite, in place, gradients of gathers at positions of windows; returns how many."""
    changed = 0
    for put in [n for op in _PUTS for n in joint.graph.find_nodes(op="call_function", target=op)]:
        windows = _windows_of(put)
        if windows is None:
            continue
        with joint.graph.inserting_before(put):
            found = _summed(put, windows)
        found.meta["val"] = put.meta["val"]
        put.replace_all_uses_with(found)
        joint.graph.erase_node(put)
        changed += 1
    if changed:
        joint.graph.eliminate_dead_code()
        joint.recompile()
    return changed


def _windows_of(put: Node) -> list[_Windows] | None:
    """Of the last dims of zeros that `put` adds to, in their order; None where it does something else."""
    zeros, indices, values, accumulate = cast(Any, (*put.args, False))[:4]
    if accumulate is not True or not isinstance(zeros, Node) or zeros.target not in _ZEROS:
        return None
    into, added = value_of(zeros), value_of(values)
    given = [n for n in indices if n is not None]
    lead = into.dim() - len(given)
    known = all(isinstance(n, int) for n in (*into.shape[lead:], *added.shape[lead:]))
    if not given or len(indices) != into.dim() or any(n is not None for n in indices[:lead]) or not known:
        return None
    # By name: sizes that are symbols get no guard for this.
    is_whole = list(map(str, added.shape[:lead])) == list(map(str, into.shape[:lead]))  # values may be broadcast
    if added.dim() != into.dim() or not is_whole or not added.dtype.is_floating_point:
        return None
    found: list[_Windows | None] = []
    for k, node in enumerate(given):
        shape = value_of(node).shape
        alone = [1] * len(given)
        alone[k] = added.shape[lead + k]
        if [1] * (len(given) - len(shape)) + list(shape) != alone:
            return None
        positions = _positions(node)
        found.append(None if positions is None else find_windows(positions, into.shape[lead + k]))
    if any(w is None for w in found):
        _TAKEN("other positions")
        return None
    _TAKEN("windows")
    return cast(list[_Windows], found)


def _positions(node: Node) -> list[int] | None:
    """What `node` is if it is computed from the numbers of pixels, and no step of that rounds."""
    with unset_fake_temporarily():  # of AOTAutograd, in whose mode graphs are rewritten
        found = _computed(node, {})
        return None if found is None else cast(list[int], found[0].reshape(-1).tolist())


def _computed(node: Node, known: dict[Node, tuple[Tensor, Tensor] | None]) -> tuple[Tensor, Tensor] | None:
    """The values of a node as the graph has them and with floats of twice the width, if they are equal."""
    if node in known:
        return known[node]
    known[node] = None
    if node.op != "call_function" or node.target not in _FROM_NUMBERS or value_of(node).numel() > _MOST_PIXELS:
        return None
    operands = {n: _computed(n, known) for n in node.all_input_nodes}
    if any(v is None for v in operands.values()):
        return None

    def run(which: int) -> Tensor:
        def given(argument: Any) -> Any:
            if isinstance(argument, Node):
                return cast(tuple[Tensor, Tensor], operands[argument])[which]
            if isinstance(argument, torch.device):
                return torch.device("cpu")
            return torch.float64 if which and argument in (torch.float32, torch.float16, torch.bfloat16) else argument

        args = map_aggregate(node.args, given)
        named = map_aggregate(dict(node.kwargs), given)
        return cast(Any, node.target)(*cast(Any, args), **cast(Any, named))

    narrow, wide = run(0), run(1)
    known[node] = (narrow, wide) if torch.equal(narrow.double(), wide.double()) else None
    return known[node]


def find_windows(positions: Sequence[int], size: int) -> _Windows | None:
    """The windows if all pixels but few at the edges are in them: of each pixel its element, of `size` elements."""
    count = len(positions)
    step = count // size
    middle = next((o for o in range(count // 2, count) if o and positions[o] != positions[o - 1]), None)
    if step < 2 or step * size != count or middle is None:
        return None
    shift = middle - step * positions[middle]
    first = last = middle
    while first > 0 and (first - 1 - shift) // step == positions[first - 1]:
        first -= 1
    while last < count and (last - shift) // step == positions[last]:
        last += 1
    edges = tuple((o, positions[o]) for o in range(count) if not first <= o < last)
    is_inside = first >= shift and last <= shift + step * size and all(0 <= n < size for n in positions)
    return _Windows(size, step, shift, first, last, edges) if is_inside and len(edges) <= _MOST_EDGES else None


def _summed(put: Node, windows: Sequence[_Windows]) -> Node:
    values = cast(Node, put.args[2])
    graph, dtype = put.graph, value_of(values).dtype
    found = cast_to(graph, values, torch.float32 if dtype.itemsize < 4 else dtype)
    lead = value_of(values).dim() - len(windows)
    for k, w in enumerate(windows):
        found = _along(found, lead + k, w)
    return cast_to(graph, found, value_of(put).dtype)


def _along(x: Node, dim: int, w: _Windows) -> Node:
    graph = x.graph
    rank = value_of(x).dim()

    def padded(node: Node, low: int, high: int) -> Node:
        amounts: list[Argument] = [*[0, 0] * (rank - 1 - dim), low, high]
        return call(graph, aten.constant_pad_nd.default, node, amounts, 0.0) if low or high else node

    inner = call(graph, aten.slice.Tensor, x, dim, w.first, w.last)
    inner = padded(inner, w.first - w.shift, w.shift + w.step * w.size - w.last)
    shape: list[Argument] = [size_of(graph, inner, d) for d in range(rank)]  # those in front may be symbols
    inner = call(graph, aten.view.default, inner, [*shape[:dim], w.size, w.step, *shape[dim + 1 :]])
    found = call(graph, aten.sum.dim_IntList, inner, [dim + 1])
    for pixel, element in w.edges:
        edge = call(graph, aten.slice.Tensor, x, dim, pixel, pixel + 1)
        found = call(graph, aten.add.Tensor, found, padded(edge, element, w.size - 1 - element))
    return found
