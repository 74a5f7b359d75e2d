# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running kernels that read and write memory: functions on memrefs (the vector stage) and ``tt.func``.

How much a kernel accesses is nowhere in its IR, so each buffer is as large as any kernel of a test needs, and what a
kernel leaves in all of them is its result.
"""

import array
import ctypes
import re

import torch
from torch_mlir import ir

from kiln.dialects import affine, parse, to_text
from kiln.dialects.memo import type_text
from kiln.errors import UnsupportedError
from kiln.passes.numerics.sample import Sample
from kiln.passes.numerics.signature import DTYPES, Argument, Signature

__all__ = ["kernel_of", "kernel_signature", "run_memory_kernel"]

_ELEMENTS = 1 << 18
"""Of each buffer whose size is not in its type."""

_BUFFER = re.compile(r"memref<(?:(\d+|\?)x)?(\w+)>|!tt\.ptr<(\w+)>")
_TAIL = ["memref<?xi8>", "index", "index"]
"""Scratch memory, the thread and the number of threads: the last arguments of each kernel at the vector stage."""


def kernel_of(module: ir.Module) -> ir.Operation | None:
    """The first function of a module that is a kernel on memory; None where there is none."""
    for op in module.body.operations:
        if op.operation.name == "tt.func":
            return op.operation
        if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
            types = [type_text(a.type) for a in op.operation.regions[0].blocks[0].arguments]
            return op.operation if types[-3:] == _TAIL else None
    return None


def kernel_signature(kernel: ir.Operation) -> Signature:
    """Buffers as tensors of one dim, integers as symbols.

    Raises UnsupportedError for a kernel of which it is not known what it is called with.
    """
    types = [type_text(a.type) for a in kernel.regions[0].blocks[0].arguments]
    types = types if kernel.name == "tt.func" else types[:-3]
    arguments: list[Argument] = []
    for number, text in enumerate(types):
        found = _BUFFER.fullmatch(text)
        element = found and (found[2] or found[3])
        if found and element in DTYPES:
            size = int(found[1]) if found[1] and found[1] != "?" else _ELEMENTS
            arguments.append(Argument("", DTYPES[element], (size,)))
        elif kernel.name == "tt.func" and text in ("i32", "i64"):
            arguments.append(Argument(f"arg{number}"))
        else:
            raise UnsupportedError(kernel.name, kernel.location, f"nothing is known of an argument of type {text}")
    return Signature(tuple(arguments), tuple(a.symbol for a in arguments if a.symbol))


def run_memory_kernel(kernel: ir.Operation, sample: Sample) -> list[torch.Tensor]:
    """What the buffers hold after the kernel, one thread or all programs, has run on copies of those of ``sample``.

    Raises UnsupportedError for a kernel that does not run on the CPU, KilnError for an access outside of the buffers as
    far as that is checked.
    """
    tensors = [tensor.clone() for tensor in sample.tensors]
    if kernel.name == "tt.func":
        from kiln.lowering.ttcpu.run import run_kernel

        run_kernel(kernel, tensors, list(sample.symbols.values()))
        return tensors
    from kiln.lowering.cpu.codegen import compile_kernel
    from kiln.runtime.loader import load

    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    work = parse(f"module {{\n{to_text(kernel, print_generic_op_form=False)}\n}}")
    code = compile_kernel(work, name)
    loaded = load([code.object_bytes], [code.entry])
    size = 0
    if code.scratch_bytes is not None:
        size = affine.evaluate(ir.AffineMapAttr(ir.Attribute.parse(code.scratch_bytes)).value.results[0])
    scratch = torch.zeros(max(size, 1) + 64, dtype=torch.uint8)
    aligned = -(-scratch.data_ptr() // 64) * 64
    words = array.array("q", [*(t.data_ptr() for t in tensors), aligned, size, 0])
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded[code.entry])(words.buffer_info()[0])
    return tensors
