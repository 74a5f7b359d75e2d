# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums that are contracted with a product on a GPU: some of them are here, by the seed, and none that must not be."""

import os
import sys

import pytest
import torch

from kiln.lowering.ttcpu.settings import Settings

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import load, range_, run, store

T = "tensor<4096xf32>"
SUMS = {
    "x * y + z": (f"%s = arith.addf %p, %z : {T}", lambda x, y, z: x * y + z),
    "z + x * y": (f"%s = arith.addf %z, %p : {T}", lambda x, y, z: z + x * y),
    "x * y - z": (f"%s = arith.subf %p, %z : {T}", lambda x, y, z: x * y - z),
    "z - x * y": (f"%s = arith.subf %z, %p : {T}", lambda x, y, z: z - x * y),
}
ROUNDED = (
    f'%s = "tt.elementwise_inline_asm"(%p, %z) {{asm_string = "add.rn.f32 $0, $1, $2;", constraints = "=f,f,f", '
    f"packed_element = 1 : i32, pure = true}} : ({T}, {T}) -> {T}"
)


def computed(text: str, given: list[torch.Tensor], **settings) -> torch.Tensor:
    out = torch.zeros(4096)
    body = f"""{range_(4096)}{load("x", "%a0", 4096)}{load("y", "%a1", 4096)}{load("z", "%a2", 4096)}
      %p = arith.mulf %x, %y : {T}
      {text}
      {store("%s", "%a3", 4096)}"""
    run("; ".join(["!tt.ptr<f32>"] * 4), body, [*given, out], settings=Settings(**settings))
    return out


@pytest.mark.parametrize("name", SUMS)
def test_some_are_contracted(name):
    text, function = SUMS[name]
    given = [torch.randn(4096) for _ in range(3)]
    rounded = function(*given)
    contracted = function(*(v.double() for v in given)).float()
    assert not torch.equal(rounded, contracted)
    found = [computed(text, given, seed=seed) for seed in range(8)]
    assert all(torch.equal(v, rounded) or torch.equal(v, contracted) for v in found)
    assert 0 < sum(torch.equal(v, contracted) for v in found) < 8
    assert all(torch.equal(computed(text, given, seed=seed, approximate=False), rounded) for seed in range(8))


def test_one_that_is_rounded_by_itself_is_not():
    given = [torch.randn(4096) for _ in range(3)]
    rounded = given[0] * given[1] + given[2]
    assert all(torch.equal(computed(ROUNDED, given, seed=seed), rounded) for seed in range(8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype):
    """A product that is rounded to 16 bits and added to others is not, where the sum is rounded, too."""
    t = "bf16" if dtype is torch.bfloat16 else "f16"
    narrow = T.replace("f32", t)
    text = f"""%u = arith.truncf %x : {T} to {narrow}
      %v = arith.truncf %y : {T} to {narrow}
      %a = arith.extf %u : {narrow} to {T}
      %b = arith.extf %v : {narrow} to {T}
      %q = arith.mulf %a, %b : {T}
      %e = arith.truncf %q : {T} to {narrow}
      %w = arith.extf %e : {narrow} to {T}
      %d = arith.addf %w, %z : {T}
      %c = arith.truncf %d : {T} to {narrow}
      %s = arith.extf %c : {narrow} to {T}"""
    given = [torch.randn(4096).to(dtype).float() for _ in range(3)]
    x, y, z = (v.double() for v in given)
    rounded, contracted = ((x * y).to(dtype) + z).to(dtype).float(), (x * y + z).float().to(dtype).float()
    found = [computed(text, given, seed=seed) for seed in range(8)]
    assert all(torch.equal(v, rounded) or torch.equal(v, contracted) for v in found)
    assert 0 < sum(torch.equal(v, contracted) for v in found) < 8
