# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs one kernel in Triton IR on tensors of the CPU: how its numbers are looked at without a GPU."""

import array
import ctypes
from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.ttcpu.lower import lower_kernel
from kiln.runtime.loader import load

__all__ = ["run_kernel"]


def run_kernel(function: ir.Operation, tensors: Sequence[torch.Tensor], symbols: Sequence[int] = ()) -> None:
    """Compiles `function` for the CPU and runs all programs of its grid.

    Args:
      function: a `tt.func` with the attributes of `lowering/gpu/emit.py` (`kiln.grid` at least).
      tensors: one per pointer or descriptor argument; results are written in place. What `kiln.zero` lists is not
        cleared.
      symbols: one per integer argument.

    Raises UnsupportedError for what does not run on the CPU.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    with function.context, ir.Location.unknown():
        code = compile_kernel(lower_kernel(function, name), name)
        size = 0
        if code.scratch_bytes is not None:
            map_ = ir.AffineMapAttr(ir.Attribute.parse(code.scratch_bytes)).value
            size = affine.evaluate(map_.results[0], (), list(symbols))
    loaded = load([code.object_bytes], [code.entry])
    scratch = torch.empty(max(size, 1) + 64, dtype=torch.uint8)
    aligned = -(-scratch.data_ptr() // 64) * 64
    words = array.array("q", [*(t.data_ptr() for t in tensors), *symbols, aligned, size, 0])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded[code.entry])(words.buffer_info()[0])
