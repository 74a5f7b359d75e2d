# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions on the CPU: `choose_conv_schedule`, then `emit_conv` with the schedule's kernel."""

from kiln.lowering.cpu.conv.emit import conv_scratch_bytes, emit_conv
from kiln.lowering.cpu.conv.problem import Axis, ConvBuffers, ConvEpilogue, ConvProblem
from kiln.lowering.cpu.conv.schedule import choose_conv_schedule
from kiln.lowering.cpu.conv.weights import packed_layout

__all__ = [
    "Axis",
    "ConvBuffers",
    "ConvEpilogue",
    "ConvProblem",
    "choose_conv_schedule",
    "conv_scratch_bytes",
    "emit_conv",
    "packed_layout",
]
