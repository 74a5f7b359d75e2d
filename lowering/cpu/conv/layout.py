# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where the elements of a packed weight lie: what the kernels make in scratch, and read in place if it is there."""

from torch_mlir import ir

from kiln.dialects.schedules.cpu import (
    AmxConvSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    GemmConvSchedule,
    PlanarConvSchedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
)
from kiln.lowering.cpu.conv.depthwise import depthwise_layout
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import tiles_weight_layout


def packed_layout(p: ConvProblem, schedule: ConvSchedule, rank: int) -> tuple[ir.AffineMap, int]:
    """Map from the index of a weight of rank 3 to 5 to the element's offset, and how many elements there are.

    direct: [group][block][kd][kh][c][kw][lanes of a block], pairs: [group][block][kd][kh][c / 2][kw][lanes][2],
    column_pairs: [group][block][kd][kh][c][kw / 2][lanes][2], depthwise: [kd][kh][kw][channels], tiles: as in
    tiles_plan.py; lanes that are no channel are padding, whose value does not matter as long as it is finite. planar,
    product: row-major. Of a transposed convolution's weight the dims are [C, O / groups, ...].
    """
    dims = [ir.AffineDimExpr.get(i) for i in range(rank)]
    o, c, kw = dims[0], dims[1], dims[-1]
    kh: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    # A window of one element may be that of a problem with fewer dims.
    for i, dim in enumerate(dims[2:-1]):
        kh = kh * p.lines[i].kernel + dim if i and p.window_rows > 1 else dim
    rows, columns = p.window_rows, p.kernel[1]
    if isinstance(schedule, AmxConvSchedule):
        return tiles_weight_layout(p, schedule, rank)
    if isinstance(schedule, (PlanarConvSchedule, GemmConvSchedule)):  # read as they are
        address = ((o * p.channels + c) * rows + kh) * columns + kw
        return ir.AffineMap.get(rank, 0, [address]), p.groups * p.outputs * p.steps
    if isinstance(schedule, DepthwiseConvSchedule):
        stride = depthwise_layout(p, schedule)["stride"]
        return ir.AffineMap.get(rank, 0, [(kh * columns + kw) * stride + o]), rows * columns * stride
    assert isinstance(schedule, DirectConvSchedule), "the others are above"
    lanes = schedule.nv * schedule.width
    blocks = -(-p.outputs // lanes)
    if p.transposed:
        group, inner, c = ir.AffineExpr.get_floor_div(o, p.channels), c, ir.AffineExpr.get_mod(o, p.channels)
    else:
        group, inner = ir.AffineExpr.get_floor_div(o, p.outputs), ir.AffineExpr.get_mod(o, p.outputs)
    block = group * blocks + ir.AffineExpr.get_floor_div(inner, lanes)
    if isinstance(schedule, VnniBf16ColumnsConvSchedule):
        pair = (kh * p.channels + c) * (columns // 2) + ir.AffineExpr.get_floor_div(kw, 2)
        address = (block * (p.steps // 2) + pair) * lanes + ir.AffineExpr.get_mod(inner, lanes)
        address = address * 2 + ir.AffineExpr.get_mod(kw, 2)
        return ir.AffineMap.get(rank, 0, [address]), p.groups * blocks * p.steps * lanes
    if isinstance(schedule, VnniBf16ConvSchedule):
        pair = (kh * (p.channels // 2) + ir.AffineExpr.get_floor_div(c, 2)) * columns + kw
        address = (block * (p.steps // 2) + pair) * lanes + ir.AffineExpr.get_mod(inner, lanes)
        address = address * 2 + ir.AffineExpr.get_mod(c, 2)
        return ir.AffineMap.get(rank, 0, [address]), p.groups * blocks * p.steps * lanes
    address = (block * p.steps + (kh * p.channels + c) * columns + kw) * lanes + ir.AffineExpr.get_mod(inner, lanes)
    return ir.AffineMap.get(rank, 0, [address]), p.groups * blocks * p.steps * lanes
