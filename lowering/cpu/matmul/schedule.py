# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which matmul kernel, with which tiles.

Few rows of a rhs [n, k] are dot products, one row of [k, n] is streamed; more rows are register tiles, with the rhs in
place or packed; many rows are blocks of the vendor's gemm, which compiles in a third of the time, where that uses the
CPU's widest vectors (`Isa.library_bytes`; on AMD's processors MKL keeps to AVX2). With vectors of 64 bytes
`choose_panels` comes first, for known sizes.
Measured: "products: which kernel by rows" in benchmarks/results/performance/epyc-kernel-rules.json.
"""

from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    BlockedSchedule,
    ByRowsSchedule,
    DotSchedule,
    DotTileSchedule,
    GemmSchedule,
    PanelSchedule,
    StreamSchedule,
    VendorSchedule,
    VnniBf16Schedule,
)
from kiln.lowering.cpu.contraction.bf16 import has_pairs
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.integers import choose_integers, choose_packed_integers
from kiln.lowering.cpu.matmul.pairs import choose_pairs
from kiln.lowering.cpu.matmul.panels_schedule import COLUMN_TIMES, choose_panels, panel_vectors
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem, Size
from kiln.lowering.cpu.matmul.tiles_schedule import choose_float_tiles, choose_tiles, is_better_in_place
from kiln.lowering.cpu.matmul.vendor import vendor_fits, vendor_gemm_available

_VENDOR_ROWS = {32: 96, 64: 33}  # by vector bytes: from how many rows the vendor's kernel is taken
_DOT_ROWS = {32: 12, 64: 32}
_DOT_ROWS_BF16 = 8  # where bf16 is multiplied in pairs, and tiles of AMX do not take it before
_IN_PLACE_ROWS = {32: 32, 64: 129}  # from how many rows of the lhs a rhs [k, n] is packed; where it has short rows:
_SHORT_ROWS = {32: 96, 64: 257}
_HALF_ROWS = 32
_STEPS = {32: 0, 64: 384}  # of k that are summed at once, whatever the first-level cache holds
_PANEL_BYTES = 24 << 10  # of one rhs panel: three quarters of a 32 KiB first-level cache
_SMALL_N = 128
_IN_PLACE_BYTES = 4096  # of a rhs row: the next row is on the next page


def choose_schedule(problem: MatmulProblem, isa: Isa, vendor: bool | None = None) -> GemmSchedule:
    """The schedule for rhs operands that are not frozen.

    Sizes and strides that are no ints count as dynamic. `vendor` says whether the vendor's gemm may be
    called (default: whether this torch has one that uses the machine's vectors). The result depends on nothing
    but the arguments.
    """
    problem = normalise(problem)
    if problem.dtype == "i8":
        return choose_integers(problem, isa)
    if vendor is None:
        vendor = vendor_gemm_available() and isa.library_bytes >= isa.vector_bytes
    if isinstance(problem.m, int):
        return _for_rows(problem, isa, vendor, problem.m)
    limit = _dot_rows(problem, isa)
    small, large = (_for_rows(problem, isa, vendor, m) for m in (limit, 256))
    if type(small) is type(large):  # two variants of one kernel are not worth their compile time
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
    kernel = schedule.kernel.split(".")[-1]
    is_blocked = isinstance(schedule, BlockedSchedule)
    slower = is_blocked and isa.library_bytes < isa.vector_bytes and vendor_gemm_available()
    why = f" (the library would use {isa.library_bytes} of the {isa.vector_bytes} bytes of a vector)" if slower else ""
    return f"{kernel}{tile}{rhs}{why}"


_PACKED_ROWS = 4
_PACKED_ROWS_MOST = 256  # where the library's kernels are as wide


def choose_packed_schedule(problem: MatmulProblem, isa: Isa) -> PanelSchedule | None:
    """The schedule for a frozen rhs, which is packed in panels of nv * width columns before the first call.

    None where that is no faster: for fewer than 4 rows, which the memory limits, for a number of rows known at run time
    only, small or half-precision matrices, and batches. On Intel's processors MKL uses all of a vector: for many rows
    its blocks are taken there.
    Measured: "products with a constant: packed before" in epyc-kernel-rules.json.
    """
    problem = normalise(problem)
    m, n, k = problem.m, problem.n, problem.k
    if has_pairs(problem.dtype, isa.vector_bytes // problem.sum_bytes, isa):
        return _packed_pairs(problem, isa)
    if problem.dtype == "i8":
        return choose_packed_integers(problem, isa)
    if problem.batch or problem.dtype not in ("f32", "f64") or problem.lhs_strides[-1] != 1:
        return None
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or m < _PACKED_ROWS:
        return None
    if choose_float_tiles(problem, m, isa) is not None:
        return None
    panels = choose_panels(problem, isa, packed=True)
    if panels is not None:
        return panels
    if m > _PACKED_ROWS_MOST and isa.library_bytes >= isa.vector_bytes and vendor_gemm_available():
        return None
    width = isa.vector_bytes // problem.sum_bytes
    wide = isa.vector_registers >= 32
    if n < 2 * width or k < 16:
        return None
    nv = panel_vectors(n, width, {v: COLUMN_TIMES[v] for v in ((4, 3, 2) if wide else (3, 2))})
    mr = min((6, 4) if wide else (4, 3), key=lambda r: (-(-m // r) * r, -r))
    pieces = max(1, round(k / 384))
    return BlockedSchedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=min(256, m),
        nc=nv * width * max(1, 256 // (nv * width)),
        kc=-(-k // pieces),
        pack_lhs=False,
        pack_rhs=False,
        packed=True,
        prefetch=8,
    )


def _packed_pairs(problem: MatmulProblem, isa: Isa) -> PanelSchedule | None:
    """`choose_packed_schedule` of bf16 in pairs; fewer than 4 rows of a weight [n, k] are dot products as before."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch or problem.lhs_strides[-1] != 1:
        return None
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)) or n < 16 or k < 16:
        return None
    if m < _PACKED_ROWS and problem.rhs_strides[-2] == 1:
        return None
    if is_better_in_place(problem, m, isa):
        return None
    return choose_tiles(problem, m, isa, packed=True) or choose_pairs(problem, m, packed=True)


def _bytes(isa: Isa) -> int:
    return 64 if isa.vector_bytes >= 64 else 32


def _dot_rows(problem: MatmulProblem, isa: Isa) -> int:
    """Up to how many rows products with a rhs [n, k] are dot products."""
    if not has_pairs(problem.dtype, isa.vector_bytes // problem.sum_bytes, isa):
        return _DOT_ROWS[_bytes(isa)]
    return next((m for m in range(_DOT_ROWS_BF16) if choose_tiles(problem, m + 1, isa)), _DOT_ROWS_BF16)


def _for_rows(problem: MatmulProblem, isa: Isa, vendor: bool, m: int) -> GemmSchedule:
    """The schedule for about m rows (exactly m where the problem knows its rows)."""
    lhs_k, rhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-2], problem.rhs_strides[-1]
    few_columns = isinstance(problem.n, int) and problem.n <= 2
    first = (choose_float_tiles(problem, m, isa) if vendor else None) or choose_panels(problem, isa)
    if first is not None:
        return first
    if lhs_k == 1 and rhs_k == 1 and (m <= _dot_rows(problem, isa) or few_columns):
        return _dot(problem, isa, m)
    if has_pairs(problem.dtype, isa.vector_bytes // problem.sum_bytes, isa):
        return choose_tiles(problem, m, isa) or choose_pairs(problem, m)
    if problem.m == 1 and rhs_n == 1:
        # Sums of one column block: in the first-level cache, or for a long row few and long runs of the matrix.
        nc = 65536 if isinstance(problem.n, int) and problem.n > 16384 else 4096
        return StreamSchedule(width=isa.vector_bytes // problem.sum_bytes, nc=nc, depth=8)
    small = isinstance(problem.n, int) and (problem.n <= _SMALL_N or problem.n < 256 and m < 256)
    if vendor and vendor_fits(problem) and m >= _VENDOR_ROWS[_bytes(isa)] and not small:
        width = isa.vector_bytes // problem.sum_bytes
        return VendorSchedule(mc=1024, nc=512, width=width, fallback=blocked_schedule(problem, isa, m))
    return blocked_schedule(problem, isa, m)


def _dot(problem: MatmulProblem, isa: Isa, m: int) -> GemmSchedule:
    width = isa.vector_bytes // problem.sum_bytes
    wide = isa.vector_registers >= 32
    if isinstance(problem.n, int) and 0 < problem.n <= 2:
        mr, nr = 8 // problem.n if m >= 8 else min(m, 4), problem.n
    elif m == 1:
        mr, nr = 1, 8
    elif m == 2:
        mr, nr = 2, 4
    elif m <= 4:
        mr, nr = (4, 4) if wide else (4, 2)
    else:
        mr, nr = (6, 4) if wide else (3, 4)
    nr = min(nr, width)
    unroll = 2 if mr * nr <= 8 else 1
    # Few rows re-read their part of the lhs for every column tile: it should stay in the first-level cache.
    kc = 8192 if m == 1 else 1024
    return DotSchedule(mr=max(mr, 1), nr=nr, width=width, mc=64 if m > 32 else max(m, 1), nc=64, kc=kc, unroll=unroll)


def blocked_schedule(problem: MatmulProblem, isa: Isa, m: int) -> BlockedSchedule:
    """The kernel of register tiles for about m rows, whatever the rule says of other kernels."""
    width = isa.vector_bytes // problem.sum_bytes
    bytes_ = _bytes(isa)
    half = problem.dtype in ("bf16", "f16")
    lhs_k, rhs_n = problem.lhs_strides[-1], problem.rhs_strides[-1]
    small_n = isinstance(problem.n, int) and problem.n * problem.sum_bytes <= _IN_PLACE_BYTES
    if rhs_n != 1:
        pack_rhs = True
    elif isinstance(problem.n, int) and problem.n <= _SMALL_N:
        pack_rhs = half and m >= _HALF_ROWS
    else:
        longest = _SHORT_ROWS[bytes_] if small_n else _IN_PLACE_ROWS[bytes_]
        pack_rhs = m >= longest or half and m > 4
    exact = isinstance(problem.m, int)
    mr, nv = _tile(m if exact else max(m, 64), problem.n, width, isa.vector_registers, packed=pack_rhs)
    kc = max(256, _STEPS[bytes_], min(512, _PANEL_BYTES // (nv * width * problem.sum_bytes)))
    if isinstance(problem.k, int) and problem.k > 0:
        pieces = -(-problem.k // (kc + kc // 4))
        kc = -(-problem.k // pieces // width) * width if pieces > 1 else -(-problem.k // width) * width
    return BlockedSchedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=min(256, m) if exact and m else 256,
        nc=256 if not (isinstance(problem.n, int) and problem.n < 256) else max(problem.n, 1),
        kc=kc,
        pack_lhs=half or lhs_k != 1,
        pack_rhs=pack_rhs,
        unroll=2 if mr == 1 else 1,
        prefetch=8 if not pack_rhs and small_n and m > 1 and bytes_ < 64 else 0,
    )


def _tile(m: int, n: Size, width: int, registers: int, packed: bool) -> tuple[int, int]:
    """The register tile (rows, vectors) with the least cycles a step of k over the whole m x n.

    A step of an r x v tile takes r * v fused multiply-adds and r + v loads, two of each a cycle, and at
    least 5 cycles: the 4 of an addition's latency, and the start of a short tile. A rhs read in place comes
    from the second-level cache in each pass: a quarter cycle a vector; the first pass, which fetches it from
    farther away in runs of v vectors, waits for each run (AVX-512: about 8 cycles). Among equals: the fewest
    loads. Wide flat tiles serve one or two rows only: where they save a partial tile they lose more to loads
    (2x5 against 6x2 at n = 197: 0.93, at n = 800: 0.7 - 0.95).
    """
    columns = -(-n // width) if isinstance(n, int) and n > 0 else 48
    usable, widest = (28, 4) if registers >= 32 else (12, 3)
    rows = (1, 2, 3, 4, 6, 8, 12) if registers >= 32 else (1, 2, 3, 4, 6)

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        r, v = tile
        heights = [(h, count) for h, count in ((r, m // r), (m % r, 1)) if h and count]
        column_tiles = -(-columns // v)
        again = 0.0 if packed else v / 4
        first = 8.0 if registers >= 32 and not packed else 0.0
        cycles = (first + sum(c * (max(h * v / 2, (h + v) / 2, 5.0) + again) for h, c in heights)) * column_tiles
        return cycles, sum(c * (h + v) for h, c in heights) * column_tiles

    tiles = [(r, v) for r in rows for v in range(1, 9) if r * v <= usable and (m <= 2 or v <= widest)]
    return min(tiles, key=cost)
