# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Run one op on numpy arrays through the JIT: for tests, accuracy tables and benchmarks."""

import ctypes
from collections.abc import Callable

import numpy as np
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from kiln.lowering.cpu.codegen import lower_to_llvm
from kiln.passes.expand_vector_math import ExpandVectorMath

__all__ = ["compile_op"]

_ELEMENT = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "float16": "f16", "uint16": "bf16"}


def kernel_text(op: str, inputs: list[str], output: str, width: int, attributes: str = "") -> str:
    """MLIR of ``out[i] = op(in0[i], ...)`` for ``width`` lanes at a time (0: scalars); n divides by the width.

    Args:
      op: an op name such as "math.exp" or "arith.extf".
      inputs, output: element types.
    """
    types = [f"vector<{width}x{t}>" if width else t for t in (*inputs, output)]
    memrefs = [f"memref<?x{t}>" for t in (*inputs, output)]
    load = "vector.load" if width else "memref.load"
    store = "vector.store" if width else "memref.store"
    lines = [
        f"    %v{i} = {load} %p{i}[%i] : {m}" + (f", {t}" if width else "")
        for i, (m, t) in enumerate(zip(memrefs[:-1], types[:-1], strict=True))
    ]
    operands = ", ".join(f"%v{i}" for i in range(len(inputs)))
    lines.append(f'    %r = "{op}"({operands}) {attributes} : ({", ".join(types[:-1])}) -> {types[-1]}')
    lines.append(f"    {store} %r, %out[%i] : {memrefs[-1]}" + (f", {types[-1]}" if width else ""))
    arguments = ", ".join([*(f"%p{i}: {m}" for i, m in enumerate(memrefs[:-1])), f"%out: {memrefs[-1]}"])
    return "\n".join(
        [
            f"func.func @kernel({arguments}, %n: index) {{",
            "  %zero = arith.constant 0 : index",
            f"  %step = arith.constant {width or 1} : index",
            "  scf.for %i = %zero to %n step %step {",
            *lines,
            "  }",
            "  return",
            "}",
        ]
    )


class _Memref(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("allocated", "aligned", "offset", "size", "stride")]


def compile_op(
    op: str, inputs: list[str], output: str, width: int, attributes: str = "", expand: bool = True
) -> Callable[..., np.ndarray]:
    """A function from arrays (1-D, contiguous, a multiple of the width long) to an array; bf16 is uint16.

    ``result = call(x, y)`` or ``call(x, y, out=array)``.  ``expand=False`` leaves the op to LLVM.
    """
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = ir.Module.parse(kernel_text(op, inputs, output, width, attributes))
        module.body.operations[0].attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        if expand:
            ExpandVectorMath().run(module)
            assert module.operation.verify()
        lower_to_llvm(module, "kernel")
        engine = ExecutionEngine(module, opt_level=2)
    pointer = engine.raw_lookup("_mlir_ciface_kernel")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(pointer)
    dtype = {v: np.dtype(k) for k, v in _ELEMENT.items()}[output]

    def call(*arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        out = np.empty(arrays[0].shape, dtype) if out is None else out
        views = []
        for array in (*arrays, out):
            assert array.flags.c_contiguous and array.ndim == 1 and array.size % (width or 1) == 0
            address = array.ctypes.data
            views.append(ctypes.pointer(_Memref(address, address, 0, array.size, 1)))
        packed = [ctypes.addressof(v) for v in views] + [ctypes.addressof(ctypes.c_int64(out.size))]
        count = ctypes.c_int64(out.size)
        packed[-1] = ctypes.addressof(count)
        block = (ctypes.c_void_p * len(packed))(*packed)
        function(ctypes.addressof(block))
        return out

    call.engine = engine  # type: ignore[attr-defined]  # the code lives as long as the engine
    return call
