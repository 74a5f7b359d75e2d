# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""LLVM-dialect module -> object file bytes, through MLIR's ExecutionEngine, in threads.

The engine is only the code generator here: the object is what is kept, and ``kiln.runtime.loader`` puts it into
memory (in this process or another one).

LLVM works without the interpreter lock (`mlir_capi`) in a pool of as many threads as there are cores, while the caller
goes on with the next kernel. The pool is made at first use, left behind by forked processes, which make their own, and
ended with the interpreter.
"""

import io
import os
import tempfile
from concurrent.futures import Future

from torch_mlir import ir

from kiln.errors import CompileError
from kiln.lowering.compiler_threads import compiler_threads
from kiln.lowering.cpu.mlir_capi import compile_to_file

__all__ = ["object_bytes", "start"]

# Where objects pass through: memory if there is any, since the engine can only write to a named file.
_TEMPORARY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def start(module: ir.Module, symbol: str, opt_level: int = 2) -> "Future[bytes]":
    """Begins to compile a module in the LLVM dialect for the host CPU; the result is what `object_bytes` returns.

    The module is serialised before this returns and may be changed or dropped then.
    """
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    return compiler_threads("kiln-llvm").submit(_compile, data.getvalue(), symbol, _declared(module), opt_level)


def object_bytes(module: ir.Module, symbol: str, opt_level: int = 2) -> bytes:
    """Compiles a module in the LLVM dialect for the host CPU.

    Args:
      module: llvm.func ops only; must define `symbol`.
      symbol: a defined function (its lookup makes the engine compile the module).
      opt_level: LLVM's -O level, 0 to 3.

    Raises CompileError when LLVM rejects the module.
    """
    return start(module, symbol, opt_level).result()


def _declared(module: ir.Module) -> list[str]:
    """The functions that a module calls and does not define, LLVM's intrinsics excepted."""
    names = [
        ir.StringAttr(op.attributes["sym_name"]).value
        for op in module.body
        if op.operation.name == "llvm.func" and not len(op.operation.regions[0].blocks)
    ]
    return [name for name in names if not name.startswith("llvm.")]


def _compile(module: bytes, symbol: str, declared: list[str], opt_level: int) -> bytes:
    handle, path = tempfile.mkstemp(suffix=".o", dir=_TEMPORARY)
    os.close(handle)
    try:
        compile_to_file(module, symbol, declared, opt_level, path)
        with open(path, "rb") as file:
            data = file.read()
    finally:
        os.unlink(path)
    if not data:
        raise CompileError(f"LLVM wrote no object for @{symbol}")
    return data
