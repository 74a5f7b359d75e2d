# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""LLVM-dialect module -> object file bytes, through MLIR's ExecutionEngine.

The engine is only the code generator here: the object is what is kept, and ``kiln.runtime.loader`` puts it into
memory (in this process or another one). The engine insists on linking the module before it gives the object out, so
every function that the module declares is bound to a placeholder address; nothing is run.
"""

import ctypes
import os
import tempfile

from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine

from kiln.errors import CompileError

__all__ = ["object_bytes"]

# Where objects pass through: memory if there is any, since the engine can only write to a named file.
_TEMPORARY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def object_bytes(module: ir.Module, symbol: str, opt_level: int = 2) -> bytes:
    """Compiles a module in the LLVM dialect for the host CPU.

    Args:
      module: llvm.func ops only; must define `symbol`.
      symbol: a defined function (its lookup makes the engine compile the module).
      opt_level: LLVM's -O level, 0 to 3.

    Raises CompileError when LLVM rejects the module.
    """
    declared = [
        ir.StringAttr(op.attributes["sym_name"]).value
        for op in module.body
        if op.operation.name == "llvm.func" and not len(op.operation.regions[0].blocks)
    ]
    try:
        engine = ExecutionEngine(module, opt_level=opt_level)
    except RuntimeError as error:
        raise CompileError(f"LLVM translation of @{symbol} failed: {error}") from error
    for name in declared:
        if not name.startswith("llvm."):
            engine.raw_register_runtime(name, ctypes.c_void_p(1))
    if not engine.raw_lookup(symbol):
        raise CompileError(f"LLVM compiled no @{symbol}")
    handle, path = tempfile.mkstemp(suffix=".o", dir=_TEMPORARY)
    os.close(handle)
    try:
        engine.dump_to_object_file(path)
        with open(path, "rb") as file:
            return file.read()
    finally:
        os.unlink(path)
