# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels in Triton IR as text, and running them on tensors."""

from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.dialects.kiln import parse
from kiln.lowering.ttcpu.run import run_kernel
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings


def run(
    types: str,
    body: str,
    tensors: Sequence[torch.Tensor],
    symbols: Sequence[int] = (),
    grid: str = "() -> (1)",
    programs: Sequence[int] | None = None,
    settings: Settings = DEFAULTS,
    attributes: str = "",
):
    """Runs the kernel `body`, whose arguments %a0, %a1, ... have the given types."""
    arguments = ", ".join(f"%a{i}: {t.strip()}" for i, t in enumerate(types.split(";")))
    text = f"""
    "tt.func"() ({{
    ^bb0({arguments}):
      {body}
      "tt.return"() : () -> ()
    }}) {{sym_name = "kernel", sym_visibility = "public", function_type = ({types.replace(";", ",")}) -> (),
        kiln.grid = affine_map<{grid}>{attributes}}} : () -> ()
    """
    with create_context(), ir.Location.unknown():
        module = parse(text)
        module.operation.verify()
        run_kernel(list(module.body)[0].operation, tensors, symbols, programs, settings)


def load(name: str, pointer: str, n: int, type_: str = "f32", mask: str = "") -> str:
    """Text that loads a block of `n` elements from a scalar pointer (%r is the range)."""
    pointers, mask_type = f"tensor<{n}x!tt.ptr<{type_}>>", f", tensor<{n}xi1>" if mask else ""
    segments = f"1, {int(bool(mask))}, 0"
    return f"""
      %{name}s = "tt.splat"({pointer}) : (!tt.ptr<{type_}>) -> {pointers}
      %{name}p = "tt.addptr"(%{name}s, %r) : ({pointers}, tensor<{n}xi32>) -> {pointers}
      %{name} = "tt.load"(%{name}p{", " + mask if mask else ""}) {{operandSegmentSizes = array<i32: {segments}>}}
        : ({pointers}{mask_type}) -> tensor<{n}x{type_}>
    """


def store(value: str, pointer: str, n: int, type_: str = "f32", mask: str = "", index: str = "%r") -> str:
    pointers, mask_type = f"tensor<{n}x!tt.ptr<{type_}>>", f", tensor<{n}xi1>" if mask else ""
    name = pointer[1:] + "o"
    return f"""
      %{name}s = "tt.splat"({pointer}) : (!tt.ptr<{type_}>) -> {pointers}
      %{name}p = "tt.addptr"(%{name}s, {index}) : ({pointers}, tensor<{n}xi32>) -> {pointers}
      "tt.store"(%{name}p, {value}{", " + mask if mask else ""}) : ({pointers}, tensor<{n}x{type_}>{mask_type}) -> ()
    """


def range_(n: int, name: str = "r") -> str:
    return f'%{name} = "tt.make_range"() {{start = 0 : i32, end = {n} : i32}} : () -> tensor<{n}xi32>\n'


PROGRAM_RANGE = """
      %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
      %c = arith.constant 64 : i32
      %start = arith.muli %pid, %c : i32
      %r0 = "tt.make_range"() {start = 0 : i32, end = 64 : i32} : () -> tensor<64xi32>
      %rs = "tt.splat"(%start) : (i32) -> tensor<64xi32>
      %r = arith.addi %rs, %r0 : tensor<64xi32>
      %n = "tt.splat"(%a2) : (i32) -> tensor<64xi32>
      %m = arith.cmpi slt, %r, %n : tensor<64xi32>
"""
