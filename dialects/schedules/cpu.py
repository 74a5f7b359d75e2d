# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules of CPU kernels: register tiles, blocks for the caches, and what is packed.

Sizes are elements. In all of them: `mr` rows by `nv` vectors of `width` elements (or `nr` columns) are a register tile;
`mc` rows by `nc` columns are a block of sums; `kc` steps of k are summed in one go.
"""

from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from kiln.dialects.schedules.base import InvalidSchedule, Natural, Positive, PowerOfTwo, Schedule

__all__ = [
    "AmxBf16Schedule",
    "AmxBf16x3Schedule",
    "AmxConvSchedule",
    "AmxFlashSchedule",
    "AmxInt8Schedule",
    "AttentionSchedule",
    "BlockedSchedule",
    "ByRowsSchedule",
    "ConvSchedule",
    "DepthwiseConvSchedule",
    "DirectConvSchedule",
    "DotSchedule",
    "DotTileSchedule",
    "FlashSchedule",
    "GemmConvSchedule",
    "GemmSchedule",
    "Int8DotSchedule",
    "Int8Schedule",
    "Order",
    "PanelSchedule",
    "PhasesSchedule",
    "PlanarConvSchedule",
    "Split",
    "VendorSchedule",
    "VnniBf16ColumnsConvSchedule",
    "VnniBf16ConvSchedule",
    "VnniBf16Schedule",
]

# ----------------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True, kw_only=True)
class GemmSchedule(Schedule):
    """Of one product of matrices."""


@dataclass(frozen=True, kw_only=True)
class DotTileSchedule(GemmSchedule):
    """Tiles of `mr` rows by `nr` columns, vectors along k; the sums of a row are folded to one vector of `nr` lanes."""

    mr: Positive
    nr: PowerOfTwo
    width: PowerOfTwo
    mc: Positive
    nc: Positive

    @override
    def check(self) -> None:
        if self.nr > self.width:
            raise InvalidSchedule("nr", f"at most the lanes of a vector, {self.width}", self.nr)


@dataclass(frozen=True, kw_only=True)
class DotSchedule(DotTileSchedule, kernel="cpu.gemm.dot"):
    """Dot products of operands with unit stride along k."""

    kc: Positive


@dataclass(frozen=True, kw_only=True)
class Int8DotSchedule(DotTileSchedule, kernel="cpu.gemm.int8_dot"):
    """Dot products of 8-bit integers with unit stride along k."""


@dataclass(frozen=True, kw_only=True)
class PanelSchedule(GemmSchedule):
    """Register tiles over panels of the rhs.

    packed: the rhs is a constant that lies in panels before the first call. fetch: a tile prefetches what is wanted
    next (`matmul/tiles.py`).
    """

    mr: Positive
    nv: Positive
    width: PowerOfTwo
    mc: Positive
    nc: Positive
    kc: Positive
    packed: bool = False
    fetch: bool = False


@dataclass(frozen=True, kw_only=True)
class BlockedSchedule(PanelSchedule, kernel="cpu.gemm.blocked"):
    """Fused multiply-adds; pack_lhs, pack_rhs: blocks are copied into scratch memory."""

    pack_lhs: bool
    pack_rhs: bool


@dataclass(frozen=True, kw_only=True)
class VnniBf16Schedule(PanelSchedule, kernel="cpu.gemm.vnni_bf16"):
    """bf16 in pairs along k (VDPBF16PS)."""

    pack_lhs: bool
    pack_rhs: bool


_TILE = 16
"""Rows of a tile register of AMX, and sums of 32 bits in a row of it."""
_TILES = 8
"""Tile registers."""


def _check_tiles(mr: int, nv: int, transposed: bool = False) -> None:
    """Raises InvalidSchedule where tiles of sums leave no register for tiles of both operands."""
    if mr % _TILE:
        raise InvalidSchedule("mr", f"a multiple of the rows of a tile, {_TILE}", mr)
    high, wide = (nv, mr // _TILE) if transposed else (mr // _TILE, nv)
    if high * wide + (wide if high > 1 else 1) >= _TILES:
        raise InvalidSchedule("nv", f"tiles of sums, and of operands behind them, in {_TILES} registers", nv)


@dataclass(frozen=True, kw_only=True)
class AmxBf16Schedule(PanelSchedule, kernel="cpu.gemm.amx_bf16"):
    """bf16 by tiles of AMX; ks: steps of k that a register tile sums in one go.

    transposed: the product is computed as its transpose, with the rhs as the lhs. shared: several products with one lhs
    pack it for the first of them only.
    """

    width: Literal[16]
    ks: Positive
    pack_lhs: bool
    transposed: bool = False
    shared: bool = False

    @override
    def check(self) -> None:
        _check_tiles(self.mr, self.nv, self.transposed)


@dataclass(frozen=True, kw_only=True)
class AmxBf16x3Schedule(GemmSchedule, kernel="cpu.gemm.amx_bf16x3"):
    """f32 in three parts of bf16, by tiles of AMX; ks: steps of k of the rhs that are split at once.

    transposed: sums are those of the transposed product, for a rhs with unit stride along k. shared: as in
    `AmxBf16Schedule`.
    """

    mr: Positive
    nv: Positive
    width: Literal[16]
    mc: Positive
    nc: Positive
    kc: Positive
    ks: Positive
    transposed: bool
    shared: bool = False

    @override
    def check(self) -> None:
        _check_tiles(self.mr, self.nv, self.transposed)


@dataclass(frozen=True, kw_only=True)
class Int8Schedule(PanelSchedule, kernel="cpu.gemm.int8"):
    """8-bit integers by VNNI or by pairs of 16-bit integers; in_place: rows of the lhs are not copied."""

    in_place: bool = False


@dataclass(frozen=True, kw_only=True)
class AmxInt8Schedule(Int8Schedule, kernel="cpu.gemm.amx_int8"):
    """8-bit integers by tiles of AMX."""

    width: Literal[16]

    @override
    def check(self) -> None:
        _check_tiles(self.mr, self.nv)


@dataclass(frozen=True, kw_only=True)
class VendorSchedule(GemmSchedule, kernel="cpu.gemm.vendor"):
    """Blocks by the library's gemm."""

    mc: Positive
    nc: Positive
    width: PowerOfTwo


@dataclass(frozen=True, kw_only=True)
class ByRowsSchedule(GemmSchedule, kernel="cpu.gemm.by_rows"):
    """Up to `limit` rows, known at run time, one kernel; above, another one."""

    limit: Natural
    small: GemmSchedule
    large: GemmSchedule


Split = Literal["blocks", "rows", "team"]
"""How threads share products and the loops behind them: by blocks of the products, by blocks of rows with the loops of
these, or as a team that waits between products and loops."""


@dataclass(frozen=True, kw_only=True)
class PhasesSchedule(Schedule, kernel="cpu.gemm.phases"):
    """Products, and loops behind them, in one kernel.

    products: the schedule of each. height: rows of a block, where threads share them. mc, nc: rows and columns of a
    block that is computed for all products before the next one; nr: `nc` is a multiple of it.
    """

    split: Split
    products: tuple[GemmSchedule, ...]
    height: Positive | None = None
    mc: Positive | None = None
    nc: Positive | None = None
    nr: Positive | None = None

    @override
    def check(self) -> None:
        if (self.height is None) == (self.split == "rows"):
            rule = "the rows of a block" if self.split == "rows" else f'nothing with split = "{self.split}"'
            raise InvalidSchedule("height", rule, "nothing" if self.height is None else self.height)
        if len({self.mc is None, self.nc is None, self.nr is None}) > 1:
            raise InvalidSchedule("mc", "it with 'nc' and 'nr', or none of them", self.mc or "nothing")


# ------------------------------------------------------------------------------------------------------- convolutions


@dataclass(frozen=True, kw_only=True)
class ConvSchedule(Schedule):
    """Of one convolution."""


@dataclass(frozen=True, kw_only=True)
class DirectConvSchedule(ConvSchedule, kernel="cpu.conv.direct"):
    """`mr` pixels by `nv` vectors of output channels in registers, `tiles` of these a row (or a part of it).

    piece: products that are summed from zero before they are added to the sum of the others.
    """

    mr: Positive
    nv: Positive
    width: PowerOfTwo
    tiles: Positive
    piece: Positive


@dataclass(frozen=True, kw_only=True)
class VnniBf16ConvSchedule(DirectConvSchedule, kernel="cpu.conv.vnni_bf16"):
    """Direct convolution with pairs of channels in bf16 (VDPBF16PS)."""


@dataclass(frozen=True, kw_only=True)
class VnniBf16ColumnsConvSchedule(DirectConvSchedule, kernel="cpu.conv.vnni_bf16_columns"):
    """Direct convolution with pairs of columns of the window in bf16."""


@dataclass(frozen=True, kw_only=True)
class DepthwiseConvSchedule(ConvSchedule, kernel="cpu.conv.depthwise"):
    """One channel a group, vectors along channels: `mr` pixels at a time, `span` channels a task."""

    mr: Positive
    width: PowerOfTwo
    span: Positive


@dataclass(frozen=True, kw_only=True)
class PlanarConvSchedule(ConvSchedule, kernel="cpu.conv.planar"):
    """One channel a group, vectors along columns: `nv` of them at a time, `span` rows a task."""

    nv: Positive
    width: PowerOfTwo
    span: Positive


@dataclass(frozen=True, kw_only=True)
class GemmConvSchedule(ConvSchedule, kernel="cpu.conv.gemm"):
    """A few pixels with windows of one element: a product of matrices that reads the weight in place."""

    product: GemmSchedule


Order = Literal["channels", "columns", "windows"]
"""How the elements of a sum follow each other (`lowering/cpu/conv/tiles_plan.py`)."""


@dataclass(frozen=True, kw_only=True)
class AmxConvSchedule(ConvSchedule, kernel="cpu.conv.amx_bf16"):
    """bf16 by tiles of AMX.

    rows: rows of the result of a unit of work (pixels, where they are a line). chunk: of these, as many have their sums
    in scratch at once. units: as many are copied before any of them is multiplied. share: what threads divide first.
    in_place: the image is not copied.
    """

    width: Literal[16]
    nv: Positive
    order: Order
    rows: Positive
    chunk: Positive
    units: Positive
    share: Literal["units", "blocks"]
    in_place: bool = False


# ---------------------------------------------------------------------------------------------------------- attention


@dataclass(frozen=True, kw_only=True)
class AttentionSchedule(Schedule):
    """Attention in one pass over the keys: `queries` queries a task, `keys` keys at a time.

    The running maxima of `mr` rows are the lanes of one vector, and so are their sums.
    """

    mr: Positive
    nv: Positive
    width: PowerOfTwo
    queries: Positive
    keys: Positive

    @override
    def check(self) -> None:
        if self.mr > self.width:
            raise InvalidSchedule("mr", f"at most the lanes of a vector, {self.width}", self.mr)


@dataclass(frozen=True, kw_only=True)
class FlashSchedule(AttentionSchedule, kernel="cpu.attention.flash"):
    """Attention in one pass over the keys: `queries` queries a task, `keys` keys at a time.

    dot_scores: scores are dot products with the keys in place, for queries too few to repay transposing keys.
    """

    dot_scores: bool = False


@dataclass(frozen=True, kw_only=True)
class AmxFlashSchedule(AttentionSchedule, kernel="cpu.attention.amx_bf16"):
    """Attention in one pass over the keys, with products by tiles of AMX.

    `queries` queries a task, `keys` keys at a time. A tile has 16 rows of 16 sums.
    """

    @override
    def check(self) -> None:
        for field, found in (("mr", self.mr), ("width", self.width)):
            if found != _TILE:
                raise InvalidSchedule(field, _TILE, found)
