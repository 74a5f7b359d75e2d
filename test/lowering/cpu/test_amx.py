# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tile registers: what is emitted, by emulation, and the machine code of it."""

import ctypes
import sys
from pathlib import Path

import pytest
import torch
from torch_mlir import ir

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, cpu_with_amx, emulated_amx
from matmul_support import Kernel, vector_stage

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.contraction import amx
from kiln.runtime.amx import tiles_permitted


def tile_product(unit):
    """sums[16, 16] += lhs[16, depth] * rhs in groups along depth."""

    def emit(b, buffers, symbols, ctx):
        lhs, rhs, sums = buffers
        unit.begin(b)
        unit.load(b, 0, (sums, 0, 16), "sums")
        unit.load(b, 1, (lhs, 0, unit.depth), "left")
        unit.load(b, 2, (rhs, 0, 16 * unit.group), "right")
        unit.multiply_accumulate(b, 0, 1, 2)
        unit.store(b, 0, (sums, 0, 16))
        unit.end(b)

    return emit


BF16, INT8 = tile_product(amx.AMX_BF16), tile_product(amx.AMX_INT8)


@pytest.mark.skipif(not EMULATED, reason="a CPU without the other instructions")
def test_one_tile(monkeypatch):
    x, w = torch.randn(16, 32).bfloat16(), torch.randn(32, 16).bfloat16()
    given = w.view(16, 2, 16).permute(0, 2, 1).contiguous()
    start = torch.randn(16, 16)
    sums = start.clone()
    with emulated_amx(monkeypatch):
        kernel = Kernel(["bf16", "bf16", "f32"], 0, 0, BF16)
    kernel(x, given, sums)
    assert torch.allclose(sums.double(), start.double() + x.double() @ w.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not EMULATED, reason="a CPU without the other instructions")
def test_one_tile_of_integers(monkeypatch):
    x, w = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((16, 64), (64, 16)))
    sums = torch.zeros(16, 16, dtype=torch.int32)
    with emulated_amx(monkeypatch):
        kernel = Kernel(["i8", "i8", "i32"], 0, 0, INT8)
    kernel(x, w.view(16, 4, 16).permute(0, 2, 1).contiguous(), sums)
    assert torch.equal(sums.long(), x.long() @ w.long())


@pytest.mark.skipif(not EMULATED, reason="no x86 with vectors of 64 bytes")
def test_machine_code():
    """LLVM selects the instructions, in order, with the numbers that were given."""
    with isa.compiling_for(cpu_with_amx()), ir.Context(), ir.Location.unknown():
        module = vector_stage(["bf16", "bf16", "f32"], 0, BF16)
        code = compile_kernel(module, "kernel", kind="matmul").object_bytes
    # LDTILECFG, then the last two bytes of TDPBF16PS tmm0, tmm1, tmm2, then TILERELEASE.
    wanted = [bytes.fromhex(x) for x in ("c4e27849", "c4e26a5cc1", "c4e27849c0")]
    places = [code.find(x) for x in wanted[:2]] + [code.rfind(wanted[2])]
    assert -1 not in places and places == sorted(places)


@pytest.mark.skipif(not (isa.host().has("amx-bf16") and EMULATED), reason="a CPU without AMX")
def test_on_the_hardware():
    x, w = torch.randn(16, 32).bfloat16(), torch.randn(32, 16).bfloat16()
    sums = torch.zeros(16, 16)
    kernel = Kernel(["bf16", "bf16", "f32"], 0, 0, BF16)
    kernel(x, w.view(16, 2, 16).permute(0, 2, 1).contiguous(), sums)
    assert torch.allclose(sums.double(), x.double() @ w.double(), rtol=1e-5, atol=1e-5)


def test_claimed_only_with_leave():
    assert isa.host().has("amx-tile") <= tiles_permitted()
    with isa.compiling_for(isa.named("native")):
        assert amx.has_amx("bf16", isa.host()) == isa.host().has("amx-bf16")
    assert not amx.has_amx("f32", isa.host())


def test_refused_leave_is_no_amx(monkeypatch):
    """A system call that fails, and a CPU that says it has tiles: they are not used."""
    flags = {"avx512f": True, "amx-tile": True, "amx-bf16": True}
    monkeypatch.setattr(isa.llvm, "get_host_cpu_features", lambda: flags)
    monkeypatch.setattr(isa, "tiles_permitted", lambda: False)
    assert isa.host.__wrapped__().features == ("avx512f",)
    monkeypatch.setattr(isa, "tiles_permitted", lambda: True)
    assert isa.host.__wrapped__().has("amx-bf16")


def test_leave_is_told_by_the_system(monkeypatch):
    """What the kernel says afterwards counts."""
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: type("Library", (), {"syscall": staticmethod(_refuse)})())
    assert tiles_permitted.__wrapped__() is False


def _refuse(*_):
    return -1


_refuse.restype = _refuse.argtypes = None
