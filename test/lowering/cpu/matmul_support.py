# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stand-alone kernels around the matmul and attention emitters, for tests and benchmarks."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.problem import KernelContext
from kiln.lowering.cpu.rules import Rules, rules_of
from kiln.lowering.cpu.tune.guarded import Guarded
from kiln.runtime.loader import load
from kiln.runtime.threads import symbol_address

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.bool: "i8"}


@dataclass(frozen=True)
class Machine:
    """A stated machine, so that tests do not depend on the host's; with the instructions of the CPU that code is made
    for, since tests run what they emit."""

    vector_bytes: int = 32
    vector_registers: int = 16
    library_bytes: int = 64
    l2_bytes: int = 256 << 10
    float_parts: bool = False

    def has(self, feature: str) -> bool:
        return isa.target().has(feature)

    @property
    def rules(self) -> Rules:
        return rules_of(self.vector_bytes)


class StoreEpilogue:
    """out = function(sum + bias[n]), with out[*batch, m, n] at the given strides (unit along n)."""

    def __init__(
        self,
        out: ir.Value,
        strides: Sequence[Index],
        bias: ir.Value | None = None,
        function: Callable[[Builder, ir.Value], ir.Value] | None = None,
        in_place: bool = True,
    ):
        self.out, self.strides, self.bias, self.function = out, list(strides), bias, function
        self.element = ir.MemRefType(out.type).element_type
        self.in_place = in_place

    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        if self.bias is not None:
            acc = b.addf(acc, b.vload(self.bias, column, width, mask))
        if self.function is not None:
            acc = self.function(b, acc)
        at = b.sum_(column, *(b.muli(i, s) for i, s in zip(index, self.strides, strict=True)))
        b.vstore(b.cast_float(acc, self.element), self.out, at, mask)

    def destination(self, b: Builder, batch: Sequence[Index]) -> Place | None:
        if not self.in_place or not isinstance(self.element, (ir.F32Type, ir.F64Type)):
            return None
        at = b.sum_(*(b.muli(i, s) for i, s in zip(batch, self.strides[:-1], strict=True)))
        return Place(self.out, at, self.strides[-1])

    @property
    def is_plain_store(self) -> bool:
        return self.bias is None and self.function is None


def rational_gate(b: Builder, x: ir.Value) -> ir.Value:
    """x / (1 + x * x): an epilogue function without calls of the math dialect."""
    return b.divf(x, b.fma(x, x, b.float_(1.0, x.type)))


Emit = Callable[[Builder, list[ir.Value], list[ir.Value], KernelContext], None]


def vector_stage(dtypes: Sequence[str], symbols: int, emit: Emit) -> ir.Module:
    """A module with func @kernel whose body `emit(b, buffers, symbols, ctx)` writes; in the active context.

    `dtypes` are the element types of the memrefs.
    """
    dynamic = ir.ShapedType.get_dynamic_size()
    index = ir.IndexType.get()
    memrefs = [ir.MemRefType.get([dynamic], ir.Type.parse(t)) for t in (*dtypes, "i8")]
    types = [*memrefs[:-1], *[index] * symbols, memrefs[-1], index, index]
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("kernel", (types, []))
        block = function.add_entry_block()
        arguments = list(block.arguments)
        with ir.InsertionPoint(block):
            scratch, tid, nt = arguments[-3:]
            n = len(dtypes)
            emit(Builder(block), arguments[:n], arguments[n:-3], KernelContext(tid, nt, scratch))
            func.return_([])
    module.operation.verify()
    return module


def show(dtypes: Sequence[str], symbols: int, emit: Emit) -> None:
    """Prints the vector-stage kernel, for lit tests."""
    with ir.Context(), ir.Location.unknown():
        print(vector_stage(dtypes, symbols, emit))


class Kernel:
    """A compiled kernel that takes torch tensors and ints; `scratch` is its bytes of scratch per thread."""

    def __init__(self, dtypes: Sequence[str], symbols: int, scratch: int, emit: Emit, kind: str = "matmul"):
        with ir.Context() as context, ir.Location.unknown():
            context.enable_multithreading(False)
            self.object = compile_kernel(vector_stage(dtypes, symbols, emit), "kernel", kind=kind)
        self.code = load([self.object.object_bytes], ["kernel_entry"])
        self.scratch = -(-scratch // 64) * 64
        address = self.code["kernel_entry"]
        self._direct = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._address = address
        self._parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(
            symbol_address("GOMP_parallel")
        )

    def bind(
        self,
        tensors: Sequence[torch.Tensor],
        symbols: Sequence[int] = (),
        threads: int = 1,
        checked: bool = False,
    ) -> Callable[[], None]:
        """A zero-argument call with everything prepared; `checked`: it fails if it wrote beyond its scratch memory."""
        scratch = Guarded(self.scratch * threads)
        base = scratch.bytes.data_ptr()
        words = [t.data_ptr() for t in tensors] + list(symbols) + [base, self.scratch, int(threads > 1)]
        block = (ctypes.c_int64 * len(words))(*words)
        address = ctypes.addressof(block)
        keep = (scratch, block, tensors)

        def call(_keep: object = keep) -> None:
            if threads > 1:
                self._parallel(self._address, address, threads, 0)
            else:
                self._direct(address)
            if checked:
                assert scratch.is_intact(), "written beyond scratch memory"

        return call

    def __call__(self, *tensors: torch.Tensor, symbols: Sequence[int] = (), threads: int = 1) -> None:
        self.bind(tensors, symbols, threads, checked=True)()


def bf16_operand(rows: int, cols: int, layout: str) -> torch.Tensor:
    """Row-major, transposed or without unit stride; NaN around it, which nothing may read into a sum."""
    if layout == "t":
        return bf16_operand(cols, rows, "n").mT
    step = 3 if layout == "s" else 1
    memory = torch.full((rows, cols * step + 3), torch.nan, dtype=torch.bfloat16)
    memory[:, : cols * step : step] = torch.randn(rows, cols)
    return memory[:, : cols * step : step] if cols else memory[:, :0]
