# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `kiln` dialect.  `from kiln.dialects import kiln`, then `kiln.view(...)` builds and `kiln.ViewOp` matches."""

from kiln.dialects.kiln.attention import AttentionOp, attention
from kiln.dialects.kiln.base import Dim, Kiln
from kiln.dialects.kiln.core import (
    AtenOp,
    CatOp,
    EmptyOp,
    FusionOp,
    PadOp,
    ViewOp,
    YieldOp,
    aten,
    cat,
    empty,
    fusion,
    pad,
    view,
    yield_,
)
from kiln.dialects.kiln.family import FAMILIES, name_of, parse, to_text
from kiln.dialects.kiln.matmul import MatmulOp, matmul
from kiln.dialects.kiln.norm import (
    BatchNormOp,
    GroupNormOp,
    LayerNormOp,
    RmsNormOp,
    batch_norm,
    group_norm,
    layer_norm,
    rms_norm,
)
from kiln.dialects.kiln.softmax import SoftmaxOp, softmax

OPS: list[type] = sorted([*Kiln.operations, *FAMILIES.values()], key=lambda op: op.OPERATION_NAME)
"""Every op class of the dialect, by name."""

__all__ = [
    "AtenOp",
    "AttentionOp",
    "BatchNormOp",
    "CatOp",
    "Dim",
    "EmptyOp",
    "FusionOp",
    "GroupNormOp",
    "Kiln",
    "LayerNormOp",
    "MatmulOp",
    "OPS",
    "PadOp",
    "RmsNormOp",
    "SoftmaxOp",
    "ViewOp",
    "YieldOp",
    "aten",
    "attention",
    "batch_norm",
    "cat",
    "empty",
    "fusion",
    "group_norm",
    "layer_norm",
    "matmul",
    "name_of",
    "pad",
    "parse",
    "rms_norm",
    "softmax",
    "to_text",
    "view",
    "yield_",
]
