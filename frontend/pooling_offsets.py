# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Positions of maxima that gradients of poolings read, kept as 8-bit offsets in the window.

ATen's max pooling gives the flat position of each maximum in the image, in 64 bits. Kept for the gradient, positions
take four times the memory of a 16-bit result. Where in its window a maximum lies fits 8 bits, and gives the position
again: by pointwise ops of the joint graph, of which the partitioner keeps the smaller tensor.

On a GPU, offsets of small windows are found with the maxima, by pointwise ops on the image, shifted by each offset, as
Kiln's kernels have no reduction there that carries a position along: of 64 bf16 images of 64 x 112 x 112, ATen's kernel
and offsets from its positions take 222 us and 42 (H100). Elsewhere offsets are computed from positions.
"""

from collections.abc import Sequence
from itertools import product
from math import inf, prod
from operator import getitem, mul
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import Argument
from torch.utils.checkpoint import CheckpointPolicy

from kiln.frontend.graph_ops import call, cast_to, size_of, value_of
from kiln.frontend.pooling_gradients import OFFSETS
from kiln.lowering import paths

__all__ = ["find_maxima", "has_poolings", "keep_offsets"]

aten = torch.ops.aten

_TAKEN = paths.group("any pooling-offsets", "images", "volumes")
_ON_GPU = paths.group("gpu pooling-offsets", "found with the maxima", "from positions")

_SPATIAL = {aten.max_pool2d_with_indices.default: 2, aten.max_pool3d_with_indices.default: 3}
_GRADIENTS = (aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
_MOST_OFFSETS = 128
"""Of an int8 that are not negative."""
_MOST_ROWS = 16
"""Of a window: the row of a position is found by as many comparisons."""
_MOST_SHIFTS = 27
"""Elements of a window for which the image is read once each: 3 x 3 x 3. It bounds the code; not measured."""


def has_poolings(graph: GraphModule) -> bool:
    """Whether `keep_offsets` or `find_maxima` may find anything."""
    return any(graph.graph.find_nodes(op="call_function", target=op) for op in _SPATIAL)


def keep_offsets(joint: GraphModule, is_for_gpu: bool) -> int:
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
            offsets = _find(window, pooling) if is_for_gpu else None
            with joint.graph.inserting_before(positions.next):
                found = offsets or window.offsets(positions)
                again = window.positions(found, value_of(positions).dtype)
            for gradient in gradients:
                gradient.replace_input_with(positions, again)
                gradient.meta[OFFSETS] = found.name
            if offsets is not None:
                positions.replace_all_uses_with(again)
            changed += len(gradients)
    if changed:
        joint.graph.eliminate_dead_code()
        joint.recompile()
    return changed


def find_maxima(graph: GraphModule) -> int:
    """Write out, in place, poolings of a GPU's graph without gradients whose positions are read; returns how many."""
    changed = 0
    for pooling in [n for op in _SPATIAL for n in graph.graph.find_nodes(op="call_function", target=op)]:
        window = _Window(pooling)
        for positions in [n for n in pooling.users if n.target is getitem and n.args[1] == 1 and n.users]:
            offsets = _find(window, pooling) if window.is_small else None
            if offsets is not None:
                with graph.graph.inserting_before(positions.next):
                    positions.replace_all_uses_with(window.positions(offsets, value_of(positions).dtype))
                changed += 1
    if changed:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return changed


def _find(window: "_Window", pooling: Node) -> Node | None:
    """The offsets by ops on the image, which also give the pooling's result; None where ATen is to find them."""
    if not window.is_of_few_shifts:
        _ON_GPU("from positions")
        return None
    with pooling.graph.inserting_before(pooling.next):
        maxima, offsets = window.found()
    result = pooling.meta["val"][0]
    if value_of(maxima).stride() != result.stride() or value_of(offsets).stride() != result.stride():
        _ON_GPU("from positions")
        pooling.graph.eliminate_dead_code()
        return None
    _ON_GPU("found with the maxima")
    for values in [n for n in pooling.users if n.target is getitem and n.args[1] == 0]:
        values.replace_all_uses_with(maxima)
    for node in (maxima, offsets):
        # To find them again costs as many loads as the window has elements, wherever they are read.
        node.meta["recompute"] = pooling.meta.get("recompute", CheckpointPolicy.MUST_SAVE)
    return offsets


class _Window:
    """A pooling's window: sizes per spatial dim, in elements."""

    def __init__(self, pooling: Node) -> None:
        self.pooling = pooling
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

    @property
    def is_of_few_shifts(self) -> bool:
        """Whether maxima are found by ops on the image, shifted by each offset: sizes are known."""
        value = value_of(self.image)
        sizes = (*value.shape[-self.count :], *self._windows())
        known = all(isinstance(n, int) and n > 0 for n in sizes)
        return known and prod(self.kernel) <= _MOST_SHIFTS and value.dtype.is_floating_point

    def found(self) -> tuple[Node, Node]:
        """The maxima, and where in its window each lies, int8: as ATen finds them, the first of equal ones and the last
        NaN.
        """
        shifts = [self._shifted(image, at) for image in [self._padded()] for at in product(*map(range, self.kernel))]
        maxima, offsets = shifts[0], self._first_offsets(shifts[0])
        if len(shifts) == 1:  # a pooling's result is no view of its image
            maxima = self._op(aten.clone.default, maxima)
        for offset, shifted in enumerate(shifts[1:], 1):
            is_larger = self._op(aten.gt.Tensor, shifted, maxima)
            is_new = self._op(aten.logical_or.default, is_larger, self._op(aten.ne.Tensor, shifted, shifted))
            maxima = self._op(aten.where.self, is_new, shifted, maxima)
            offsets = self._op(aten.where.ScalarSelf, is_new, offset, offsets)
        return maxima, offsets

    def _windows(self) -> list[int]:
        """How many windows there are, per spatial dim."""
        return list(self.pooling.meta["val"][0].shape[-self.count :])

    def _padded(self) -> Node:
        """The image with borders of -inf, as far as windows go."""
        borders: list[int] = []
        sizes = value_of(self.image).shape[-self.count :]
        for size, n, k, s, p, d in zip(
            sizes, self._windows(), self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            borders[:0] = [p, max(0, (n - 1) * s + (k - 1) * d + 1 - size - p)]
        return self._op(aten.constant_pad_nd.default, self.image, borders, -inf) if any(borders) else self.image

    def _shifted(self, image: Node, at: Sequence[int]) -> Node:
        """One element of each window, the same of all."""
        for dim, (k, n, s, d) in enumerate(zip(at, self._windows(), self.stride, self.dilation, strict=True)):
            image = self._op(aten.slice.Tensor, image, dim - self.count, k * d, k * d + (n - 1) * s + 1, s)
        return image

    def _first_offsets(self, like: Node) -> Node:
        """The first element of each window that is not in the border, where ATen starts, int8."""
        found = self._op(aten.full_like.default, like, 0, dtype=torch.int8)
        for dim, (p, s, d) in enumerate(zip(self.padding, self.stride, self.dilation, strict=True)):
            if p:
                start = self._op(
                    aten.arange.default, self._windows()[dim], dtype=torch.int32, device=value_of(like).device
                )
                before = self._op(
                    aten.clamp_min.default, self._op(aten.add.Scalar, self._times(start, -s), p + d - 1), 0
                )
                first = self._times(self._whole(before, d), prod(self.kernel[dim + 1 :]))
                shape = [-1, *[1] * (self.count - dim - 1)]
                found = self._op(
                    aten.add.Tensor, found, cast_to(self.graph, self._op(aten.view.default, first, shape), torch.int8)
                )
        return found

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
