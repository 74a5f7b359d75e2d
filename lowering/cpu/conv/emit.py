# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`emit_conv`: from a scheduled convolution to loops."""

from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.conv.depthwise import depthwise_layout, emit_depthwise
from kiln.lowering.cpu.conv.direct import direct_layout, emit_direct
from kiln.lowering.cpu.conv.pairs import emit_column_pairs, emit_direct_pairs, takes_column_pairs, takes_pairs
from kiln.lowering.cpu.conv.planar import emit_planar, planar_layout
from kiln.lowering.cpu.conv.problem import ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.conv.product import emit_product, product_layout
from kiln.lowering.cpu.conv.tiles import emit_tiles
from kiln.lowering.cpu.conv.tiles_plan import takes_tiles, tiles_layout
from kiln.lowering.cpu.conv.transposed import emit_transposed, emit_transposed_pairs
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.problem import KernelContext

_KERNELS = {
    "direct": (emit_direct, direct_layout),
    "pairs": (emit_direct_pairs, direct_layout),
    "column_pairs": (emit_column_pairs, direct_layout),
    "depthwise": (emit_depthwise, depthwise_layout),
    "planar": (emit_planar, planar_layout),
    "product": (emit_product, product_layout),
    "tiles": (emit_tiles, tiles_layout),
}
_TRANSPOSED = {"direct": emit_transposed, "pairs": emit_transposed_pairs}
_TAKEN = paths.group(
    "cpu convolution",
    _KERNELS,
    (f"{kernel}, transposed" for kernel in _TRANSPOSED),
    *("groups", "dilation", "three dims", "planar image"),
    needs={"tiles": "amx-bf16"} | dict.fromkeys(("pairs", "column_pairs", "pairs, transposed"), "avx512bf16"),
)


def emit_conv(
    b: Builder, problem: ConvProblem, schedule: dict, operands: ConvBuffers, epilogue: ConvEpilogue, ctx: KernelContext
) -> None:
    """Emits the convolution at the current insertion point, as one thread's share of the work.

    schedule: a dictionary from `choose_conv_schedule`; `schedule["kernel"]` selects the leaf (direct.py, pairs.py,
    depthwise.py, planar.py, product.py, tiles.py; transposed.py for the first two).
    The thread's scratch must hold `conv_scratch_bytes(problem, schedule)` bytes, 64-byte aligned.
    """
    kernel = schedule["kernel"]
    if kernel not in _KERNELS:
        raise ValueError(f"unknown convolution kernel {kernel!r}; expected {' or '.join(_KERNELS)}")
    if kernel in ("depthwise", "planar") and not problem.depthwise:
        raise ValueError(f"convolution kernel {kernel!r} needs one channel in each group")
    if kernel == "pairs" and not takes_pairs(problem, schedule["width"], target()):
        raise ValueError("convolution kernel 'pairs' needs bf16, an even number of neighbouring channels, AVX512-BF16")
    if kernel == "column_pairs" and not takes_column_pairs(problem, schedule["width"], target()):
        raise ValueError("convolution kernel 'column_pairs' needs bf16, an even window without padding, AVX512-BF16")
    if kernel == "tiles" and not takes_tiles(problem, target()):
        raise ValueError("convolution kernel 'tiles' needs bf16, neighbouring channels or columns, AMX")
    if kernel == "planar" and not problem.planar:
        raise ValueError("convolution kernel 'planar' needs a result with neighbouring columns")
    if problem.transposed and kernel not in _TRANSPOSED:
        raise ValueError(f"convolution kernel {kernel!r} does not transpose")
    _TAKEN(f"{kernel}, transposed" if problem.transposed else kernel)
    for path, is_so in (
        ("groups", problem.groups > 1),
        ("dilation", max(problem.dilation) > 1),
        ("three dims", problem.planes is not None),
        ("planar image", problem.x_strides[3] == 1),
    ):
        if is_so:
            _TAKEN(path)
    emit = _TRANSPOSED[kernel] if problem.transposed else _KERNELS[kernel][0]
    emit(b, problem, schedule, operands, epilogue, ctx)


def conv_scratch_bytes(problem: ConvProblem, schedule: dict) -> int:
    """Bytes of scratch that one thread needs."""
    return _KERNELS[schedule["kernel"]][1](problem, schedule)["bytes"]
