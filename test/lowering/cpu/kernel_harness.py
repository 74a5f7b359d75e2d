# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compile one `kiln.fusion` given as text and run it on torch tensors."""

import ctypes
import re
from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.emit import emit_kernel
from kiln.lowering.cpu.tune.guarded import Guarded
from kiln.runtime.loader import load
from kiln.runtime.threads import symbol_address

_DTYPES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "i1": torch.bool,
           "bf16": torch.bfloat16, "f16": torch.float16, "i8": torch.int8}  # fmt: skip


def find_fusion(module: ir.Module) -> ir.OpView:
    """The first kiln.fusion of @main."""
    function = next(op for op in module.body.operations if op.operation.name == "func.func")
    return next(op for op in function.regions[0].blocks[0].operations if isinstance(op, kiln.FusionOp))


def evaluate_map(text: str | None, symbols: Sequence[int]) -> int:
    """An affine map ()[s0, ..] -> (expr) at given symbols."""
    if text is None:
        return 0
    expr = text.split("->", 1)[1].strip().rstrip(">").strip()
    expr = (
        re.sub(r"(\S+|\([^()]*\)) ceildiv (\d+)", r"-(-(\1) // \2)", expr).replace("floordiv", "//").replace("mod", "%")
    )
    return int(eval(expr, {f"s{i}": s for i, s in enumerate(symbols)}))  # noqa: S307 - our own kernels' attributes


def run_fusion(
    text: str,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    symbols: Sequence[int] = (),
    threads: int = 1,
) -> str:
    """Run the fusion in `text` (a module with @main) into `outputs`; returns the vector-stage IR."""
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text)
        vector = emit_kernel(find_fusion(module), "k")
        assert vector.operation.verify()
        shown = str(vector)
        kernel = compile_kernel(vector, "k")
    code = load([kernel.object_bytes], [kernel.entry])
    stride = (evaluate_map(kernel.scratch_bytes, symbols) + 63) // 64 * 64
    scratch = Guarded(stride * threads)
    words = [*(t.data_ptr() for t in [*inputs, *outputs]), *symbols, scratch.bytes.data_ptr(), stride, int(threads > 1)]
    block = (ctypes.c_int64 * len(words))(*words)
    if threads == 1:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code[kernel.entry])(ctypes.addressof(block))
    else:
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
        parallel(symbol_address("GOMP_parallel"))(code[kernel.entry], ctypes.addressof(block), threads, 0)
    assert scratch.is_intact(), "written beyond scratch memory"
    return shown
