# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of bf16 by tiles (AMX): when they can be had, how their sums are ordered, what lies where in scratch.

The sum for one position of the result runs over *taps*, and in each of them over *blocks* of 32 elements, what a row of
a tile holds (`Depth`):

* "channels": a tap is an element of the window, its elements are the input's channels;
* "columns": for few channels. A tap is a row of the window, its elements are channels by columns of the window, for an
  image with neighbouring columns; each channel has a multiple of 8 columns, those beyond the window zero;
* "windows": the same, columns by channels, for an image with neighbouring channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kiln.dialects.schedules.cpu import AmxConvSchedule, Order
from kiln.lowering.considered import cheapest
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.rules import ConvolutionRules
from kiln.lowering.cpu.sizes import even_part, round_up

__all__ = ["BLOCK", "ROWS", "Copy", "choose_tiles", "copy_of", "depth_of", "fits_tiles", "is_flat", "takes_tiles"]

BLOCK = amx.AMX_BF16.depth
"""Elements of bf16 in a row of a tile."""
ROWS = amx.ROWS
"""Rows of a tile: pixels, or outputs."""

_LONGEST_ROW = 16  # columns of a window whose elements lie in one tap
_TAPS = 25  # written out
_LARGEST = 2048  # columns of the result


@dataclass(frozen=True)
class Depth:
    """The order of a sum: for each of the `taps` (row and first column of the window) `blocks` of 32 elements.

    span: elements of a channel in "columns".
    """

    order: Order
    taps: tuple[tuple[int, int], ...]
    blocks: int
    span: int = 0

    @property
    def elements(self) -> int:
        """Elements of the packed weight for one output."""
        return len(self.taps) * self.blocks * BLOCK


def depth_of(p: ConvProblem, order: Order) -> Depth:
    """The order of sums of a problem; see the file."""
    rows, columns, channels = p.row.kernel, p.column.kernel, p.channels
    if order == "channels":
        taps = tuple((y, z) for y in range(rows) for z in range(columns))
        return Depth(order, taps, -(-channels // BLOCK))
    taps = tuple((y, 0) for y in range(rows))
    if order == "columns":
        span = round_up(columns, 8) if columns <= 8 else 16
        return Depth(order, taps, -(-channels * span // BLOCK), span)
    return Depth(order, taps, -(-channels * columns // BLOCK))


def _order(p: ConvProblem, rules: ConvolutionRules) -> Order:
    """How the elements of a sum are best ordered."""
    few = p.channels <= rules.few_channels and p.groups == 1
    few = few and 1 < p.column.kernel <= _LONGEST_ROW and p.column.dilation == 1
    if few and p.column.x_stride == 1:
        return "columns"
    if few and p.x_strides[1] == 1 and p.column.x_stride == p.channels:
        return "windows"
    return "channels"


def takes_tiles(p: ConvProblem, cpu: Isa) -> bool:
    """Whether a convolution is one that the kernel of tiles takes, on a CPU that has them, and does well."""
    if p.dtype != "bf16" or p.transposed or p.depthwise or len(p.axes) > 2 or not amx.has_amx("bf16", cpu):
        return False
    if 1 not in (p.x_strides[1], p.column.x_stride) and not (is_flat(p) and p.x_strides[1] == 1):
        return False
    rules = cpu.rules.convolutions
    order = _order(p, rules)
    if len(depth_of(p, order).taps) > _TAPS:
        return False
    sizes = isinstance(p.column.results, int) and isinstance(p.column.size, int) and 0 < p.column.results <= _LARGEST
    if not is_flat(p) and not (sizes and _unit_bytes(p, order, 1, in_place=False) <= rules.copy_bytes):
        return False
    return fits_tiles(p.groups, p.channels, p.outputs, [axis.kernel for axis in p.axes], rules)


def fits_tiles(groups: int, channels: int, outputs: int, window: Sequence[int], rules: ConvolutionRules) -> bool:
    """Whether products of these sizes, channels and outputs of a group, are worth tiles."""
    if groups > 1 and min(channels, outputs) < rules.tiles_group:
        return False
    taps = window[0] if channels <= rules.few_channels and len(window) > 1 else prod(window)
    return outputs >= 8 and channels * prod(window) >= BLOCK // 2 and taps <= _TAPS


def is_flat(p: ConvProblem) -> bool:
    """Whether pixels can be taken as one line, whatever their number: a window of one element, and one row."""
    return p.row.results == 1 and p.is_pointwise


def choose_tiles(p: ConvProblem, isa: Isa) -> AmxConvSchedule:
    """The schedule: of a line all pixels are a chunk, and packed weights serve all units that are copied together."""
    rules = isa.rules.convolutions
    order, columns, width = _order(p, rules), p.column.results, ROWS
    nv = 2 if p.outputs > width else 1
    in_place = is_flat(p) and p.channels % BLOCK == 0 and p.x_strides[1] == 1
    in_place = in_place and isinstance(columns, int) and columns >= ROWS
    budget = int(rules.copy_share * isa.l2_bytes)
    if is_flat(p):
        rows = chunk = rules.chunk_pixels
        if isinstance(columns, int):  # even parts
            rows = chunk = round_up(even_part(columns, rules.chunk_pixels), ROWS)
        lines: Size = columns
    else:
        one = copy_of(p, order)
        pitch, extra = one.pitch, one.extra
        rows = max(1, rules.unit_pixels // pitch, rules.halo_rows * (one.rows - 1))
        while rows > 1 and _unit_bytes(p, order, rows, in_place) > budget:
            rows -= 1
        if isinstance(p.row.results, int):
            rows = even_part(p.row.results, rows)

        def cost(r: int) -> float:
            """Of a row's products, where r rows are a chunk: a tile alone takes longer than one of two."""
            pairs, odd = divmod(-(-(r * pitch - extra) // ROWS), 2)
            return (2 * pairs + rules.odd_tile_time * odd) / r

        heights = range(1, min(rows, max(1, rules.chunk_pixels // pitch)) + 1)
        chunk = cheapest("rows of a chunk", "tiles a row", heights, lambda r: (cost(r), -r))
        lines = p.row.results
    units = max(1, budget // _unit_bytes(p, order, rows, in_place))
    known = -(-lines // rows) * p.images if isinstance(lines, int) and isinstance(p.images, int) else None
    blocks = p.groups * -(-p.outputs // (nv * width))
    if known is not None:
        units = min(units, max(known, 1))
    share = "units" if known is None or known >= blocks else "blocks"
    return AmxConvSchedule(
        width=width, nv=nv, order=order, rows=rows, chunk=chunk, units=units, share=share, in_place=in_place
    )


@dataclass(frozen=True)
class Copy:
    """The copy in scratch of what a unit of work reads of the image; tiles_image.py makes it.

    phases: (row, column) modulo the strides of the pixels of the padded image that some tap reads. A phase has `rows`
    rows of `pitch` positions of 32 elements, `extra` of which are beyond the result's columns.
    """

    depth: Depth
    phases: tuple[tuple[int, int], ...]
    rows: int
    pitch: int
    extra: int

    @property
    def phase(self) -> int:
        """Elements of a phase of one plane."""
        return self.rows * self.pitch * BLOCK

    @property
    def plane(self) -> int:
        """Elements of all phases, for one block of the sum."""
        return len(self.phases) * self.phase

    @property
    def size(self) -> int:
        """Elements of the copy: the last tile may end beyond the last pixel, and so may what is turned."""
        return self.plane * self.depth.blocks + 2 * ROWS * BLOCK


def copy_of(p: ConvProblem, order: Order, rows: int = 1) -> Copy:
    """The copy for `rows` rows of the result (pixels, where they are a line)."""
    depth, row, column = depth_of(p, order), p.row, p.column
    if is_flat(p):
        return Copy(depth, ((0, 0),), 1, rows, 0)
    assert isinstance(column.results, int)
    step = column.dilation if order == "channels" else 0  # in the other orders, columns are the result's
    extra = (column.kernel - 1) * step // column.stride
    phases = tuple(dict.fromkeys((y * row.dilation % row.stride, z * step % column.stride) for y, z in depth.taps))
    halo = (row.kernel - 1) * row.dilation // row.stride
    return Copy(depth, phases, rows + halo, column.results + extra, extra)


def _unit_bytes(p: ConvProblem, order: Order, rows: int, in_place: bool) -> int:
    return 2 * rows * p.channels if in_place else 2 * copy_of(p, order, rows).size
