# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The `tt` dialect: `from kiln.dialects import tt`.  `isinstance(op, tt.LoadOp)` matches, `tt.LoadOp.create` builds."""

from typing import Any

from kiln.dialects.kiln.family import FAMILIES
from kiln.dialects.tt.base import (
    MAX_ELEMENTS,
    PtrType,
    TensorDescType,
    Tt,
    block_of,
    element_of,
    is_block,
    is_ptr,
    is_tensordesc,
    pointee,
    ptr,
    shape_of,
    tensordesc,
    with_element,
    with_shape,
)
from kiln.dialects.tt.compute import (
    PRECISION,
    ROUNDING,
    BitcastOp,
    ClampfOp,
    DotOp,
    ElementwiseInlineAsmOp,
    ExternElementwiseOp,
    FpToFpOp,
    MulhiUiOp,
    PreciseDivfOp,
    PreciseSqrtOp,
)
from kiln.dialects.tt.descriptor import DescriptorLoadOp, DescriptorStoreOp, MakeTensorDescriptorOp
from kiln.dialects.tt.function import CallOp, FuncOp, GetNumProgramsOp, GetProgramIdOp, ReturnOp
from kiln.dialects.tt.memory import (
    CACHE,
    EVICT,
    RMW,
    SCOPE,
    SEMANTICS,
    AddPtrOp,
    AssertOp,
    AtomicCasOp,
    AtomicRmwOp,
    LoadOp,
    StoreOp,
)
from kiln.dialects.tt.reduce import ReduceOp, ReduceReturnOp, ScanOp, ScanReturnOp
from kiln.dialects.tt.shape import (
    BroadcastOp,
    ExpandDimsOp,
    JoinOp,
    MakeRangeOp,
    ReshapeOp,
    SplatOp,
    SplitOp,
    TransOp,
)


def _name(op: Any) -> str:
    return op.OPERATION_NAME


OPS: list[type[Any]] = sorted([*Tt.operations, *(f for f in FAMILIES.values() if f.DIALECT is Tt)], key=_name)
"""Every op class of the dialect, by name."""

__all__ = [
    "AddPtrOp",
    "AssertOp",
    "AtomicCasOp",
    "AtomicRmwOp",
    "BitcastOp",
    "BroadcastOp",
    "CACHE",
    "CallOp",
    "ClampfOp",
    "DescriptorLoadOp",
    "DescriptorStoreOp",
    "DotOp",
    "EVICT",
    "ElementwiseInlineAsmOp",
    "ExpandDimsOp",
    "ExternElementwiseOp",
    "FpToFpOp",
    "FuncOp",
    "GetNumProgramsOp",
    "GetProgramIdOp",
    "JoinOp",
    "LoadOp",
    "MAX_ELEMENTS",
    "MakeRangeOp",
    "MakeTensorDescriptorOp",
    "MulhiUiOp",
    "OPS",
    "PRECISION",
    "PreciseDivfOp",
    "PreciseSqrtOp",
    "PtrType",
    "RMW",
    "ROUNDING",
    "ReduceOp",
    "ReduceReturnOp",
    "ReshapeOp",
    "ReturnOp",
    "SCOPE",
    "SEMANTICS",
    "ScanOp",
    "ScanReturnOp",
    "SplatOp",
    "SplitOp",
    "StoreOp",
    "TensorDescType",
    "TransOp",
    "Tt",
    "block_of",
    "element_of",
    "is_block",
    "is_ptr",
    "is_tensordesc",
    "pointee",
    "ptr",
    "shape_of",
    "tensordesc",
    "with_element",
    "with_shape",
]
