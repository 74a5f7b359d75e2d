# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolution kernel, with which tiles."""

from math import prod

from kiln.dialects.schedules.cpu import (
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    PlanarConvSchedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
)
from kiln.lowering.considered import cheapest
from kiln.lowering.cpu.bf16 import has_pairs
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.product import choose_product
from kiln.lowering.cpu.conv.tiles_plan import choose_tiles, takes_tiles
from kiln.lowering.cpu.conv.window import find_phases, tile_runs
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.blocks import panel_vectors
from kiln.lowering.cpu.sizes import even_part

_PIECE = 256  # products summed from zero before they are added to the sum of the others
_CODE = 1024  # multiply-adds written out for all tiles of a row; above, borders go pixel by pixel
_COLUMNS = 28  # of the result, where they are not known


def choose_conv_schedule(p: ConvProblem, isa: Isa) -> ConvSchedule:
    """The schedule; sizes that are no ints count as unknown."""
    width, rules = isa.vector_bytes // p.sum_bytes, isa.rules.convolutions
    if p.depthwise and p.planar and p.column.x_stride == 1:
        vectors = -(-p.column.results // width) if isinstance(p.column.results, int) else 4
        planes = p.images * p.groups if isinstance(p.images, int) else p.groups
        rows = p.row.results if isinstance(p.row.results, int) and len(p.axes) == 2 else 64
        span = max(1, rows // max(1, rules.tasks // max(1, planes)))
        return PlanarConvSchedule(nv=max(1, min(4, vectors)), width=width, span=span)
    if p.depthwise:
        return _depthwise(p, width, rules.tasks)
    product = choose_product(p, isa)
    if product is not None:
        return product
    if takes_tiles(p, isa):
        return choose_tiles(p, isa)
    mr, nv = _tile(p, width, isa)
    phases = p.column.stride if p.transposed else 1
    tiles = max(1, rules.row_bytes // (mr * nv * width * p.sum_bytes * phases))
    if isinstance(p.column.results, int):
        row, lines = -(-p.column.results // (mr * phases)), _lines(p)
        # One tall row of pixels: parts that threads can share.
        parts = rules.tasks // max(1, lines) if lines is not None and lines < rules.tasks else 1
        tiles = max(1, min(tiles, row // parts))
    in_columns = takes_column_pairs(p, width, isa)
    kernel = VnniBf16ColumnsConvSchedule if in_columns else DirectConvSchedule
    kernel = VnniBf16ConvSchedule if takes_pairs(p, width, isa) else kernel
    return kernel(mr=mr, nv=nv, width=width, tiles=tiles, piece=_PIECE)


def takes_pairs(p: ConvProblem, width: int, cpu: Isa) -> bool:
    """Whether input channels come in pairs that a CPU multiplies at once (VDPBF16PS)."""
    return p.channels % 2 == 0 and p.x_strides[1] == 1 and has_pairs(p.dtype, width, cpu)


def takes_column_pairs(p: ConvProblem, width: int, cpu: Isa) -> bool:
    """Whether a CPU multiplies two columns of the window at once: neighbours in a row of the image, none of them
    padding. So are the windows of patches.
    """
    window = p.column.kernel % 2 == 0 and p.column.padding == 0 and p.column.dilation == 1 and not p.transposed
    return window and p.column.x_stride == 1 and has_pairs(p.dtype, width, cpu)


def _lines(p: ConvProblem) -> int | None:
    """Rows of the result, in all images, if they are known."""
    sizes = [p.images, *(axis.results for axis in p.lines)]
    known = [n for n in sizes if isinstance(n, int)]
    return prod(known) if len(known) == len(sizes) else None


def _depthwise(p: ConvProblem, width: int, tasks: int) -> DepthwiseConvSchedule:
    mr = even_part(p.column.results, 8) if isinstance(p.column.results, int) else 8
    span = -(-p.groups // width) * width
    lines = _lines(p)
    if lines is not None and lines < tasks:
        parts = -(-tasks // max(1, lines))
        span = max(width, -(-p.groups // parts // width) * width)
    return DepthwiseConvSchedule(mr=mr, width=width, span=span)


def _tile(p: ConvProblem, width: int, isa: Isa) -> tuple[int, int]:
    """The register tile: vectors of output channels by padding, then the pixels with the least time for a row.

    A tile takes the time of a few products at least: their latency. With all registers full of sums, the weights of a
    window's row of columns spill. More than 8 pixels a power of two apart evict each other.
    """
    many, rules = isa.vector_registers >= 32, isa.rules.convolutions
    phases = p.column.stride if p.transposed else 1
    sums = (24 if many else 12) if p.column.kernel <= phases else 16 if many else 10
    nv = panel_vectors(p.outputs, width, rules.panel_times)
    columns = -(-p.column.results // phases) if isinstance(p.column.results, int) else _COLUMNS
    pixels = latency = rules.tile_pixels

    def cost(r: int) -> tuple[int, int]:
        whole, rest = divmod(columns, r)
        time = whole * max(r * nv, latency) + (max(rest * nv, latency) if rest else 0)
        return time, whole + (rest > 0)

    heights = range(1, min(sums // nv, pixels if nv > 1 else 2 * pixels) + 1)
    mr = cheapest("pixels of a register tile", "products of a row", heights, cost, lambda r: tile_fits(p, r, nv))
    return mr, nv


def tile_fits(p: ConvProblem, mr: int, nv: int) -> bool:
    """Whether the code of all kinds of tiles of a row is of a sensible size."""
    if mr == 1:
        return True
    rows = [tile_runs(p, phase, mr) for phase in find_phases(p)]
    if None in rows:
        return mr * nv * p.column.kernel <= _CODE
    return sum(high - low for row in rows for run in row or () for low, high in run.valid) * nv <= _CODE
