# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products on the CPU: `choose_schedule`, then `emit_matmul` with the schedule's kernel."""

from kiln.lowering.cpu.matmul.emit import emit_matmul, scratch_bytes
from kiln.lowering.cpu.matmul.plan import packed_strides
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, MatmulProblem
from kiln.lowering.cpu.matmul.schedule import choose_packed_schedule, choose_schedule, describe_schedule

__all__ = [
    "Buffers",
    "Epilogue",
    "MatmulProblem",
    "choose_packed_schedule",
    "choose_schedule",
    "describe_schedule",
    "emit_matmul",
    "packed_strides",
    "scratch_bytes",
]
