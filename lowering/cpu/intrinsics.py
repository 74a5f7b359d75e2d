# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Calls of LLVM's intrinsics for x86, which stand for one instruction each."""

from collections.abc import Sequence

from torch_mlir import ir

__all__ = ["call", "call_void"]


def call(name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
    """The result of `llvm.x86.{name}`."""
    return _create(name, [result], operands).result


def call_void(name: str, *operands: ir.Value) -> None:
    """`llvm.x86.{name}`, which has none."""
    _create(name, [], operands)


def _create(name: str, results: list[ir.Type], operands: Sequence[ir.Value]) -> ir.Operation:
    attributes = {
        "intrin": ir.StringAttr.get(f"llvm.x86.{name}"),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return ir.Operation.create("llvm.call_intrinsic", results=results, operands=list(operands), attributes=attributes)
