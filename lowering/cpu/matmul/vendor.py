# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul blocks by the vendor's BLAS (MKL inside libtorch_cpu), with our epilogue on the block in cache.

Called from inside the parallel region: each thread multiplies its own blocks, and MKL, which sees that it
is inside of a parallel region, runs sequentially.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import func, llvm

from kiln.dialects.schedules.cpu import VendorSchedule
from kiln.dialects.walk import enclosing
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.matmul.partition import for_each_block, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, MatmulProblem
from kiln.lowering.cpu.problem import KernelContext, Size, element_type, known, offset_of
from kiln.lowering.cpu.sizes import LINE, round_up
from kiln.runtime.threads import symbol_address

# The Fortran interface: torch's wheels export no cblas_sgemm. All arguments go by address, matrices are
# column-major, so a row-major C = A B is asked for as C^T = B^T A^T.
_NAMES = {"f32": "sgemm_", "f64": "dgemm_"}


def vendor_gemm_available() -> bool:
    """Whether the installed torch exports sgemm_ and dgemm_ with MKL behind them (so that they may be
    called from several threads at once, and run sequentially there).
    """
    return all(symbol_address(name) for name in (*_NAMES.values(), "MKL_Get_Max_Threads"))


def vendor_fits(problem: MatmulProblem) -> bool:
    """Whether dtype and strides are ones BLAS takes: one unit stride in each operand, a leading dimension that is
    known to be no less than a row, so that rows do not overlap.
    """
    if problem.dtype not in _NAMES or problem.rhs_dtype is not None:
        return False
    lhs, rhs = problem.lhs_strides, problem.rhs_strides
    return _fits(lhs[-2], lhs[-1], problem.m, problem.k) and _fits(rhs[-2], rhs[-1], problem.k, problem.n)


def _fits(row: object, col: object, rows: object, cols: object) -> bool:
    """For an operand [rows, cols]."""

    def ample(stride: object, extent: object) -> bool:
        return isinstance(stride, int) and isinstance(extent, int) and stride >= extent

    return (col == 1 and ample(row, cols)) or (row == 1 and ample(col, rows))


def vendor_layout(problem: MatmulProblem, schedule: VendorSchedule) -> dict[str, int]:
    """Columns `nc` of a row of sums in scratch, which an epilogue without a destination needs, and its `bytes`."""
    nc = round_up(schedule.nc, LINE // problem.sum_bytes)
    return {"nc": nc, "bytes": schedule.mc * nc * problem.sum_bytes}


def emit_vendor(
    b: Builder, problem: MatmulProblem, s: VendorSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel. Needs `vendor_fits`."""
    nc = vendor_layout(problem, s)["nc"]
    scratch = Place(b.view(ctx.scratch, 0, s.mc * nc, element_type(problem.sum_dtype)), 0, nc)

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        target, origin, size = epilogue.destination(b, batch), (m0, n0), (rows, cols)
        sums = scratch if target is None else target.block(b, m0, n0)
        call_gemm(b, problem, operands, batch, origin, size, sums)
        if target is None or not epilogue.is_plain_store:
            run_epilogue(b, epilogue, batch, origin, size, sums, s.width)

    for_each_block(b, problem, ctx, s.mc, nc, LINE // problem.sum_bytes, block, 8)


def call_gemm(
    b: Builder, p: MatmulProblem, operands: Buffers, batch: list[Index], origin: tuple[Index, Index],
    size: tuple[Index, Index], sums: Place,
) -> None:  # fmt: skip
    """Writes the sums of the block of `size` rows and columns from `origin` on to `sums`, by the library."""
    (rows, cols), k, element, name = size, known(p.k), element_type(p.sum_dtype), _NAMES[p.dtype]
    turned = *p.rhs_strides[:-2], p.rhs_strides[-1], p.rhs_strides[-2]
    lhs, ldb = _operand(b, operands.lhs, operands.lhs_offset, [*batch, origin[0]], p.lhs_strides, known(p.m), k)
    rhs, lda = _operand(b, operands.rhs, operands.rhs_offset, [*batch, origin[1]], turned, known(p.n), k)
    transposed = "T" if p.rhs_strides[-2] == 1 else "N", "N" if p.lhs_strides[-1] == 1 else "T"
    letters = [b.int_(ord(letter), b.i8) for letter in transposed]
    ldc = b.maxi(sums.stride, b.maxi(cols, 1))
    m, n, length, lda, ldb, ldc = (b.integer_of(x, b.i32) for x in (cols, rows, k, lda, ldb, ldc))
    one, zero, result = b.float_(1.0, element), b.zero(element), b.address(sums.buffer, sums.at)
    arguments = [*letters, m, n, length, one, rhs, lda, lhs, ldb, zero, result, ldc]
    pointer = ir.Type.parse("!llvm.ptr")
    for i, x in enumerate(arguments):
        if x.type != pointer:
            arguments[i] = b.in_frame(("argument", i), x.type)
            llvm.store(x, arguments[i])
    _declare(b, name, [pointer] * len(arguments))
    func.call([], name, arguments)


def _operand(
    b: Builder, buffer: ir.Value, offset: Index, first: list[Index], strides: Sequence[Size], lines: Index, k: Index
) -> tuple[ir.Value, Index]:
    """The address of a block's lines, and the elements from line to line, whose steps of k are neighbours, or from step
    to step, whose lines are. strides: of [*batch, line, k]. first: the index of the block's first line.
    """
    pitch, extent = (strides[-2], k) if strides[-1] == 1 else (strides[-1], lines)
    at = offset_of(b, offset, first, strides[:-1])
    return b.address(buffer, at), b.maxi(known(pitch), b.maxi(extent, 1))


def _declare(b: Builder, name: str, types: list[ir.Type]) -> None:
    """Declares the C function once in the module of the kernel."""
    body = enclosing(b.entry, "builtin.module").regions[0].blocks[0]
    if not any("sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == name for op in body):
        with ir.InsertionPoint.at_block_begin(body):
            func.FuncOp(name, (types, []), visibility="private")
