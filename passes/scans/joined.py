# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a scan in log steps is a reshape of, which gradients save in place of it.

The last step joins the elements at even positions and those at odd ones along a dim of two. Of an odd number of
elements the latter are padded by one, which is cut off behind the reshape.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op

__all__ = ["Joined", "joined_of"]


@dataclass
class Joined:
    """The op that joins. padding: the scalar behind the last element, of an odd number."""

    op: ir.Operation
    padding: ir.Value | None

    def of(self, scan: ir.Value, dim: int, shapes: SymbolicShapes) -> ir.Value:
        """What the op gives, as a view of the scan along `dim`."""
        pair = ir.IntegerAttr(self.op.attributes["dim"]).value
        sizes = list(shapes.dims(self.op.results[0]))
        if self.padding is not None:
            one = [int(k == dim) for k in range(ir.RankedTensorType(scan.type).rank)]
            padded = [n + more for n, more in zip(shapes.dims(scan), one, strict=True)]
            (padded,), symbols = shapes.pack((0, padded))
            scan = kiln.pad(scan, self.padding, [0] * len(one), one, padded, symbols)
        dims: list[ir.AffineExpr] = [ir.AffineDimExpr.get(k) for k in range(len(sizes))]
        second = dims.pop(pair)
        dims[dim] = dims[dim] * 2 + second
        (map_, shape), symbols = shapes.pack((len(sizes), dims), (0, sizes))
        return kiln.view(scan, map_, shape, symbols)


def joined_of(root: ir.Value, dim: int, shapes: SymbolicShapes) -> Joined | None:
    """What `root`, a scan along `dim`, is a reshape of, or the start of one."""
    view = _view_of(root)
    joined = _maker(view)
    if view is not None and joined is not None and joined.name == "kiln.view":
        if not _is_start(view):
            return None
        view, joined = joined, _maker(joined)
    if view is None or joined is None or kiln.name_of(joined) != "kiln.cat" or not _is_in_order(view, joined):
        return None
    pair = ir.IntegerAttr(joined.attributes["dim"]).value
    sizes, whole = shapes.dims(root), list(shapes.dims(joined.results[0]))
    if affine.constant_of(whole.pop(pair)) != 2:
        return None
    whole[dim] = whole[dim] * 2
    if _are_equal(whole, sizes):
        return Joined(joined, None)
    is_one_less = _are_equal(whole, [n + int(k == dim) for k, n in enumerate(sizes)])
    padding = _padding(joined.operands[1], dim, pair) if is_one_less else None
    return None if padding is None else Joined(joined, padding)


def _are_equal(sizes: Sequence[ir.AffineExpr], others: Sequence[ir.AffineExpr]) -> bool:
    return len(sizes) == len(others) and all(affine.equal(a, b) for a, b in zip(sizes, others, strict=True))


def _view_of(value: ir.Value) -> ir.Operation | None:
    op = defining_op(value)
    return op if op is not None and op.name == "kiln.view" else None


def _maker(op: ir.Operation | None) -> ir.Operation | None:
    return None if op is None else defining_op(op.operands[0])


def _is_start(view: ir.Operation) -> bool:
    """Whether a view has the first elements along each dim."""
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    return list(map_.results) == [ir.AffineDimExpr.get(k) for k in range(map_.n_dims)]


def _is_in_order(view: ir.Operation, joined: ir.Operation) -> bool:
    """Whether a reshape without the dim of two leaves the dims as they are."""
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    read, two = list(map_.results), ir.AffineConstantExpr.get(2)
    del read[ir.IntegerAttr(joined.attributes["dim"]).value]
    dims = [ir.AffineDimExpr.get(k) for k in range(map_.n_dims)]
    return len(read) == len(dims) and all(
        x in (d, ir.AffineFloorDivExpr.get(d, two)) for x, d in zip(read, dims, strict=True)
    )


def _padding(value: ir.Value, dim: int, pair: int) -> ir.Value | None:
    """The scalar that is added behind the last element along `dim`, before the dim of two is; None where it is not."""
    view = _view_of(value)
    op = _maker(view)
    if view is None or op is None or op.name != "kiln.pad":
        return None
    map_ = ir.AffineMapAttr(view.attributes["map"]).value
    dims = [ir.AffineDimExpr.get(k) for k in range(map_.n_dims) if k != pair]
    low, high = (
        [affine.constant_of(x) for x in ir.AffineMapAttr(op.attributes[name]).value.results] for name in ("low", "high")
    )
    is_one_behind = low == [0] * len(low) and high == [int(k == dim) for k in range(len(high))]
    return op.operands[1] if is_one_behind and list(map_.results) == dims else None
