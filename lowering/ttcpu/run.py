# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs one kernel in Triton IR on tensors of the CPU: how its numbers are looked at without a GPU."""

import array
import ctypes
from collections.abc import Sequence
from math import prod

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.ttcpu.buffers import buffers_of_tensors
from kiln.lowering.ttcpu.lower import lower_kernel
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings
from kiln.runtime.accesses import WORDS, Report, access_error
from kiln.runtime.loader import load

__all__ = ["run_kernel"]


def run_kernel(
    function: ir.Operation,
    tensors: Sequence[torch.Tensor],
    symbols: Sequence[int] = (),
    programs: Sequence[int] | None = None,
    settings: Settings = DEFAULTS,
) -> None:
    """Compiles `function` for the CPU and runs all programs of its grid, or some.

    A kernel of a size that would take minutes whole is looked at by a sample: corners, edges and some in the middle.
    Memory that no program of the sample reads may hold anything.

    Args:
      function: a `tt.func` with the attributes of `lowering/gpu/emit.py` (`kiln.grid` at least).
      tensors: one per pointer or descriptor argument; results are written in place. What `kiln.zero` lists is not
        cleared.
      symbols: one per integer argument.
      programs: numbers of the programs that run, one after the other, with the grid's axis 0 running fastest; None:
        all of them. A persistent kernel computes all tiles of the programs that run, and no others.
      settings: what is done like a GPU. The tensors are not poisoned.

    Raises UnsupportedError for what does not run on the CPU; IndexError for a program that is not in the grid, or an
    assertion of the kernel; AccessError for an access outside of the tensors.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    with function.context, ir.Location.unknown():
        code = compile_kernel(_lowered(function, name, tensors, programs is not None, settings), name)
        total = prod(_evaluated(e, symbols) for e in ir.AffineMapAttr(function.attributes["kiln.grid"]).value.results)
        size = 0
        if code.scratch_bytes is not None:
            size = _evaluated(ir.AffineMapAttr(ir.Attribute.parse(code.scratch_bytes)).value.results[0], symbols)
    outside = [p for p in programs or () if not 0 <= p < total]
    if outside:
        raise IndexError(f"programs {outside} of @{name}, whose grid has {total}")
    loaded = load([code.object_bytes], [code.entry])
    scratch = torch.empty(max(size, 1) + 64, dtype=torch.uint8)
    aligned = -(-scratch.data_ptr() // 64) * 64
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded[code.entry])
    record = array.array("q", [0] * WORDS)
    told = record.buffer_info()[0], 0
    for part in [()] if programs is None else [(p, p + 1) for p in programs]:
        words = array.array("q", [*(t.data_ptr() for t in tensors), *symbols, *part, *told, aligned, size, 0])
        run(words.buffer_info()[0])
        if record[0]:
            found = Report.read(record)
            buffer = f"argument {found.argument}" if found.argument >= 0 else "its scratch memory"
            raise access_error(found, f"@{name}", code.sites[found.site], buffer)


def _lowered(
    function: ir.Operation, name: str, tensors: Sequence[torch.Tensor], is_sampled: bool, settings: Settings
) -> ir.Module:
    buffers = buffers_of_tensors(tensors)
    return lower_kernel(function, name, is_sampled=is_sampled, buffers=buffers, settings=settings)


def _evaluated(expr: ir.AffineExpr, symbols: Sequence[int]) -> int:
    return affine.evaluate(expr, (), list(symbols))
