# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of max poolings as pointwise ops: each element of an image looks up the windows that cover it.

ATen's kernels add each window's gradient to the element that its maximum was at, in memory that was cleared, with
positions of 64 bits. With the offset of each maximum in its window (`pooling_offsets.py`), an element's gradient is the
sum of those of its windows whose offset names it: at most 2 x 2 windows for a kernel of 3 and a stride of 2. What
follows can be in the same kernel.
"""

from math import prod
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from kiln.frontend.graph_ops import call, cast_to, size_of, value_of
from kiln.lowering import paths

__all__ = ["OFFSETS", "gather_gradients"]

aten = torch.ops.aten

OFFSETS = "kiln_offsets"
"""Key in the `meta` of a pooling's gradient: the name of the node with the offsets of the maxima in their windows."""

_TAKEN = paths.group("any pooling-gradients", "gathered", "left to ATen")

_SPATIAL = {
    aten.max_pool2d_with_indices_backward.default: 2,
    aten.max_pool3d_with_indices_backward.default: 3,
}
_MOST_WINDOWS = 9
"""Windows that cover one element: each is a load of a gradient and one of an offset."""


def gather_gradients(backward: GraphModule) -> int:
    """Rewrite, in place, gradients of poolings whose offsets the graph has; returns how many."""
    names = {n.name: n for n in backward.graph.nodes}
    changed = 0
    for gradient in [n for op in _SPATIAL for n in backward.graph.find_nodes(op="call_function", target=op)]:
        offsets = names.get(gradient.meta.get(OFFSETS, ""))
        windows = _Windows(gradient) if offsets is not None and _has_known_sizes(gradient, offsets) else None
        if offsets is None or windows is None or not windows.are_few:
            _TAKEN("left to ATen")
            continue
        _TAKEN("gathered")
        with backward.graph.inserting_before(gradient):
            found = windows.gathered(offsets)
        found.meta["val"] = gradient.meta["val"]
        gradient.replace_all_uses_with(found)
        backward.graph.erase_node(gradient)
        changed += 1
    if changed:
        backward.graph.eliminate_dead_code()
        backward.recompile()
    return changed


def _has_known_sizes(gradient: Node, offsets: Node) -> bool:
    values = (value_of(gradient), value_of(offsets))
    return all(isinstance(n, int) and n > 0 for value in values for n in value.shape)


class _Windows:
    """The windows of a pooling, per spatial dim: elements of one, of its step, of the padding, and how many of them
    cover an element. Sizes are known.
    """

    def __init__(self, gradient: Node) -> None:
        self.graph, self.count = gradient.graph, _SPATIAL[cast(Any, gradient.target)]
        given = [self._list(n) for n in cast(Any, gradient.args[2:6])]
        self.kernel, self.stride, self.padding, self.dilation = given
        self.stride = self.stride or self.kernel
        self.covering = [-(-k // s) for k, s in zip(self.kernel, self.stride, strict=True)]
        self.made, self.value = cast(Node, gradient.args[0]), value_of(gradient)
        self.mode = cast(FakeTensor, self.value).fake_mode

    @property
    def are_few(self) -> bool:
        """Whether few windows cover an element, which lie side by side."""
        return prod(self.covering) <= _MOST_WINDOWS and set(self.dilation) == {1}

    def gathered(self, offsets: Node) -> Node:
        """The image's gradient."""
        dtype = self.value.dtype
        wide = torch.float32 if dtype.itemsize < 4 else dtype  # what ATen adds up in
        gradients, offsets = self._padded(self.made, 0), self._padded(offsets, -1)
        found: Node | None = None
        for which in range(prod(self.covering)):
            behind = self._behind(which)
            place = self._op(aten.eq.Tensor, self._spread(offsets, behind), self._offset(behind))
            spread = cast_to(self.graph, self._spread(gradients, behind), wide)
            zero = self._op(aten.scalar_tensor.default, 0.0, dtype=wide, device=self.value.device)
            mine = self._op(aten.where.self, place, spread, zero)
            found = mine if found is None else self._op(aten.add.Tensor, found, mine)
        assert found is not None
        return cast_to(self.graph, found, dtype)

    def _list(self, given: Any) -> list[int]:
        numbers = [given] if isinstance(given, int) else list(given)
        return numbers * self.count if len(numbers) == 1 else numbers

    def _behind(self, which: int) -> list[int]:
        """How many windows before the last that covers an element one is, per dim."""
        found: list[int] = []
        for n in reversed(self.covering):
            found.insert(0, which % n)
            which //= n
        return found

    def _reach(self, dim: int) -> tuple[int, int]:
        """The last window that covers the first element of the image, and that which would cover the last one."""
        size, padding, step = self.value.shape[dim - self.count], self.padding[dim], self.stride[dim]
        return padding // step, (size - 1 + padding) // step

    def _padded(self, x: Node, filling: float) -> Node:
        """A tensor with one element per window, with windows in front of and behind the image's."""
        amounts: list[Argument] = []
        for dim in reversed(range(self.count)):
            first, last = self._reach(dim)
            windows = value_of(x).shape[dim - self.count]
            amounts += [max(0, self.covering[dim] - 1 - first), max(0, last + 1 - windows)]
        return self._op(aten.constant_pad_nd.default, x, amounts, filling) if any(amounts) else x

    def _spread(self, x: Node, behind: list[int]) -> Node:
        """For each element of the image what a padded tensor has for one of its windows."""
        rank = value_of(x).dim()
        for dim, step in enumerate(self.stride):
            first, last = self._reach(dim)
            start = first - behind[dim] + max(0, self.covering[dim] - 1 - first)
            at = rank - self.count + dim
            x = self._slice(x, at, start, last - first + 1)
            if step > 1:
                shape = [size_of(self.graph, x, d) for d in range(rank)]
                repeated = self._op(aten.unsqueeze.default, x, at + 1)
                repeated = self._op(aten.expand.default, repeated, [*shape[: at + 1], step, *shape[at + 1 :]])
                whole: list[Argument] = [*shape[:at], (last - first + 1) * step, *shape[at + 1 :]]
                x = self._op(aten.reshape.default, repeated, whole)
            x = self._slice(x, at, self.padding[dim] - first * step, self.value.shape[dim - self.count])
        return x

    def _slice(self, x: Node, dim: int, start: int, size: int) -> Node:
        if value_of(x).shape[dim] == size:
            return x
        return self._op(aten.slice.Tensor, x, dim, start, start + size)

    def _offset(self, behind: list[int]) -> Node:
        """The offset of each element in one of its windows, as a tensor that is broadcast; -2 where there is none."""
        found: Node | None = None
        for dim, (kernel, step) in enumerate(zip(self.kernel, self.stride, strict=True)):
            size = self.value.shape[dim - self.count]
            place = self._op(aten.arange.default, size, dtype=torch.int32, device=self.value.device)
            place = self._op(aten.add.Scalar, place, self.padding[dim])
            place = self._op(aten.remainder.Scalar, place, step)
            place = self._op(aten.add.Scalar, place, behind[dim] * step)
            if kernel % step:  # not every element has as many windows
                is_there = self._op(aten.lt.Scalar, place, kernel)
                nothing = self._op(
                    aten.scalar_tensor.default, -2 * prod(self.kernel), dtype=torch.int32, device=self.value.device
                )
                place = self._op(aten.where.self, is_there, place, nothing)
            place = self._op(aten.view.default, place, [size, *[1] * (self.count - dim - 1)])
            found = place if found is None else self._op(
                aten.add.Tensor, self._op(aten.mul.Scalar, found, kernel), place
            )  # fmt: skip
        assert found is not None
        return found

    def _op(self, target: Any, *args: Argument, **named: Argument) -> Node:
        return call(self.graph, target, *args, **named, mode=self.mode)
