# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""cuBLASLt through ctypes: matrix products prepared once, so that a launch table can start them.

Source: cuBLAS Library User Guide, chapter "Using the cublasLt API"; the numbers are those of its enumerations, which
versions 12 and 13 share. Nothing is compiled or linked against CUDA: the library is the one that PyTorch has loaded.
"""

import array
import contextlib
import ctypes
import functools
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from kiln.errors import KilnError
from kiln.runtime.cuda.loaded import loaded_library

__all__ = ["CublasLt", "LibraryError", "Matrix", "Prepared", "Problem", "cublaslt", "status_text"]

WORKSPACE_BYTES = 32 << 20
"""What an algorithm may use: NVIDIA's advice for Hopper, and PyTorch's choice."""

BIAS_POINTER = 8  # CUBLASLT_MATMUL_DESC_BIAS_POINTER
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE = 3, 4, 7  # cublasLtMatmulDescAttributes_t
_PLAIN, _WITH_BIAS = 1, 4  # cublasLtEpilogue_t
_ACTIVATIONS = {"": 0, "gelu": 32}  # beside the bias
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_MAX_WORKSPACE, _REDUCTIONS, _ALIGNMENT_A = 1, 3, 5  # cublasLtMatmulPreferenceAttributes_t; B, C and D follow A
_IN_SUM_TYPE = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
_SUM_32, _SUM_32_TF32, _SUM_64 = 68, 77, 70  # cublasComputeType_t
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType_t
_STATUS = {
    1: "not initialized", 3: "out of memory", 7: "invalid value", 8: "architecture mismatch",
    13: "execution failed", 14: "internal error", 15: "not supported", 16: "license error",
}  # fmt: skip


def status_text(status: int) -> str:
    """What a cublasStatus_t means."""
    return f"{_STATUS.get(status, 'unknown error')} (status {status})"


class LibraryError(KilnError):
    """cuBLASLt is missing, or has no algorithm for a product."""


@dataclass(frozen=True)
class Matrix:
    """A matrix of a product in elements: batch, row and column strides, one of the last two 1. alignment: bytes."""

    batch: int
    row: int
    column: int
    alignment: int = 16


@dataclass(frozen=True)
class Problem:
    """result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], plus bias[n] if there is one,
    and behind it the activation: "", or "gelu" (GELU through tanh).

    bias: of how many bytes its address is a multiple; 0 without one. tf32: whether tensor cores may round f32 operands.
    wide_sums: whether partial sums may only be added up in the type of the sums, as PyTorch's settings for
    reduced-precision reductions say.
    """

    dtype: str
    sizes: tuple[int, int, int, int]
    lhs: Matrix
    rhs: Matrix
    result: Matrix
    bias: int = 0
    activation: str = ""
    tf32: bool = False
    wide_sums: bool = False


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass
class Prepared:
    """A product ready to start: addresses of the library's structures, and bytes of workspace that it needs."""

    descriptor: int
    lhs: int
    rhs: int
    result: int
    algorithm: int
    one: int
    zero: int
    workspace: int
    keep: list[Any] = field(default_factory=list[Any])


class CublasLt:
    """The library, with what it has prepared so far. Thread-safe; `lock` guards the bias pointers of descriptors.

    Raises LibraryError for an unknown library file.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.lock = threading.Lock()
        self._handles: dict[int, int] = {}
        self._known: weakref.WeakValueDictionary[tuple[int, Problem, int], Prepared] = weakref.WeakValueDictionary()

    def address(self, symbol: str) -> int:
        """The address of one of the library's functions."""
        return ctypes.cast(getattr(self.library, symbol), ctypes.c_void_p).value or 0

    def check(self, status: int, what: str) -> None:
        """Raises LibraryError for a status that is none of success."""
        if status:
            raise LibraryError(f"{what}: cuBLASLt says: {status_text(status)}")

    def handle(self, device: int) -> int:
        """The library's handle for a GPU, whose context is current."""
        with self.lock:
            if device not in self._handles:
                made = ctypes.c_void_p()
                self.check(self.library.cublasLtCreate(ctypes.byref(made)), f"cublasLtCreate on GPU {device}")
                self._handles[device] = made.value or 0
            return self._handles[device]

    def prepare(self, device: int, problem: Problem, candidate: int = 0) -> Prepared:
        """The product with the algorithm in place `candidate` of the library's ranking (the last one, if it has fewer).

        Equal problems share structures, which go with the last user of the result. Raises LibraryError if there is no
        algorithm.
        """
        handle = self.handle(device)
        with self.lock:
            key = (device, problem, candidate)
            made = self._known.get(key)
            if made is None:
                made = self._known[key] = self._prepare(handle, problem, candidate)
            return made

    def candidates(self, device: int, problem: Problem, most: int = 8) -> int:
        """How many algorithms the library ranks for a product, `most` at most: what `candidate` may count up to."""
        handle = self.handle(device)
        with self.lock:
            return len(self._ranked(handle, self._describe(problem), problem, most))

    def _prepare(self, handle: int, problem: Problem, candidate: int) -> Prepared:
        made = self._describe(problem)
        ranked = self._ranked(handle, made, problem, candidate + 1)
        if not ranked:
            raise LibraryError(f"cuBLASLt has no algorithm for {problem}")
        chosen = ranked[min(candidate, len(ranked) - 1)]
        algorithm = array.array("Q", list(chosen.algorithm))
        made.algorithm, made.workspace = algorithm.buffer_info()[0], chosen.workspace
        made.keep.append(algorithm)
        return made

    def _describe(self, p: Problem) -> Prepared:
        """The structures of a product. The library counts columns first: it computes the transposed result, from the
        transposed operands in exchanged places.
        """
        wide = p.dtype == "float64"
        sums = _SUM_64 if wide else _SUM_32_TF32 if p.dtype == "float32" and p.tf32 else _SUM_32
        scales = array.array("d" if wide else "f", [1.0, 0.0])
        descriptor = ctypes.c_void_p()
        create = self.library.cublasLtMatmulDescCreate
        self.check(create(ctypes.byref(descriptor), sums, _TYPES["float64" if wide else "float32"]), "a product")
        batch, m, n, k = p.sizes
        rhs, turn_rhs = self._matrix(p.dtype, batch, (n, k), p.rhs.batch, p.rhs.column, p.rhs.row)
        lhs, turn_lhs = self._matrix(p.dtype, batch, (k, m), p.lhs.batch, p.lhs.column, p.lhs.row)
        result, _ = self._matrix(p.dtype, batch, (n, m), p.result.batch, 1, p.result.row)
        self._set(descriptor, _TRANSPOSE_A, ctypes.c_int32(turn_rhs))
        self._set(descriptor, _TRANSPOSE_B, ctypes.c_int32(turn_lhs))
        epilogue = (_WITH_BIAS if p.bias else 0) | _ACTIVATIONS[p.activation]
        self._set(descriptor, _EPILOGUE, ctypes.c_uint32(epilogue or _PLAIN))
        if p.bias:
            # Not an address: what algorithms are chosen by is how its multiples are aligned.
            self._set(descriptor, BIAS_POINTER, ctypes.c_void_p(p.bias))
        one = scales.buffer_info()[0]
        made = Prepared(
            descriptor=descriptor.value or 0,
            lhs=lhs.value or 0,
            rhs=rhs.value or 0,
            result=result.value or 0,
            algorithm=0,
            one=one,
            zero=one + scales.itemsize,
            workspace=0,
            keep=[scales],
        )
        # Not when the process ends: CUDA may be gone by then.
        weakref.finalize(made, _destroy, self.library, descriptor, [rhs, lhs, result]).atexit = False
        return made

    def _matrix(
        self, dtype: str, batch: int, sizes: tuple[int, int], stride: int, down: int, across: int
    ) -> tuple[ctypes.c_void_p, bool]:
        """The layout of a matrix of these sizes whose elements lie `down` and `across` apart, and whether it describes
        the transposed one: columns have to be lines of neighbours.
        """
        turned = down != 1 or (across == 1 and sizes[0] != 1)
        (rows, columns), line = (sizes[::-1], down) if turned else (sizes, across)
        layout = ctypes.c_void_p()
        create = self.library.cublasLtMatrixLayoutCreate
        code = create(
            ctypes.byref(layout),
            _TYPES[dtype],
            ctypes.c_uint64(rows),
            ctypes.c_uint64(columns),
            ctypes.c_int64(max(line, rows)),
        )
        self.check(code, f"a matrix of {sizes[1]} x {sizes[0]}")
        if batch != 1:
            place = self.library.cublasLtMatrixLayoutSetAttribute
            for name, value in ((_BATCH_COUNT, ctypes.c_int32(batch)), (_BATCH_STRIDE, ctypes.c_int64(stride))):
                size = ctypes.c_size_t(ctypes.sizeof(value))
                self.check(place(layout, name, ctypes.byref(value), size), "a batch of matrices")
        return layout, turned

    def _set(self, descriptor: ctypes.c_void_p, name: int, value: Any) -> None:
        place = self.library.cublasLtMatmulDescSetAttribute
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.check(place(descriptor, name, ctypes.byref(value), size), f"attribute {name} of a product")

    def _ranked(self, handle: int, made: Prepared, p: Problem, count: int) -> list[_Result]:
        """The library's algorithms, best first."""
        preference = ctypes.c_void_p()
        self.check(self.library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "a preference")
        wanted: list[tuple[int, Any]] = [(_MAX_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))]
        if p.wide_sums:
            wanted.append((_REDUCTIONS, ctypes.c_uint32(_IN_SUM_TYPE)))
        for i, matrix in enumerate((p.rhs, p.lhs, p.result, p.result)):
            wanted.append((_ALIGNMENT_A + i, ctypes.c_uint32(matrix.alignment)))
        for name, value in wanted:
            place = self.library.cublasLtMatmulPreferenceSetAttribute
            size = ctypes.c_size_t(ctypes.sizeof(value))
            self.check(place(preference, name, ctypes.byref(value), size), f"preference {name}")
        found, number = (_Result * count)(), ctypes.c_int(0)
        # "Not supported" is how it says that there is none.
        self.library.cublasLtMatmulAlgoGetHeuristic(
            ctypes.c_void_p(handle),
            ctypes.c_void_p(made.descriptor),
            ctypes.c_void_p(made.rhs),
            ctypes.c_void_p(made.lhs),
            ctypes.c_void_p(made.result),
            ctypes.c_void_p(made.result),
            preference,
            count,
            found,
            ctypes.byref(number),
        )
        self.library.cublasLtMatmulPreferenceDestroy(preference)
        return [x for x in list(found)[: number.value] if x.state == 0]


def _destroy(library: Any, descriptor: ctypes.c_void_p, layouts: list[ctypes.c_void_p]) -> None:
    library.cublasLtMatmulDescDestroy(descriptor)
    for layout in layouts:
        library.cublasLtMatrixLayoutDestroy(layout)


@functools.cache
def cublaslt() -> CublasLt:
    """The process's library: the one that PyTorch calls, which it loads with its first product.

    Raises LibraryError when there is none.
    """
    path = loaded_library("libcublasLt")
    if not path:
        with contextlib.suppress(RuntimeError, AssertionError):
            torch.cuda.current_blas_handle()
        path = loaded_library("libcublasLt")
    try:
        return CublasLt(ctypes.CDLL(path or f"libcublasLt.so.{(torch.version.cuda or '12').partition('.')[0]}"))
    except OSError as error:
        raise LibraryError(f"no cuBLASLt: {error}") from error
