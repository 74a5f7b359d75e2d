# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which operands of a kernel would be read in an order of its own, if they were constants."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.schedules import PartsSchedule, Schedule
from kiln.dialects.schedules.cpu import ConvSchedule, GemmSchedule, PanelSchedule, PhasesSchedule
from kiln.lowering.cpu.tile.conv import find_conv, packed_weight_layout
from kiln.lowering.cpu.tile.phases import find_phases
from kiln.lowering.cpu.tile.product import packed_rhs_layout
from kiln.lowering.cpu.tile.rows_schedule import find_products
from kiln.lowering.tile.body import FusionBody

__all__ = ["packed_operands"]


def packed_operands(
    body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: Schedule
) -> list[tuple[int, ir.AffineMap, int]]:
    """(position among the fusion's tensors, layout, number of elements) of each.

    They are the weights of convolutions, and the rhs of products whose schedule says that it is packed.
    """
    parts = body.parts()
    if len(parts) > 1:
        if not isinstance(schedule, PartsSchedule):
            return []
        pairs = zip(parts, schedule.parts, strict=True)
        return [x for part, s in pairs if s is not None for x in packed_operands(part, layouts, s)]
    if isinstance(schedule, ConvSchedule):
        return [(find_conv(body, layouts).weight, *packed_weight_layout(body, layouts, schedule))]
    if not isinstance(schedule, (GemmSchedule, PhasesSchedule)):
        return []
    products = find_products(find_phases(body), layouts)
    schedules = schedule.products if isinstance(schedule, PhasesSchedule) else [schedule]
    pairs = zip(products, schedules, strict=True)
    packed = ((product, s) for product, s in pairs if isinstance(s, PanelSchedule) and s.packed)
    return [(product.rhs, *packed_rhs_layout(product, s)) for product, s in packed]
