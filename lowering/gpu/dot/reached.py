# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The special paths of products, convolutions and attention on a GPU (see `lowering/paths.py`)."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.gpu.dot.problem import Product
from kiln.lowering.gpu.dot.schedule import TILES
from kiln.lowering.gpu.dot.windows import Attention, Convolution

__all__ = ["ATTENTION", "CONV", "PRODUCT", "mark_attention", "mark_conv", "mark_product"]

PRODUCT = paths.group(
    "gpu product",
    *("gemv", "gemv, turned", "tile", "tensor_map", "tensor_map, persistent", "unaligned operands", "several products"),
    *("batch", "2 pieces", "4 pieces", "sizes at run time"),
)
TILE = paths.group("gpu tile", (f"{rows} x {columns}" for rows, columns in TILES))
CONV = paths.group(
    "gpu convolution",
    *("implicit", "depthwise", "tensor_map", "unaligned operands", "groups", "padding", "dilation", "rows as channels"),
)
ATTENTION = paths.group(
    "gpu attention",
    *("pointers", "descriptors", "specialized", "unaligned operands", "causal", "grouped heads", "fill"),
    *("mask of booleans", "mask of numbers", "block of all keys"),
)


def mark_product(products: Sequence[Product], schedule: dict[str, Any]) -> None:
    """Tell which special paths a product takes."""
    kernel = schedule["kernel"]
    if kernel == "gemv":
        PRODUCT("gemv, turned" if schedule["turned"] else "gemv")
    else:
        PRODUCT("tensor_map, persistent" if kernel == "tensor_map" and schedule["persistent"] else kernel)
        TILE(f"{schedule['block_m']} x {schedule['block_n']}")
        if schedule["pieces"] > 1:
            PRODUCT(f"{schedule['pieces']} pieces")
    if len(products) > 1:
        PRODUCT("several products")
    if products[0].batch:
        PRODUCT("batch")
    if None in (affine.constant_of(x) for x in (products[0].m, products[0].n, products[0].k)):
        PRODUCT("sizes at run time")


def mark_attention(attention: Attention, schedule: dict[str, Any], is_described: bool) -> None:
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
    if schedule.get("masks") == "all":
        ATTENTION("block of all keys")


def mark_conv(conv: Convolution, schedule: dict[str, Any]) -> None:
    """Tell which special paths a convolution takes."""
    CONV(schedule["kernel"])
    weight = ir.RankedTensorType(conv.op.operands[1].type).shape
    for path, is_so in (
        ("groups", conv.groups > 1),
        ("padding", any(conv.padding)),
        ("dilation", any(n > 1 for n in conv.dilation)),
        ("rows as channels", weight[-1] > conv.kernel[-1]),
    ):
        if is_so:
            CONV(path)
