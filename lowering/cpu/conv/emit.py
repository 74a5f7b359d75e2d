# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_conv`: from a scheduled convolution to loops."""

from kiln.dialects.schedules.cpu import (
    AmxConvSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    DirectConvSchedule,
    GemmConvSchedule,
    PlanarConvSchedule,
    VnniBf16ColumnsConvSchedule,
    VnniBf16ConvSchedule,
)
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.conv.depthwise import Depthwise, Planar
from kiln.lowering.cpu.conv.direct import Direct
from kiln.lowering.cpu.conv.kernel import ConvKernel
from kiln.lowering.cpu.conv.problem import ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.conv.product import Product
from kiln.lowering.cpu.conv.schedule import takes_column_pairs, takes_pairs
from kiln.lowering.cpu.conv.tiles import Tiles
from kiln.lowering.cpu.conv.tiles_plan import takes_tiles
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.problem import KernelContext

_KERNELS: dict[type[ConvSchedule], type[ConvKernel]] = {
    DirectConvSchedule: Direct,
    VnniBf16ConvSchedule: Direct,
    VnniBf16ColumnsConvSchedule: Direct,
    DepthwiseConvSchedule: Depthwise,
    PlanarConvSchedule: Planar,
    GemmConvSchedule: Product,
    AmxConvSchedule: Tiles,
}
_TRANSPOSED = (DirectConvSchedule, VnniBf16ConvSchedule)
"""Those that take transposed convolutions."""

_TAKEN = paths.group(
    "cpu convolution",
    (kernel.how for kernel in _KERNELS),
    (f"{kernel.how}, transposed" for kernel in _TRANSPOSED),
    *("groups", "dilation", "three dims", "planar image"),
    needs={"amx_bf16": "amx-bf16"}
    | dict.fromkeys(("vnni_bf16", "vnni_bf16_columns", "vnni_bf16, transposed"), "avx512bf16"),
)


def emit_conv(
    b: Builder,
    problem: ConvProblem,
    schedule: ConvSchedule,
    operands: ConvBuffers,
    epilogue: ConvEpilogue,
    ctx: KernelContext,
) -> None:
    """Emits the convolution at the current insertion point, as one thread's share of the work.

    schedule: from `choose_conv_schedule`; its class selects the kernel. Raises ValueError where that kernel does not
    take the problem.
    The thread's scratch must hold `conv_scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    missing = _missing(problem, schedule)
    if missing is not None:
        raise ValueError(f"convolution kernel {schedule.kernel!r} needs {missing}")
    _TAKEN(f"{schedule.how}, transposed" if problem.transposed else schedule.how)
    taken = {
        "groups": problem.groups > 1,
        "dilation": any(axis.dilation > 1 for axis in problem.axes),
        "three dims": len(problem.axes) > 2,
        "planar image": problem.column.x_stride == 1,
    }
    _TAKEN.those(taken)
    _KERNELS[type(schedule)](b, problem, schedule, operands, epilogue, ctx).emit()


def _missing(p: ConvProblem, schedule: ConvSchedule) -> str | None:
    """What a problem lacks for a kernel; None where it takes it."""
    if isinstance(schedule, (DepthwiseConvSchedule, PlanarConvSchedule)) and not p.depthwise:
        return "one channel in each group"
    if isinstance(schedule, VnniBf16ConvSchedule) and not takes_pairs(p, schedule.width, target()):
        return "bf16, an even number of neighbouring channels, AVX512-BF16"
    if isinstance(schedule, VnniBf16ColumnsConvSchedule) and not takes_column_pairs(p, schedule.width, target()):
        return "bf16, an even window without padding, AVX512-BF16"
    if isinstance(schedule, AmxConvSchedule) and not takes_tiles(p, target()):
        return "bf16, neighbouring channels or columns, AMX"
    if isinstance(schedule, PlanarConvSchedule) and not p.planar:
        return "a result with neighbouring columns"
    if p.transposed and type(schedule) not in _TRANSPOSED:
        return "a convolution that is not transposed"
    return None


def conv_scratch_bytes(problem: ConvProblem, schedule: ConvSchedule) -> int:
    """Bytes of scratch that one thread needs."""
    return _KERNELS[type(schedule)].layout(problem, schedule)["bytes"]
