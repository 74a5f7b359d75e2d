# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The special paths of products, convolutions and attention on a GPU (see `lowering/paths.py`)."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules.gpu import ConvSchedule, FlashSchedule, GemmSchedule, GemvSchedule, TmaSchedule
from kiln.lowering import paths
from kiln.lowering.gpu.dot.problem import Product
from kiln.lowering.gpu.dot.schedule import TILES
from kiln.lowering.gpu.dot.windows import Attention, Convolution

__all__ = ["ATTENTION", "CONV", "PRODUCT", "mark_attention", "mark_conv", "mark_product"]

PRODUCT = paths.group(
    "gpu product",
    *("gemv", "gemv, transposed", "tile", "tma", "tma, persistent", "unaligned operands", "several products"),
    *("batch", "2 pieces", "4 pieces", "sizes at run time"),
)
TILE = paths.group("gpu tile", (f"{rows} x {columns}" for rows, columns in TILES))
CONV = paths.group(
    "gpu convolution",
    *(
        "implicit",
        "depthwise",
        "sliding",
        "tma",
        "unaligned operands",
        "groups",
        "padding",
        "dilation",
        "rows as channels",
    ),
)
ATTENTION = paths.group(
    "gpu attention",
    *("pointers", "descriptors", "warp_specialized", "unaligned operands", "causal", "grouped heads", "fill"),
    *("mask of booleans", "mask of numbers", "block of all keys"),
)


def mark_product(products: Sequence[Product], schedule: GemmSchedule) -> None:
    """Tell which special paths a product takes."""
    if isinstance(schedule, GemvSchedule):
        PRODUCT("gemv, transposed" if schedule.transposed else "gemv")
    else:
        is_persistent = isinstance(schedule, TmaSchedule) and schedule.persistent
        PRODUCT("tma, persistent" if is_persistent else schedule.how)
        TILE(f"{schedule.block_m} x {schedule.block_n}")
        if schedule.epilogue_pieces > 1:
            PRODUCT(f"{schedule.epilogue_pieces} pieces")
    if len(products) > 1:
        PRODUCT("several products")
    if products[0].batch:
        PRODUCT("batch")
    if None in (affine.constant_of(x) for x in (products[0].m, products[0].n, products[0].k)):
        PRODUCT("sizes at run time")


def mark_attention(attention: Attention, schedule: FlashSchedule, is_described: bool) -> None:
    """Tell which special paths an attention takes."""
    ATTENTION("descriptors" if is_described else "pointers")
    if attention.causal:
        ATTENTION("causal")
    if attention.fill is not None:
        ATTENTION("fill")
    if attention.mask_element is not None:
        ATTENTION("mask of booleans" if attention.mask_element == "i1" else "mask of numbers")
    if attention.query_sizes[-3] != attention.key_sizes[-3]:
        ATTENTION("grouped heads")
    if schedule.masks == "all":
        ATTENTION("block of all keys")


def mark_conv(conv: Convolution, schedule: ConvSchedule) -> None:
    """Tell which special paths a convolution takes."""
    CONV(schedule.how)
    weight = ir.RankedTensorType(conv.op.operands[1].type).shape
    CONV.those(
        {
            "groups": conv.groups > 1,
            "padding": any(conv.padding),
            "dilation": any(n > 1 for n in conv.dilation),
            "rows as channels": weight[-1] > conv.kernel[-1],
        }
    )
