# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `kiln` dialect.  `from kiln.dialects import kiln`, then `kiln.view(...)` builds and `kiln.ViewOp` matches."""

from typing import Any

from kiln.dialects.kiln.attention import AttentionOp, attention
from kiln.dialects.kiln.base import Dim, Kiln
from kiln.dialects.kiln.conv import ConvOp, conv
from kiln.dialects.kiln.core import AtenOp, FusionOp, YieldOp, aten, fusion, yield_
from kiln.dialects.kiln.family import FAMILIES, name_of, parse, to_text
from kiln.dialects.kiln.index import (
    EmbeddingOp,
    GatherOp,
    IndexOp,
    IndexSelectOp,
    ScatterNdOp,
    ScatterOp,
    embedding,
    gather,
    index,
    index_select,
    scatter,
    scatter_nd,
)
from kiln.dialects.kiln.kernel import KernelOp, LaunchOp
from kiln.dialects.kiln.matmul import MatmulOp, matmul
from kiln.dialects.kiln.movement import CatOp, EmptyOp, PadOp, ViewOp, cat, empty, pad, view
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
from kiln.dialects.kiln.pack import PackOp, pack
from kiln.dialects.kiln.plan import BufferOp, CallOp, OutputOp
from kiln.dialects.kiln.pool import PoolOp, pool
from kiln.dialects.kiln.random import RandomOp, random
from kiln.dialects.kiln.recurrence import RecurrenceOp, recurrence
from kiln.dialects.kiln.scan import ScanOp, scan
from kiln.dialects.kiln.softmax import SoftmaxOp, softmax
from kiln.dialects.kiln.sort import SortOp, TopkOp, sort, topk
from kiln.dialects.kiln.table import OpDef, Role, by_name, define, op_names, opdef, opdef_of_kind, opdefs, static_flops


def _name(op: Any) -> str:
    return op.OPERATION_NAME


OPS: list[type[Any]] = sorted([*Kiln.operations, *(f for f in FAMILIES.values() if f.DIALECT is Kiln)], key=_name)
"""Every op class of the dialect, by name."""

__all__ = [
    "AtenOp",
    "AttentionOp",
    "BatchNormOp",
    "BufferOp",
    "CallOp",
    "CatOp",
    "ConvOp",
    "Dim",
    "EmbeddingOp",
    "EmptyOp",
    "FusionOp",
    "GatherOp",
    "GroupNormOp",
    "IndexOp",
    "IndexSelectOp",
    "KernelOp",
    "Kiln",
    "LaunchOp",
    "LayerNormOp",
    "MatmulOp",
    "OPS",
    "OpDef",
    "OutputOp",
    "PackOp",
    "PadOp",
    "PoolOp",
    "RandomOp",
    "RecurrenceOp",
    "RmsNormOp",
    "Role",
    "ScanOp",
    "ScatterNdOp",
    "ScatterOp",
    "SoftmaxOp",
    "SortOp",
    "TopkOp",
    "ViewOp",
    "YieldOp",
    "aten",
    "attention",
    "batch_norm",
    "by_name",
    "cat",
    "conv",
    "define",
    "embedding",
    "empty",
    "fusion",
    "gather",
    "group_norm",
    "index",
    "index_select",
    "layer_norm",
    "matmul",
    "name_of",
    "op_names",
    "opdef",
    "opdef_of_kind",
    "opdefs",
    "pack",
    "pad",
    "parse",
    "pool",
    "random",
    "recurrence",
    "rms_norm",
    "scan",
    "scatter",
    "scatter_nd",
    "softmax",
    "sort",
    "static_flops",
    "to_text",
    "topk",
    "view",
    "yield_",
]
