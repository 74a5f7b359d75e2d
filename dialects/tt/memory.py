# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pointers, loads, stores and atomics."""

from typing import Any, Optional

from torch_mlir import ir

from kiln.dialects.tt import base

CACHE = {"none": 1, "ca": 2, "cg": 3, "wb": 4, "cs": 5, "wt": 6}
"""Values of the attribute `cache`: Triton's `CacheModifier`."""

EVICT = {"normal": 1, "first": 2, "last": 3}
"""Values of the attribute `evict`: Triton's `EvictionPolicy`."""

RMW = {
    "and": 1,
    "or": 2,
    "xor": 3,
    "add": 4,
    "fadd": 5,
    "max": 6,
    "min": 7,
    "umax": 8,
    "umin": 9,
    "exch": 10,
}
"""Values of the attribute `atomic_rmw_op`: Triton's `RMWOp`."""

SEMANTICS = {"relaxed": 1, "acquire": 2, "release": 3, "acq_rel": 4}
SCOPE = {"gpu": 1, "cta": 2, "system": 3}


class AddPtrOp(base.Operation, name="addptr", traits=[base.Pure]):
    """The address `offset` elements (not bytes) behind a pointer; scalars or blocks of one shape.

    ```mlir
    %p, %i = "test.value"() : () -> (tensor<64x!tt.ptr<f32>>, tensor<64xi32>)
    %0 = "tt.addptr"(%p, %i) : (tensor<64x!tt.ptr<f32>>, tensor<64xi32>) -> tensor<64x!tt.ptr<f32>>
    ```
    """

    ptr: ir.Value[Any]
    offset: ir.Value[Any]
    result: base.Result[Any]

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that pointers and integer offsets have the same sizes, and the result's type."""
        _pointers("ptr", self.ptr)
        base.same_shape("offset", self.offset, self.ptr)
        offset = base.element_of(self.offset.type)
        base.require(isinstance(offset, ir.IntegerType), "offset element type", "an integer", offset)
        base.same_type("result", self.result, self.ptr.type)


class LoadOp(base.Operation, name="load", traits=[base.Effects("Read")]):
    """The elements at these addresses; where `mask` is false memory is not touched, and the value is `other`.

    Without `other` such elements are undefined.  `cache` and `evict` (optional i32 attributes, see `CACHE` and
    `EVICT`) are hints.

    ```mlir
    %p, %m, %o = "test.value"() : () -> (tensor<64x!tt.ptr<f32>>, tensor<64xi1>, tensor<64xf32>)
    %0 = "tt.load"(%p, %m, %o) {operandSegmentSizes = array<i32: 1, 1, 1>, evict = 2 : i32}
      : (tensor<64x!tt.ptr<f32>>, tensor<64xi1>, tensor<64xf32>) -> tensor<64xf32>
    ```
    """

    ptr: ir.Value[Any]
    result: base.Result[Any]
    mask: Optional[ir.Value[Any]] = None  # noqa: UP045 - `ext` tells optional operands by this form
    other: Optional[ir.Value[Any]] = None  # noqa: UP045 - `ext` tells optional operands by this form

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check the result's type, the mask's sizes, and that `other` comes with a mask."""
        _pointers("ptr", self.ptr)
        base.same_type("result", self.result, base.with_element(self.ptr.type, base.pointee(self.ptr.type)))
        _mask(self.mask, self.ptr)
        if self.other is not None:
            base.require(self.mask is not None, "other", "a mask with it", "none")
            base.same_type("other", self.other, self.result.type)
        _hints(self)


class StoreOp(base.Operation, name="store", traits=[base.Effects("Write")]):
    """Writes elements to these addresses; where `mask` is false memory is not touched.

    ```mlir
    %p, %x, %m = "test.value"() : () -> (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>)
    "tt.store"(%p, %x, %m) : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>) -> ()
    ```
    """

    ptr: ir.Value[Any]
    value: ir.Value[Any]
    mask: Optional[ir.Value[Any]] = None  # noqa: UP045 - `ext` tells optional operands by this form

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check the value's type and the mask's sizes."""
        _pointers("ptr", self.ptr)
        base.same_type("value", self.value, base.with_element(self.ptr.type, base.pointee(self.ptr.type)))
        _mask(self.mask, self.ptr)
        _hints(self)


class AtomicRmwOp(base.Operation, name="atomic_rmw", traits=[base.Effects("Read", "Write")]):
    """Read, combine and write each element as one; the result is what was there.

    `atomic_rmw_op` see `RMW`, `sem` see `SEMANTICS`, `scope` see `SCOPE`.

    ```mlir
    %p, %x, %m = "test.value"() : () -> (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>)
    %0 = "tt.atomic_rmw"(%p, %x, %m) {atomic_rmw_op = 5 : i32, sem = 1 : i32, scope = 1 : i32}
      : (tensor<64x!tt.ptr<f32>>, tensor<64xf32>, tensor<64xi1>) -> tensor<64xf32>
    ```
    """

    ptr: ir.Value[Any]
    value: ir.Value[Any]
    result: base.Result[Any]
    atomic_rmw_op: ir.IntegerAttr
    sem: ir.IntegerAttr
    scope: ir.IntegerAttr
    mask: Optional[ir.Value[Any]] = None  # noqa: UP045 - `ext` tells optional operands by this form

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check the value's and the result's types, the mask, and the codes of Triton's enums."""
        _pointers("ptr", self.ptr)
        base.same_type("value", self.value, base.with_element(self.ptr.type, base.pointee(self.ptr.type)))
        base.same_type("result", self.result, self.value.type)
        _mask(self.mask, self.ptr)
        kind = base.integer(self, "atomic_rmw_op", 1, 11)
        base.integer(self, "sem", 1, 5)
        base.integer(self, "scope", 1, 4)
        element = base.element_of(self.value.type)
        is_float = not isinstance(element, ir.IntegerType)
        base.require((kind == RMW["fadd"]) == is_float or kind == RMW["exch"], "atomic_rmw_op", "one for", element)


class AtomicCasOp(base.Operation, name="atomic_cas", traits=[base.Effects("Read", "Write")]):
    """Writes `value` where memory holds `compare`; the result is what was there.

    ```mlir
    %p, %c, %x = "test.value"() : () -> (tensor<64x!tt.ptr<i32>>, tensor<64xi32>, tensor<64xi32>)
    %0 = "tt.atomic_cas"(%p, %c, %x) {sem = 4 : i32, scope = 1 : i32}
      : (tensor<64x!tt.ptr<i32>>, tensor<64xi32>, tensor<64xi32>) -> tensor<64xi32>
    ```
    """

    ptr: ir.Value[Any]
    compare: ir.Value[Any]
    value: ir.Value[Any]
    result: base.Result[Any]
    sem: ir.IntegerAttr
    scope: ir.IntegerAttr

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check the types of both values and the result, and the codes of Triton's enums."""
        _pointers("ptr", self.ptr)
        base.same_type("value", self.value, base.with_element(self.ptr.type, base.pointee(self.ptr.type)))
        base.same_type("compare", self.compare, self.value.type)
        base.same_type("result", self.result, self.value.type)
        base.integer(self, "sem", 1, 5)
        base.integer(self, "scope", 1, 4)


def _pointers(what: str, value: ir.Value) -> None:
    base.require(base.is_ptr(base.element_of(value.type)), what, "a pointer or a block of pointers", value.type)
    base.check_block(what, value.type)


def _mask(mask: Any, pointers: ir.Value) -> None:
    if mask is not None:
        base.same_shape("mask", mask, pointers)
        base.element_is("mask", mask, "i1")


def _hints(op: Any) -> None:
    if "cache" in op.attributes:
        base.integer(op, "cache", 1, 8)
    if "evict" in op.attributes:
        base.integer(op, "evict", 1, 4)


class AssertOp(base.Operation, name="assert", traits=[base.Effects("Read", "Write")]):
    """Ends all programs, with the message on stderr, where an element of `condition` is false: the error that the GPU's
    driver then has for every later call is one of the device, as `torch._assert_async` makes.

    ```mlir
    %c = "test.value"() : () -> tensor<64xi1>
    "tt.assert"(%c) {message = "index out of range"} : (tensor<64xi1>) -> ()
    ```
    """

    condition: ir.Value[Any]
    message: ir.StringAttr

    @base.verified
    def verify_invariants(self: Any) -> None:
        """Check that the condition is of i1."""
        element = base.element_of(self.condition.type)
        base.require(str(element) == "i1", "condition", "i1", element)
