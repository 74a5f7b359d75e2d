# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Run one op on numpy arrays through the JIT: for tests, accuracy tables and benchmarks."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from kiln.errors import CompileError
from kiln.lowering.cpu.codegen import lower_to_llvm
from kiln.passes.expand_vector_math import ExpandVectorMath

__all__ = ["CompiledOp", "compile_op", "kernel_text"]

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


class CompiledOp:
    """A compiled kernel; call it with arrays (1-D, contiguous, a multiple of the width long).  bf16 is uint16."""

    def __init__(self, engine: ExecutionEngine, width: int, output: np.dtype):
        self._engine = engine  # the code lives as long as the engine
        address = engine.raw_lookup("_mlir_ciface_kernel")
        if not address:
            raise CompileError("the code needs a symbol that this process lacks")
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._width = width or 1
        self._output = output

    def __call__(self, *inputs: np.ndarray) -> np.ndarray:
        """The op of 1-D arrays of one length, a multiple of the vector's."""
        out = np.empty(inputs[0].shape, self._output)
        self.bind(*inputs, out)()
        return out

    def bind(self, *arrays: np.ndarray) -> Callable[[], None]:
        """A call without arguments on these inputs and this output."""
        values: list[Any] = []
        for array in arrays:
            if not (array.flags.c_contiguous and array.ndim == 1 and array.size % self._width == 0):
                raise ValueError(f"arrays must be 1-D, contiguous and a multiple of {self._width} long")
            values.append(ctypes.pointer(_Memref(array.ctypes.data, array.ctypes.data, 0, array.size, 1)))
        values.append(ctypes.c_int64(arrays[-1].size))
        block = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        function, address = self._function, ctypes.addressof(block)

        def call(keep: tuple[Any, ...] = (self, arrays, values, block)) -> None:
            function(address)

        return call


def compile_op(
    op: str, inputs: list[str], output: str, width: int, attributes: str = "", expand: bool = True
) -> CompiledOp:
    """Compiles one op for ``width`` lanes at a time (0: scalars).  ``expand=False`` leaves the op to LLVM."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = ir.Module.parse(kernel_text(op, inputs, output, width, attributes))
        module.body.operations[0].attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        if expand:
            ExpandVectorMath().run(module)
            module.operation.verify()
        lower_to_llvm(module, "kernel")
        engine = ExecutionEngine(module, opt_level=2)
    return CompiledOp(engine, width, np.dtype({v: k for k, v in _ELEMENT.items()}[output]))
