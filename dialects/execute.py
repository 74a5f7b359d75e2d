# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A reference executor: runs a module on builtin tensors through scalar loops, as the numeric oracle of tests.

Named ops are expanded to their references and `kiln` data movement to upstream dialects, the module is bufferised,
lowered to loops and LLVM, compiled and run.  Nothing here is fast.  `kiln.aten` is not supported.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import linalg
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager

from kiln.dialects.kiln.family import parse, to_text
from kiln.dialects.upstream import lower_to_upstream
from kiln.errors import UnsupportedError

_BUFFERISE = (
    "builtin.module(one-shot-bufferize{bufferize-function-boundaries=1 "
    "function-boundary-type-conversion=identity-layout-map})"
)
_LOWER = (
    "builtin.module(convert-linalg-to-loops,expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "arith-expand{include-bf16=1},math-expand-ops{ops=rsqrt},convert-math-to-llvm,convert-math-to-libm,"
    "convert-arith-to-llvm,convert-index-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,"
    "convert-ub-to-llvm,reconcile-unrealized-casts)"
)


def run_reference(module: ir.Module, inputs: Sequence[Any], function: str = "main") -> list[np.ndarray]:
    """Run `@main` of `module` on numpy arrays (and integers for index arguments); returns its results.

    bf16 tensors take and give float32 arrays, i1 tensors bool arrays, other types numpy's own.  `module` is unchanged.
    Raises UnsupportedError for `kiln.aten`, ValueError where inputs don't fit the signature.
    """
    with module.context, ir.Location.unknown():
        work = parse(to_text(module))
        entry = _function(work, function)
        types = entry.attributes["function_type"].value
        if "!torch." in str(types):
            reason = "the torch dialect has no reference; run passes up to convert-torch-to-kiln first"
            raise UnsupportedError("func.func", entry.location, reason)
        signature = (list(types.inputs), list(types.results))
        _prepare(work, entry)
        return _run(work, function, signature, inputs)


def _function(module: ir.Module, name: str) -> ir.Operation:
    for op in module.body.operations:
        if op.operation.name == "func.func" and op.attributes["sym_name"].value == name:
            return op.operation
    raise ValueError(f"the module has no function @{name}")


def _prepare(module: ir.Module, function: ir.Operation) -> None:
    # Passes are a layer above; here only the rewriting itself is needed.
    from kiln.dialects.reference.expand import expand_all

    expand_all(function)
    lower_to_upstream(function)
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]
    if "res_attrs" in function.attributes:
        del function.attributes["res_attrs"]
    for name in [key for key in function.attributes if str(key).startswith("kiln.")]:
        del function.attributes[name]


def _run(module: ir.Module, function: str, signature: Any, inputs: Sequence[Any]) -> list[np.ndarray]:
    argument_types, result_types = signature
    if len(inputs) != len(argument_types):
        raise ValueError(f"@{function}: expected {len(argument_types)} inputs, found {len(inputs)}")
    PassManager.parse(_BUFFERISE).run(module.operation)
    _copies_to_linalg(module)
    _function(module, function).attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
    PassManager.parse(_LOWER).run(module.operation)
    engine = ExecutionEngine(module, opt_level=0)

    keep: list[Any] = []
    arguments: list[Any] = []
    fields: list[tuple[str, Any]] = []
    for i, type_ in enumerate(result_types):
        fields.append((f"r{i}", _descriptor(type_.rank) if isinstance(type_, ir.RankedTensorType) else _scalar(type_)))
    results = type("Results", (ctypes.Structure,), {"_fields_": fields})()
    if fields:
        arguments.append(ctypes.pointer(ctypes.pointer(results)))
    for i, (value, type_) in enumerate(zip(inputs, argument_types, strict=True)):
        if isinstance(type_, ir.RankedTensorType):
            array = _encode(np.asarray(value), type_, i)
            keep.append(array)
            arguments.append(ctypes.pointer(ctypes.pointer(_describe(array))))
        else:
            arguments.append(ctypes.pointer(_scalar(type_)(value)))
    engine.invoke(function, *arguments)
    return [_read(getattr(results, f"r{i}"), type_) for i, type_ in enumerate(result_types)]


def _copies_to_linalg(module: ir.Module) -> None:
    # A copy between strided memrefs would need MLIR's runtime library, which wheels lack.
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "memref.copy":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for op in found:
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()


# -------------------------------------------------------------------------------------------------------- descriptors


def _descriptor(rank: int) -> Any:
    fields: list[tuple[str, Any]] = [
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
    ]
    if rank:
        fields += [("sizes", ctypes.c_int64 * rank), ("strides", ctypes.c_int64 * rank)]
    return type(f"MemRef{rank}", (ctypes.Structure,), {"_fields_": fields})


def _describe(array: np.ndarray) -> Any:
    out = _descriptor(array.ndim)()
    out.allocated = out.aligned = array.ctypes.data
    out.offset = 0
    if array.ndim:
        out.sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        out.strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    return out


def _scalar(type_: ir.Type) -> Any:
    if isinstance(type_, ir.IndexType):
        return ctypes.c_int64
    known = {"i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32}
    known |= {"i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double}
    if str(type_) not in known:
        raise UnsupportedError("func.func", "", f"an argument or result of type {type_}")
    return known[str(type_)]


_NUMPY = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "bf16": np.uint16,
    "f32": np.float32,
    "f64": np.float64,
}


def _encode(array: np.ndarray, type_: ir.RankedTensorType, number: int) -> np.ndarray:
    expected = _NUMPY[str(type_.element_type)]
    if str(type_.element_type) == "bf16" and array.dtype == np.float32:
        array = _to_bf16(array)
    sizes = [None if type_.is_dynamic_dim(i) else type_.shape[i] for i in range(type_.rank)]
    fits = len(sizes) == array.ndim and all(s is None or s == n for s, n in zip(sizes, array.shape, strict=True))
    if array.dtype.itemsize != np.dtype(expected).itemsize or not fits:
        raise ValueError(f"input {number}: expected {type_}, found {array.dtype} {array.shape}")
    # Buffers of no bytes still need an address.
    return np.array(array, order="C", copy=True) if array.size else np.zeros(array.shape or 1, array.dtype)


def _to_bf16(array: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16).reshape(array.shape)


def _read(value: Any, type_: ir.Type) -> np.ndarray:
    if not isinstance(type_, ir.RankedTensorType):
        return np.asarray(value)
    dtype = np.dtype(_NUMPY[str(type_.element_type)])
    shape = tuple(value.sizes) if type_.rank else ()
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        out = np.zeros(shape, dtype)
    else:
        # Results are row-major: functions have identity layouts at their boundary.
        raw = ctypes.string_at(value.aligned + value.offset * dtype.itemsize, count * dtype.itemsize)
        out = np.frombuffer(raw, dtype).reshape(shape).copy()
    if str(type_.element_type) == "bf16":
        return (out.astype(np.uint32) << 16).view(np.float32)
    return out
