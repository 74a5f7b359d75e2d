# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which matmul kernel, with which tiles.

Few rows of a rhs [n, k] are dot products; more rows are register tiles, with the rhs in
place or packed; many rows are blocks of the vendor's gemm, which compiles in a third of the time, where that uses the
CPU's widest vectors (`Isa.library_bytes`; on AMD's processors MKL keeps to AVX2). With vectors of 64 bytes
`choose_panels` comes first, for known sizes. blocks.py has the tiles and blocks, and
lowering/cpu/choices/products.toml the limits, with where they were measured.
"""

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    AmxInt8Schedule,
    BlockedSchedule,
    ByRowsSchedule,
    DotSchedule,
    DotTileSchedule,
    GemmSchedule,
    Int8DotSchedule,
    PanelSchedule,
    VendorSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.cpu.bf16 import has_pairs
from kiln.lowering.cpu.contraction.amx import has_amx
from kiln.lowering.cpu.isa import Isa
from kiln.lowering.cpu.matmul.blocks import (
    blocked_schedule,
    choose_integers,
    choose_pairs,
    choose_panels,
    choose_tiles,
    float_tiles_schedule,
    is_better_in_place,
    stream_schedule,
)
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.problem import MatmulProblem
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available

_ANY = 1 << 30


def choose_schedule(problem: MatmulProblem, isa: Isa, vendor: bool | None = None) -> GemmSchedule:
    """The schedule for rhs operands that are not frozen.

    Sizes and strides that are no ints count as dynamic. `vendor` says whether the vendor's gemm may be
    called (default: whether this torch has one that uses the machine's vectors). The result depends on nothing
    but the arguments.
    """
    problem = normalise(problem)
    if vendor is None:
        vendor = vendor_gemm_available() and isa.library_bytes >= isa.vector_bytes
    if isinstance(problem.m, int):
        return _for_rows(problem, isa, vendor, problem.m)
    limit = _dot_rows(problem, isa)
    small, large = (_for_rows(problem, isa, vendor, m) for m in (limit, 256))
    if isinstance(large, type(small)):  # two variants of one kernel are not worth their compile time
        return large
    return ByRowsSchedule(limit=limit, small=small, large=large)


def describe_schedule(schedule: GemmSchedule, isa: Isa) -> str:
    """What a product's schedule does and, where a library could do it instead, why or why not; for people."""
    if isinstance(schedule, ByRowsSchedule):
        small, large = (describe_schedule(part, isa) for part in (schedule.small, schedule.large))
        return f"up to {schedule.limit} rows {small}; above, {large}"
    if isinstance(schedule, VendorSchedule):
        return "blocks by the library's gemm"
    if isinstance(schedule, AmxBf16x3Schedule):
        return "tiles of AMX, f32 as three parts of bf16"
    tile = rhs = ""
    if isinstance(schedule, DotTileSchedule):
        tile = f" {schedule.mr}x{schedule.nr}"
    elif isinstance(schedule, PanelSchedule):
        tile = f" {schedule.mr}x{schedule.nv}"
        rhs = ", rhs a packed constant" if schedule.packed else ""
    if isinstance(schedule, (BlockedSchedule, VnniBf16Schedule)) and not rhs:
        rhs = f", rhs {'packed by each thread' if schedule.pack_rhs else 'in place'}"
    if isinstance(schedule, AmxBf16Schedule):
        return f"tiles of AMX{tile}{rhs or (', rhs as it is' if schedule.transposed else ', rhs packed')}"
    is_blocked = isinstance(schedule, BlockedSchedule)
    slower = is_blocked and isa.library_bytes < isa.vector_bytes and vendor_gemm_available()
    why = f" (the library would use {isa.library_bytes} of the {isa.vector_bytes} bytes of a vector)" if slower else ""
    return f"{schedule.how}{tile}{rhs}{why}"


def choose_packed_schedule(problem: MatmulProblem, isa: Isa) -> PanelSchedule | None:
    """The schedule for a frozen rhs, which is packed in panels of nv * width columns before the first call.

    None where that is no faster: for fewer than 4 rows, which the memory limits, for a number of rows known at run time
    only, small or half-precision matrices, and batches. On Intel's processors MKL uses all of a vector: for many rows
    its blocks are taken there.
    """
    problem = normalise(problem)
    m, n, k = problem.m, problem.n, problem.k
    integers, width, rules = problem.dtype == "i8", isa.vector_bytes // problem.sum_bytes, isa.rules.products
    pairs = has_pairs(problem.dtype, width, isa)
    if problem.batch or not integers and problem.lhs_strides[-1] != 1 or problem.dtype in ("bf16", "f16") and not pairs:
        return None
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or k < 16:
        return None
    must = pairs and problem.rhs_strides[-2] != 1  # pairs of a weight [k, n] are packed anyway
    if m < rules.packed_rows and not must:
        return None
    if integers:
        if n < width:
            return None
        found = choose_integers(problem, isa, m, packed=True)
        # Where there is AMX, the rows that are too few for it are dot products.
        return None if has_amx("i8", isa) and not isinstance(found, AmxInt8Schedule) else found
    if pairs:
        if n < width or is_better_in_place(problem, m, isa):
            return None
        return choose_tiles(problem, m, isa, packed=True) or choose_pairs(problem, m, isa, packed=True)
    if isa.float_parts and float_tiles_schedule(problem, m, isa) is not None:
        return None
    if m > rules.packed_rows_most and isa.library_bytes >= isa.vector_bytes and vendor_gemm_available():
        return None
    return choose_panels(problem, isa, packed=True)


def _dot_rows(problem: MatmulProblem, isa: Isa) -> int:
    """Up to how many rows products with a rhs [n, k] are dot products."""
    rules = isa.rules.products
    if problem.dtype == "i8":
        return rules.dot_rows_int8
    if not has_pairs(problem.dtype, isa.vector_bytes // problem.sum_bytes, isa):
        return rules.dot_rows
    most = rules.dot_rows_bf16
    return next((m for m in range(most) if choose_tiles(problem, m + 1, isa)), most)


def _for_rows(problem: MatmulProblem, isa: Isa, vendor: bool, m: int) -> GemmSchedule:
    """The schedule for about m rows (exactly m where the problem knows its rows)."""
    lhs_k, rhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-2], problem.rhs_strides[-1]
    integers = problem.dtype == "i8"
    few_columns = isinstance(problem.n, int) and problem.n <= 2 and not integers
    in_parts = float_tiles_schedule(problem, m, isa) if vendor and isa.float_parts else None
    first = in_parts or choose_panels(problem, isa)
    if first is not None:
        return first
    if lhs_k == 1 and rhs_k == 1 and (m <= _dot_rows(problem, isa) or few_columns):
        return _dot(problem, isa, m)
    if integers:
        return choose_integers(problem, isa, m)
    if has_pairs(problem.dtype, isa.vector_bytes // problem.sum_bytes, isa):
        return choose_tiles(problem, m, isa) or choose_pairs(problem, m, isa)
    if problem.m == 1 and rhs_n == 1:
        return stream_schedule(problem, isa)
    rules, n = isa.rules.products, problem.n
    small = isinstance(n, int) and (n <= rules.small_columns or max(n, m) < rules.small_size)
    if vendor and vendor_fits(problem) and m >= rules.vendor_rows and not small:
        width, (rows, columns) = isa.vector_bytes // problem.sum_bytes, rules.vendor_block
        return VendorSchedule(mc=rows, nc=columns, width=width)
    return blocked_schedule(problem, isa, m)


_TILES: dict[tuple[bool, bool], tuple[tuple[int, int, int], ...]] = {
    (False, False): ((1, 1, 8), (2, 2, 4), (4, 4, 2), (_ANY, 3, 4)),
    (False, True): ((1, 1, 8), (2, 2, 4), (4, 4, 4), (_ANY, 6, 4)),
    (True, False): ((1, 1, 4), (_ANY, 2, 4)),
    (True, True): ((1, 1, 8), (2, 2, 4), (_ANY, 4, 4)),
}
"""Of integers or not, with 32 vector registers or fewer: up to how many rows, and rows and columns of a tile of dot
products. Integers also have a sum of the row itself in registers."""


def _dot(problem: MatmulProblem, isa: Isa, m: int) -> DotTileSchedule:
    """Dot products for about m rows."""
    integers, width, rules = problem.dtype == "i8", isa.vector_bytes // problem.sum_bytes, isa.rules.products
    most = rules.dot_block
    mr, nr = next(tile for high, *tile in _TILES[integers, isa.vector_registers >= 32] if m <= high)
    if integers:
        return Int8DotSchedule(mr=mr, nr=min(nr, width), width=width, mc=most, nc=most)
    if isinstance(problem.n, int) and 0 < problem.n <= 2:
        mr, nr = 8 // problem.n if m >= 8 else min(m, 4), problem.n
    # Few rows re-read their part of the lhs for every column tile: it should stay in the first-level cache.
    kc, mc = rules.dot_row_steps if m == 1 else rules.dot_steps, min(max(m, 1), most)
    return DotSchedule(mr=max(mr, 1), nr=min(nr, width), width=width, mc=mc, nc=most, kc=kc)
