# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul blocks by the vendor's BLAS (MKL inside libtorch_cpu), with our epilogue on the block in cache.

Called from inside the parallel region: each thread multiplies its own blocks, and MKL, which sees that it
is inside of a parallel region, runs sequentially.
"""

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects.schedules.cpu import VendorSchedule
from kiln.dialects.walk import enclosing
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.matmul.partition import for_each_block, offset_of, run_epilogue
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, element_type, known
from kiln.runtime.threads import symbol_address

# The Fortran interface: torch's wheels export no cblas_sgemm. All arguments go by address, matrices are
# column-major, so a row-major C = A B is asked for as C^T = B^T A^T.
_NAMES = {"f32": "sgemm_", "f64": "dgemm_"}
ARGUMENT_BYTES = 128
"""Of scratch: six i32 sizes at 0, alpha and beta at 64, the two letters at 96."""


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
    """Block size and the scratch `elements` and `bytes` that an epilogue without a destination needs."""
    unit = LINE // problem.sum_bytes
    nc = round_up(schedule.nc, unit)
    elements = round_up(schedule.mc * nc, unit)
    return {
        "mc": schedule.mc,
        "nc": nc,
        "elements": elements,
        "bytes": elements * problem.sum_bytes + ARGUMENT_BYTES,
    }


def emit_vendor(
    b: Builder, problem: MatmulProblem, s: VendorSchedule, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: mc, nc, width. Needs `vendor_fits`."""
    lay = vendor_layout(problem, s)
    sum_type = element_type(problem.sum_dtype)
    gemm = Gemm(b, problem, operands, ctx.scratch, ctx.scratch_offset)
    area = b.view(ctx.scratch, b.addi(ctx.scratch_offset, ARGUMENT_BYTES), lay["elements"], sum_type)
    scratch = Place(area, 0, lay["nc"])

    def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        target, origin, size = epilogue.destination(b, batch), (m0, n0), (rows, cols)
        sums = scratch if target is None else target.block(b, m0, n0)
        gemm.call(batch, origin, size, sums)
        if target is None or not epilogue.is_plain_store:
            run_epilogue(b, epilogue, batch, origin, size, sums, s.width)

    for_each_block(b, problem, ctx, lay["mc"], lay["nc"], LINE // problem.sum_bytes, block, 8)


class Gemm:
    """Calls of the library for blocks of a problem; its arguments lie in `ARGUMENT_BYTES` of scratch from `offset`."""

    def __init__(self, b: Builder, problem: MatmulProblem, operands: Buffers, scratch: ir.Value, offset: Index):
        self.b, self.p, self.operands, self.scratch, self.offset = b, problem, operands, scratch, offset
        self.name = _NAMES[problem.dtype]
        _declare(b, self.name)
        self.lhs_row, self.lhs_k = known(problem.lhs_strides[-2]), known(problem.lhs_strides[-1])
        self.rhs_k, self.rhs_col = known(problem.rhs_strides[-2]), known(problem.rhs_strides[-1])
        sum_type = element_type(problem.sum_dtype)
        self.sizes = b.view(scratch, offset, 6, b.i32)
        factors = b.view(scratch, b.addi(offset, 64), 16 // problem.sum_bytes, sum_type)
        b.store(b.float_(1.0, sum_type), factors, 0)
        b.store(b.float_(0.0, sum_type), factors, 8 // problem.sum_bytes)
        for i, plain in enumerate((self.rhs_col == 1, self.lhs_k == 1)):
            b.store(b.int_(ord("N" if plain else "T"), b.i8), scratch, b.addi(offset, 96 + i))

    def call(
        self,
        batch: list[Index],
        origin: tuple[Index, Index],
        size: tuple[Index, Index],
        sums: Place,
    ) -> None:
        """Writes the sums of the block of `size` rows and columns from `origin` on to `sums`."""
        b, p, k = self.b, self.p, known(self.p.k)
        (m0, n0), (rows, cols) = origin, size
        lhs = offset_of(b, self.operands.lhs_offset, batch, p.lhs_strides[:-2])
        rhs = offset_of(b, self.operands.rhs_offset, batch, p.rhs_strides[:-2])
        lhs, rhs = b.addi(lhs, b.muli(m0, self.lhs_row)), b.addi(rhs, b.muli(n0, self.rhs_col))
        lda = b.maxi(self.lhs_row, b.maxi(k, 1)) if self.lhs_k == 1 else b.maxi(self.lhs_k, b.maxi(known(p.m), 1))
        ldb = b.maxi(self.rhs_k, b.maxi(known(p.n), 1)) if self.rhs_col == 1 else b.maxi(self.rhs_col, b.maxi(k, 1))
        for i, x in enumerate((cols, rows, k, ldb, lda, b.maxi(sums.stride, b.maxi(cols, 1)))):
            b.store(b.integer_of(x, b.i32), self.sizes, i)
        places = (*(4 * i for i in range(6)), 64, 72, 96, 97)
        pointers = [b.address(self.scratch, b.addi(self.offset, place)) for place in places]
        n_at, m_at, k_at, ldb_at, lda_at, ldc_at, alpha, beta, trans_b, trans_a = pointers
        a, c, right = (
            b.address(self.operands.lhs, lhs),
            b.address(sums.buffer, sums.at),
            b.address(self.operands.rhs, rhs),
        )
        arguments = [trans_b, trans_a, n_at, m_at, k_at, alpha, right, ldb_at, a, lda_at, beta, c, ldc_at]
        func.call([], self.name, arguments)


def _declare(b: Builder, name: str) -> None:
    """Declares the C function once in the module of the kernel."""
    body = enclosing(b.entry, "builtin.module").regions[0].blocks[0]
    for op in body:
        if "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return
    ptr = ir.Type.parse("!llvm.ptr")
    with ir.InsertionPoint.at_block_begin(body):
        func.FuncOp(name, ([ptr] * 13, []), visibility="private")
