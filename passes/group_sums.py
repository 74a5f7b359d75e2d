# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums and squared distances of groups of channels, found for `group_statistics.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.dialects.walk import defining_op
from kiln.lowering.host.channels_last import is_made_channels_last
from kiln.lowering.tile.body import indexing_maps, reduction_dims
from kiln.passes.partial_reductions import projection
from kiln.passes.views.images import is_of_channels_last

__all__ = ["GroupSum", "Statistics", "find_distances", "find_group_sum"]


@dataclass(frozen=True)
class GroupSum:
    """The sum over groups of channels of an image `[N, G, C, *spatial]`, of the sizes ``extents``, in parts of ``rows``
    rows. by_channel: each channel's parts are put together first.
    """

    image: ir.Value
    extents: tuple[int, ...]
    rows: int
    by_channel: bool

    @property
    def elements(self) -> int:
        """Of a channel of a part."""
        return self.rows * prod(self.extents[4:])

    @property
    def pixels(self) -> int:
        """Elements of a channel."""
        return prod(self.extents[3:])

    @property
    def parts(self) -> list[int]:
        """Sizes of a tensor with an element for each channel of each part."""
        images, groups, channels, height, *_ = self.extents
        return [images, height // self.rows, groups, channels]


@dataclass
class Statistics:
    """What a sum has been split into. means: of each channel of each part, and (`by_channel`) of each channel; wide:
    for numbers of groups `[N, G]` the same numbers for each of their channels `[N, G, C]`.
    """

    of: GroupSum
    group: ir.Value
    part_means: ir.Value
    means: ir.Value | None
    wide: dict[ir.Value, ir.Value]


def find_group_sum(
    op: ir.OpView, extents: Sequence[int], limit: float, part_bytes: int, *, by_channel: bool, planes: bool = False
) -> GroupSum | None:
    """What `op`, a reduction, sums up if it is such a sum, of less channels than `limit`; parts have at most
    `part_bytes`, and a row at least.

    planes: of an image with its channels apart, too.
    """
    rank = len(extents)
    element = ir.RankedTensorType(op.results[0].type).element_type
    if rank < 5 or tuple(reduction_dims(op)) != tuple(range(2, rank)) or not isinstance(element, ir.F32Type):
        return None
    every = ir.AffineMap.get_identity(rank)
    if len(op.operands) != 2 or indexing_maps(op)[0] != every or not _is_sum(op, squared=False):
        return None
    is_known = list(ir.RankedTensorType(op.operands[0].type).shape) == list(extents)
    if not is_known or 0 in extents:
        return None
    are_neighbours = is_of_channels_last(op.operands[0])
    if not are_neighbours:
        fits = planes and _has_distances(op)
    else:
        fits = extents[2] < limit and _has_groups_of_neighbours(op.operands[0])
    if not fits:
        return None
    together = (1, 2) if are_neighbours else ()
    height, row = extents[3], 4 * prod(extents[d] for d in (*together, *range(4, rank)))
    most = max(1, part_bytes // row)
    rows = next(n for n in range(min(most, height), 0, -1) if height % n == 0)
    return GroupSum(op.operands[0], tuple(extents), rows, by_channel)


def find_distances(op: ir.OpView, known: Sequence[Statistics]) -> tuple[Statistics, ir.Value] | None:
    """What was split, and the means of its groups, if `op` sums up the squared distances of its image from these."""
    distances = _distances(op)
    found = None if distances is None else next((s for s in known if s.of.image == distances[0]), None)
    if distances is None or found is None:
        return None
    return (found, distances[1]) if _is_mean(distances[1], found) else None


def _distances(op: ir.OpView) -> tuple[ir.Value, ir.Value] | None:
    """The image and the means of its groups whose squared distances `op` sums up: what another op subtracted, or its
    own body does.
    """
    reduced = tuple(reduction_dims(op)) if name_of(op) == "linalg.generic" else ()
    maps = indexing_maps(op) if reduced else []
    rank = maps[0].n_dims if maps else 0
    if not reduced or reduced != tuple(range(2, rank)):
        return None
    every, group = ir.AffineMap.get_identity(rank), projection(rank, (0, 1))
    block = op.regions[0].blocks[0]
    if maps == [every, group, group]:
        x, mean, total = block.arguments
        distance = _summed_square(block, total)
        is_distance = distance is not None and _subtracts(defining_op(distance), x, mean)
        return (op.operands[0], op.operands[1]) if is_distance else None
    below = defining_op(op.operands[0])
    if maps != [every, group] or not _is_sum(op, squared=True) or below is None or name_of(below) != "linalg.generic":
        return None
    inner = below.regions[0].blocks[0]
    if indexing_maps(below.opview) != [every, group, every]:
        return None
    is_distance = _subtracts(defining_op(list(inner.operations)[-1].operands[0]), *list(inner.arguments)[:2])
    return (below.operands[0], below.operands[1]) if is_distance else None


def _has_distances(op: ir.OpView) -> bool:
    """Whether squared distances of the image of a sum are summed up, too: it would be read twice."""
    image = op.operands[0]
    readers = [use.owner for use in image.uses]
    readers += [use.owner for reader in readers for v in reader.operation.results for use in v.uses]
    found = (_distances(reader) for reader in readers)
    return any(distances is not None and distances[0] == image for distances in found)


def _has_groups_of_neighbours(value: ir.Value) -> bool:
    """Whether a value is a view `[N, G, C, *spatial]` of an image `[N, G * C, *spatial]` with channels last."""
    view = defining_op(value)
    if view is None or name_of(view) != "kiln.view":
        return False
    walked = ir.AffineMapAttr(view.attributes["map"]).value
    shape = ir.RankedTensorType(view.results[0].type).shape
    n, g, c, *spatial = (ir.AffineDimExpr.get(d) for d in range(walked.n_dims))
    wanted = [n, g * shape[2] + c, *spatial]
    if len(wanted) != len(walked.results) or walked.n_symbols or not is_made_channels_last(view.operands[0]):
        return False
    return all(affine.equal(e, f, shape) for e, f in zip(walked.results, wanted, strict=True))


def _is_sum(op: ir.OpView, *, squared: bool) -> bool:
    """Whether a body adds its one input, or its square, to what it has."""
    block = op.regions[0].blocks[0]
    x, total = block.arguments
    found = _summed_square(block, total) if squared else _summed(block, total)
    return found is not None and found == x


def _summed(block: ir.Block, total: ir.Value) -> ir.Value | None:
    """What a body adds to `total`, which it gives back; None if it does something else."""
    add = defining_op(list(block.operations)[-1].operands[0])
    if add is None or add.name != "arith.addf" or total not in list(add.operands):
        return None
    return next((v for v in add.operands if v != total), total)


def _summed_square(block: ir.Block, total: ir.Value) -> ir.Value | None:
    """What a body squares and adds to `total`."""
    term = _summed(block, total)
    square = None if term is None else defining_op(term)
    is_square = square is not None and square.name == "arith.mulf" and square.operands[0] == square.operands[1]
    return square.operands[0] if square is not None and is_square else None


def _subtracts(op: ir.Operation | None, x: ir.Value, y: ir.Value) -> bool:
    return op is not None and op.name == "arith.subf" and list(op.operands) == [x, y]


def _is_mean(value: ir.Value, found: Statistics) -> bool:
    """Whether a value is a group's sum over the number of its elements."""
    op = defining_op(value)
    if op is None or name_of(op) != "linalg.generic" or len(op.operands) != 2 or op.operands[0] != found.group:
        return False
    body = op.regions[0].blocks[0]
    quotient = defining_op(list(body.operations)[-1].operands[0])
    if quotient is None or quotient.name != "arith.divf" or quotient.operands[0] != body.arguments[0]:
        return False
    number = defining_op(quotient.operands[1])
    if number is None or number.name != "arith.constant":
        return False
    return ir.FloatAttr(number.attributes["value"]).value == float(prod(found.of.extents[2:]))
