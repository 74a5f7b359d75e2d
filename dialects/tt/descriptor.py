# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor descriptors: blocks moved by the hardware's copy engine (TMA)."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.tt import base
from kiln.dialects.tt.base import Family


class MakeTensorDescriptorOp(Family):
    """A descriptor made on the device: a pointer, the sizes (i32), then the strides in elements (i64); the last is 1.

    `padding` 1 fills what is out of bounds with zeros, 2 with NaN.

    ```mlir
    %p, %m, %n, %s, %one = "test.value"() : () -> (!tt.ptr<bf16>, i32, i32, i64, i64)
    %0 = "tt.make_tensor_descriptor"(%p, %m, %n, %s, %one) {padding = 1 : i32}
      : (!tt.ptr<bf16>, i32, i32, i64, i64) -> !tt.tensordesc<tensor<64x64xbf16>>
    ```
    """

    NAME = "make_tensor_descriptor"
    ATTRIBUTES = {"padding": "#builtin.integer"}
    TRAITS = (base.Effects("Read", "Write"),)  # It writes the descriptor into scratch memory.

    @staticmethod
    @override
    def check(op: Any) -> None:
        block = base.block_of(op.results[0].type)
        base.require(len(op.operands) == 1 + 2 * block.rank, "operands", 1 + 2 * block.rank, len(op.operands))
        found = base.pointee(op.operands[0].type)
        base.require(found == block.element_type, "pointer element type", block.element_type, found)
        for i, value in enumerate(list(op.operands)[1:]):
            base.element_is(f"operand {i + 1}", value, "i32" if i < block.rank else "i64")


class DescriptorLoadOp(base.Operation, name="descriptor_load", traits=[base.Effects("Read")]):
    """The block at these i32 indices; what is out of bounds is zero. Leading dims of 1 may be left out of the result.

    ```mlir
    %d, %i = "test.value"() : () -> (!tt.tensordesc<tensor<64x64xbf16>>, i32)
    %0 = "tt.descriptor_load"(%d, %i, %i) : (!tt.tensordesc<tensor<64x64xbf16>>, i32, i32) -> tensor<64x64xbf16>
    ```
    """

    desc: ir.Value[Any]
    indices: Sequence[ir.Value[Any]]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the result is the descriptor's block, leading dims of 1 left out or not."""
        block = _described(self)
        found = base.element_of(self.result.type)
        base.require(found == block.element_type, "result element type", block.element_type, found)
        shape, sizes = base.shape_of(self.result.type), list(block.shape)
        missing = max(0, len(sizes) - len(shape))
        base.require(sizes == [1] * missing + shape, "result shape", f"{sizes}, or less leading dims of 1", shape)


class DescriptorStoreOp(base.Operation, name="descriptor_store", traits=[base.Effects("Write")]):
    """Writes the block, which may lack leading dims of 1, at these i32 indices; what is out of bounds is dropped.

    ```mlir
    %d, %x, %i = "test.value"() : () -> (!tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>, i32)
    "tt.descriptor_store"(%d, %x, %i, %i)
      : (!tt.tensordesc<tensor<64x64xbf16>>, tensor<64x64xbf16>, i32, i32) -> ()
    ```
    """

    desc: ir.Value[Any]
    src: ir.Value[Any]
    indices: Sequence[ir.Value[Any]]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the stored block has the descriptor's element type and sizes."""
        block = _described(self)
        found = base.element_of(self.src.type)
        base.require(found == block.element_type, "src element type", block.element_type, found)


def _described(op: Any) -> ir.RankedTensorType:
    base.require(base.is_tensordesc(op.desc.type), "desc", "a tensor descriptor", op.desc.type)
    block = base.block_of(op.desc.type)
    base.require(len(op.indices) == block.rank, "indices", block.rank, len(op.indices))
    for i, index in enumerate(op.indices):
        base.element_is(f"index {i}", index, "i32")
    return block
