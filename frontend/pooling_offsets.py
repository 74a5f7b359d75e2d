# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Positions of maxima that gradients of poolings read, kept as 8-bit offsets in the window.

ATen's max pooling gives the flat position of each maximum in the image, in 64 bits. Kept for the gradient, positions
take four times the memory of a 16-bit result. Where in its window a maximum lies fits 8 bits, and gives the position
again. Both are pointwise ops of the joint graph: the partitioner keeps the smaller tensor.
"""

from math import prod
from operator import getitem, mul
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from kiln.frontend.graph_ops import call, cast_to, size_of, value_of
from kiln.frontend.pooling_gradients import OFFSETS
from kiln.lowering import paths

__all__ = ["keep_offsets"]

aten = torch.ops.aten

_TAKEN = paths.group("any pooling-offsets", "images", "volumes")

_SPATIAL = {aten.max_pool2d_with_indices.default: 2, aten.max_pool3d_with_indices.default: 3}
_GRADIENTS = (aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
_MOST_OFFSETS = 128
"""Of an int8 that are not negative."""
_MOST_ROWS = 16
"""Of a window: the row of a position is found by as many comparisons."""


def keep_offsets(joint: GraphModule) -> int:
    """Give gradients of max poolings positions that are computed from offsets, in place; returns how many.

    Every position lies in its window: each window covers an element of the image, and ATen starts with the first.
    """
    changed = 0
    for pooling in [n for op in _SPATIAL for n in joint.graph.find_nodes(op="call_function", target=op)]:
        window = _Window(pooling)
        for positions in [n for n in pooling.users if n.target is getitem and n.args[1] == 1]:
            gradients = [n for n in positions.users if n.target in _GRADIENTS]
            if not gradients or not window.is_small:
                continue
            _TAKEN("volumes" if window.count == 3 else "images")
            with joint.graph.inserting_before(positions.next):
                offsets = window.offsets(positions)
                again = window.positions(offsets, value_of(positions).dtype)
            for gradient in gradients:
                gradient.replace_input_with(positions, again)
                gradient.meta[OFFSETS] = offsets.name
            changed += len(gradients)
    if changed:
        joint.recompile()
    return changed


class _Window:
    """A pooling's window: sizes per spatial dim, in elements."""

    def __init__(self, pooling: Node) -> None:
        self.graph, self.count = pooling.graph, _SPATIAL[cast(Any, pooling.target)]
        given: list[Any] = [*pooling.args[1:5], *[()] * (5 - len(pooling.args))]
        self.kernel = self._list(given[0], [])
        self.stride = self._list(given[1], self.kernel)
        self.padding = self._list(given[2], [0] * self.count)
        self.dilation = self._list(given[3], [1] * self.count)
        self.image = cast(Node, pooling.args[0])
        self.mode = cast(FakeTensor, value_of(self.image)).fake_mode

    @property
    def is_small(self) -> bool:
        """Whether offsets fit, and are found by a few comparisons."""
        return prod(self.kernel) <= _MOST_OFFSETS and max(self.kernel[:-1]) <= _MOST_ROWS

    def offsets(self, positions: Node) -> Node:
        """Where in its window each position lies, int8, row by row."""
        dtype, found = self._dtype(), None
        rest = cast_to(self.graph, positions, dtype)
        for dim, distance in enumerate(self._distances()):
            start = self._start(positions, dim, dtype)
            if dim == self.count - 1:
                row = self._whole(self._op(aten.sub.Tensor, rest, start), self.dilation[dim])
            else:
                row = self._row(rest, start, dim, distance)
                place = self._op(aten.add.Tensor, self._times(row, self.dilation[dim]), start)
                rest = self._op(aten.sub.Tensor, rest, self._times(place, distance))
            found = row if found is None else self._op(aten.add.Tensor, self._times(found, self.kernel[dim]), row)
        return cast_to(self.graph, cast(Node, found), torch.int8)

    def positions(self, offsets: Node, dtype: torch.dtype) -> Node:
        """The positions in the image that offsets stand for."""
        rest, found = cast_to(self.graph, offsets, self._dtype()), None
        for dim, distance in enumerate(self._distances()):
            behind = prod(self.kernel[dim + 1 :])
            row = self._whole(rest, behind)
            rest = self._op(aten.sub.Tensor, rest, self._times(row, behind))
            start = self._start(offsets, dim, value_of(row).dtype)
            place = self._times(self._op(aten.add.Tensor, self._times(row, self.dilation[dim]), start), distance)
            found = place if found is None else self._op(aten.add.Tensor, found, place)
        return cast_to(self.graph, cast(Node, found), dtype)

    def _list(self, given: Any, default: list[int]) -> list[int]:
        """PyTorch takes one number for all dims, and none for the default."""
        numbers = [given] if isinstance(given, int) else list(given)
        return (numbers * self.count if len(numbers) == 1 else numbers) or default

    def _dtype(self) -> torch.dtype:
        """In which positions are computed: 32 bits are cheaper on GPUs."""
        sizes = value_of(self.image).shape[-self.count :]
        is_small = all(isinstance(n, int) for n in sizes) and prod(sizes) <= torch.iinfo(torch.int32).max // 2
        return torch.int32 if is_small else torch.int64

    def _row(self, rest: Node, start: Node, dim: int, distance: Argument) -> Node:
        """How many rows of the window, but for the first, start at or before a position."""
        row: Node | None = None
        for k in range(1, self.kernel[dim]):
            at = self._times(self._op(aten.add.Scalar, start, k * self.dilation[dim]), distance)
            is_behind = cast_to(self.graph, self._op(aten.ge.Tensor, rest, at), value_of(rest).dtype)
            row = is_behind if row is None else self._op(aten.add.Tensor, row, is_behind)
        return self._times(rest, 0) if row is None else row

    def _start(self, positions: Node, dim: int, dtype: torch.dtype) -> Node:
        """Where windows start in the image along a dim, negative in the padding; as a tensor that is broadcast."""
        value = value_of(positions)
        windows = size_of(self.graph, positions, dim - self.count)
        start = self._op(aten.arange.default, windows, dtype=dtype, device=value.device)
        if dim < self.count - 1:
            start = self._op(aten.view.default, start, [-1, *[1] * (self.count - dim - 1)])
        start = self._times(start, self.stride[dim])
        return self._op(aten.sub.Scalar, start, self.padding[dim]) if self.padding[dim] else start

    def _distances(self) -> list[Argument]:
        """How far neighbours along each spatial dim are apart in the image."""
        found: list[Argument] = [1]
        for dim in range(1, self.count):
            size, last = size_of(self.graph, self.image, -dim), found[0]
            found.insert(0, self._op(mul, last, size) if isinstance(last, Node) else self._scaled(size, last))
        return found

    def _scaled(self, size: Argument, factor: Argument) -> Argument:
        if isinstance(size, Node):
            return size if factor == 1 else self._op(mul, size, factor)
        return cast(int, size) * cast(int, factor)

    def _times(self, x: Node, factor: Argument) -> Node:
        if isinstance(factor, Node):
            return self._op(aten.mul.Tensor, x, factor)
        return x if factor == 1 else self._op(aten.mul.Scalar, x, factor)

    def _whole(self, x: Node, divisor: int) -> Node:
        """A quotient of numbers that are not negative."""
        return x if divisor == 1 else self._op(aten.div.Scalar_mode, x, divisor, rounding_mode="trunc")

    def _op(self, target: Any, *args: Argument, **named: Argument) -> Node:
        return call(self.graph, target, *args, **named, mode=self.mode)
