# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""MLIR's C API by ctypes: from a serialised module in the LLVM dialect to an object file, without the interpreter lock.

The bindings' ExecutionEngine keeps the lock for as long as LLVM works; a foreign function of ctypes releases it. What
is called here touches no Python object and no context of the bindings: `compile_to_file` reads the module into a
context of its own, so that calls may run in several threads at once while another one builds IR.

Sources: mlir-c/{IR,Diagnostics,ExecutionEngine}.h, mlir-c/Dialect/LLVM.h, llvm-c/Support.h.
"""

import ctypes
import functools
import platform
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kiln.errors import CompileError

__all__ = ["compile_to_file"]

_OPTIONS = ("-disable-lsr", "-vectorize-slp=false") if platform.machine() in ("x86_64", "AMD64") else ()
"""LLVM's options, for all that this library compiles in the process (torch-mlir's users alone: PyTorch, Triton and
llvmlite have LLVMs of their own); measured on x86 alone (docs/cpu.md).

Loop strength reduction takes up to a third of LLVM's time on unrolled tiles, and x86 addresses most of what it would
simplify. The SLP vectoriser puts index arithmetic of scalars into vectors (Kiln's loops are vectors already), and
LLVM 24 (10dbfc48) for AVX-512 takes a wrong lane of such a vector where it is broadcast: pixels of the last columns
of an image were computed from one row instead of two."""


class _Handle(ctypes.Structure):
    """MlirContext, MlirModule, MlirDiagnostic and the like: a struct of one pointer, passed by value."""

    _fields_ = (("pointer", ctypes.c_void_p),)


class _String(ctypes.Structure):
    """MlirStringRef."""

    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))

    @classmethod
    def of(cls, data: bytes) -> "_String":
        return cls(data, len(data))


_DiagnosticHandler = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p, ctypes.c_void_p)
"""MlirLogicalResult(MlirDiagnostic, void*); both structs of one word are passed as that word."""
_StringCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
"""void(MlirStringRef, void*), the string as its two words."""


_loading = threading.Lock()


def _library() -> ctypes.CDLL:
    """The library with MLIR and LLVM that the bindings use."""
    with _loading:  # options are set once, before anything is compiled
        return _loaded()


@functools.cache
def _loaded() -> ctypes.CDLL:
    import torch_mlir._mlir_libs as libraries

    found = sorted(Path(str(libraries.__file__)).parent.glob("libTorchMLIRAggregateCAPI.*"))
    if not found:
        raise CompileError("torch-mlir comes without the library of MLIR's C API")
    library = ctypes.CDLL(str(found[0]))

    def declare(name: str, result: Any, *arguments: Any) -> None:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments

    declare("LLVMParseCommandLineOptions", None, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p)
    declare("mlirContextCreateWithThreading", _Handle, ctypes.c_bool)
    declare("mlirContextDestroy", None, _Handle)
    declare("mlirContextAttachDiagnosticHandler", ctypes.c_uint64, _Handle, _DiagnosticHandler, ctypes.c_void_p,
            ctypes.c_void_p)  # fmt: skip
    declare("mlirDiagnosticPrint", None, _Handle, _StringCallback, ctypes.c_void_p)
    declare("mlirGetDialectHandle__llvm__", _Handle)
    declare("mlirDialectHandleRegisterDialect", None, _Handle, _Handle)
    declare("mlirModuleCreateParse", _Handle, _Handle, _String)
    declare("mlirModuleDestroy", None, _Handle)
    declare("mlirExecutionEngineCreate", _Handle, _Handle, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_bool,
            ctypes.c_bool)  # fmt: skip
    declare("mlirExecutionEngineRegisterSymbol", None, _Handle, _String, ctypes.c_void_p)
    declare("mlirExecutionEngineLookup", ctypes.c_void_p, _Handle, _String)
    declare("mlirExecutionEngineDumpToObjectFile", None, _Handle, _String)
    declare("mlirExecutionEngineDestroy", None, _Handle)
    words = [b"kiln", *(option.encode() for option in _OPTIONS)]
    # An option that another version lacks is passed over: with this entry point LLVM neither exits nor writes.
    library.LLVMParseCommandLineOptions(len(words), (ctypes.c_char_p * len(words))(*words), None)
    return library


def compile_to_file(module: bytes, symbol: str, declared: Sequence[str], opt_level: int, path: str) -> None:
    """Compiles a module for the host CPU and writes the object file to `path`. Thread-safe.

    Args:
      module: MLIR bytecode (or text) of a module in the LLVM dialect.
      symbol: a function that it defines.
      declared: functions that it only declares. The engine links what it compiles, so each is bound to a placeholder;
        nothing is run.
      opt_level: LLVM's -O level, 0 to 3.

    Raises CompileError with MLIR's diagnostics when LLVM rejects the module.
    """
    library = _library()
    messages: list[str] = []
    handler = _collecting(library, messages)
    context = library.mlirContextCreateWithThreading(False)
    try:
        library.mlirContextAttachDiagnosticHandler(context, handler, None, None)
        library.mlirDialectHandleRegisterDialect(library.mlirGetDialectHandle__llvm__(), context)
        parsed = library.mlirModuleCreateParse(context, _String.of(module))
        if not parsed.pointer:
            raise CompileError(f"@{symbol} is no module in the LLVM dialect{_told(messages)}")
        try:
            _compile(library, parsed, symbol, declared, opt_level, path, messages)
        finally:
            library.mlirModuleDestroy(parsed)
    finally:
        library.mlirContextDestroy(context)


def _compile(
    library: ctypes.CDLL,
    module: _Handle,
    symbol: str,
    declared: Sequence[str],
    opt_level: int,
    path: str,
    messages: list[str],
) -> None:
    engine = library.mlirExecutionEngineCreate(module, opt_level, 0, None, True, False)
    if not engine.pointer:
        raise CompileError(f"LLVM translation of @{symbol} failed{_told(messages)}")
    try:
        for name in declared:
            library.mlirExecutionEngineRegisterSymbol(engine, _String.of(name.encode()), 1)
        if not library.mlirExecutionEngineLookup(engine, _String.of(symbol.encode())):
            raise CompileError(f"LLVM compiled no @{symbol}{_told(messages)}")
        library.mlirExecutionEngineDumpToObjectFile(engine, _String.of(path.encode()))
    finally:
        library.mlirExecutionEngineDestroy(engine)


def _collecting(library: ctypes.CDLL, messages: list[str]) -> Callable[..., Any]:
    """A handler that adds the text of each diagnostic to `messages`. Keep it for as long as the context lives."""

    def handle(diagnostic: int, _: Any) -> int:
        parts: list[bytes] = []

        def append(data: Any, length: int, _: Any) -> None:
            parts.append(ctypes.string_at(data, length))

        collect = _StringCallback(append)
        library.mlirDiagnosticPrint(_Handle(diagnostic), collect, None)
        messages.append(b"".join(parts).decode(errors="replace"))
        return 1  # handled: not for stderr

    return _DiagnosticHandler(handle)


def _told(messages: list[str]) -> str:
    return f": {'; '.join(messages)}" if messages else ""
