# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products on the CPU: `choose_schedule`, then `emit_matmul` with the schedule's kernel."""

from kiln.lowering.cpu.matmul.blocked import panel_strides
from kiln.lowering.cpu.matmul.emit import emit_matmul, scratch_bytes
from kiln.lowering.cpu.matmul.integer_tiles import packed_integer_strides
from kiln.lowering.cpu.matmul.pairs import packed_pair_strides
from kiln.lowering.cpu.matmul.problem import Buffers, Destination, Epilogue, Isa, KernelContext, MatmulProblem
from kiln.lowering.cpu.matmul.schedule import choose_packed_schedule, choose_schedule, describe_schedule
from kiln.lowering.cpu.matmul.tiles_schedule import packed_tile_strides

__all__ = [
    "Buffers",
    "Destination",
    "Epilogue",
    "Isa",
    "KernelContext",
    "MatmulProblem",
    "choose_packed_schedule",
    "choose_schedule",
    "describe_schedule",
    "emit_matmul",
    "packed_integer_strides",
    "packed_pair_strides",
    "packed_tile_strides",
    "panel_strides",
    "scratch_bytes",
]
