# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention by warps with different jobs: what the kernel computes (run on the CPU), and its TTGIR."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dot_support import H200
from fusion_support import close, emit_fusion, function, run_fusion
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.dialects.schedules.gpu import FlashSchedule, WarpSpecializedSchedule
from kiln.lowering.gpu.compile import compile_ttir
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_specialized
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.dot.specialized import Place, Specialized
from kiln.lowering.gpu.dot.specialized_ttgir import specialized_ttgir
from kiln.lowering.gpu.emit import plan_kernel
from kiln.lowering.gpu.smaller import smaller_schedule
from kiln.lowering.gpu.ttir import Spelling, installed_spelling, to_ttir
from kiln.lowering.gpu.tune.candidates import candidates
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

MAPS = DotOptions(descriptors=True)
LARGE: dict[str, Any] = {"b": 2, "h": 8, "g": 8, "s": 1024, "t": 1024}


def attention(
    b: int, h: int, g: int, s: int, t: int, causal: bool = False, dtype: str = "bf16", size: int = 128, more: str = ""
) -> str:
    """Heads inside of a token's row, keys and values as slices of one projection."""
    q, k = f"tensor<{b}x{h}x{s}x{size}x{dtype}>", f"tensor<{b}x{g}x{t}x{size}x{dtype}>"
    outer = f"affine_map<(d0, d1, d2, d3) -> (d0 * {s * h * size} + d1 * {size} + d2 * {h * size} + d3)>"
    row = 2 * g * size
    inner = f"affine_map<(d0, d1, d2, d3) -> (d0 * {t * row} + d1 * {size} + d2 * {row} + d3{{}})>"
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
  %0 = "kiln.fusion"(%q, %k, %v) ({{
  ^bb0(%q_: {q}, %k_: {k}, %v_: {k}):
    %1 = "kiln.attention"(%q_, %k_, %v_) {{scale = 0.125 : f64, causal = {str(causal).lower()}}} : ({q}, {k}, {k}) -> {q}
    "kiln.yield"(%1) : ({q}) -> ()
  }}) {{kind = "attention", name = "attention"{more}, layouts = [{outer}, {inner.format("")},
      {inner.format(f" + {g * size}")}, {outer}]}} : ({q}, {k}, {k}) -> {q}
  return %0 : {q}
}}
"""


def schedule(together: int = 1, programs: int = 3, **more: Any) -> WarpSpecializedSchedule:
    """With few programs, so that each takes several tiles."""
    found = choose_specialized(AttentionShape(128, 4096, 4096, 128, 128, "bf16"), H200)
    assert found is not None
    return replace(found, heads_together=together, programs=programs, **more)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("h", "g", "s", "t", "together", "dtype"),
    [
        (2, 2, 300, 300, 2, "bf16"),
        (4, 2, 130, 257, 4, "bf16"),
        (3, 1, 260, 70, 1, "f16"),
        (2, 2, 1, 1, 1, "bf16"),
        (2, 1, 128, 384, 2, "bf16"),
    ],
)
def test_numbers(h, g, s, t, together, dtype, causal):
    type_ = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    q, kv = torch.randn(2, s, h, 128).to(type_), torch.randn(2, t, 2, g, 128).to(type_)
    out = torch.full((2, s, h, 128), 7.0, dtype=type_)
    text = attention(2, h, g, s, t, causal, dtype)
    run_fusion(text, [q, kv, kv.flatten()], [out], options=MAPS, changes=schedule(together))
    x, k, v = (x.transpose(1, 2).double() for x in (q, kv[:, :, 0], kv[:, :, 1]))
    want = F.scaled_dot_product_attention(x, k, v, scale=0.125, is_causal=causal, enable_gqa=True).transpose(1, 2)
    close(out, want, 1e-2 if dtype == "bf16" else 2e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"pingpong": True, "causal": True},
        {"size": 64, "num_stages": 3},
        {"block_n": 64, "causal": True, "keys": 65},
        {"batch": (), "heads": 1, "kv_heads": 1},
    ],
)
def test_machine_code_of_other_schedules(change):
    places = [Place(i, (0, 1), (0, 1, 0, 0)) for i in range(4)]
    p = Specialized((2,), 4, 2, 300, 300, 128, "bf16", 0.125, False, True, 128, 2, 4, False, *places)
    p = replace(p, **change)
    if not p.batch:
        places = [Place(i, (-1,), (0, 0)) for i in range(4)]
        p = replace(p, query=places[0], key=places[1], value=places[2], result=places[3], heads_together=1)
    text = specialized_ttgir(p, "kernel")
    if not installed_spelling().nested_descriptors:
        text = re.sub(r"!tt\.tensordesc<tensor<([^<>]*)>>", r"!tt.tensordesc<\1>", text)
    made = compile_ttir(text, "sm_90", {"num_warps": 4})
    assert made.cubin and "wgmma.mma_async" in made.ptx and made.metadata["num_warps"] == 12


def test_the_attribute_holds_the_problem():
    places = [Place(i, (0, -1), (0, 3, 0)) for i in range(4)]
    p = Specialized((2,), 4, 2, 300, 300, 128, "bf16", 0.125, True, True, 128, 2, 4, False, *places)
    assert Specialized.from_dict(p.to_dict()) == p


def test_text_of_both_versions():
    kernel = emit_fusion(attention(**LARGE), MAPS)
    with kernel.context:
        old, new = (to_ttir(function(kernel), Spelling(nested_descriptors=x)) for x in (True, False))
    assert "!tt.tensordesc<tensor<1x1x64x128xbf16, #block4>>" in old and "tensordesc<tensor" not in new
    assert new.count("ttg.warp_specialize") == 1 and "tt.func public @kernel(%query:" in new
    # Of each consumer: the first scores, then the next ones, and the weights of the loop and behind it.
    assert new.count("ttng.warp_group_dot ") == 2 * 4


def test_where_it_does_not_fit_other_warps_compute_it():
    smaller = smaller_schedule(schedule())
    assert isinstance(smaller, FlashSchedule) and smaller.tma


def test_what_is_tried_beside_it():
    with create_context(), ir.Location.unknown():
        module = kiln.parse(attention(**LARGE))
        block = list(module.body.operations)[0].regions[0].blocks[0]
        fusion = next(op for op in block.operations if isinstance(op, kiln.FusionOp))
        body, layouts = FusionBody(fusion), fusion_layouts(fusion, FusionBody(fusion))
        chosen = plan_kernel(body, layouts, MAPS)
        turns, plain = candidates(body, layouts, chosen, MAPS)
    assert isinstance(chosen, WarpSpecializedSchedule)
    assert turns == replace(chosen, pingpong=not chosen.pingpong)
    assert isinstance(plain, FlashSchedule) and (plain.block_m, plain.block_n) == (64, 64)


def test_keys_in_columns_are_not_described():
    """A key whose tokens are neighbours in memory is loaded through pointers."""
    q, k, v = (torch.randn(1, 2, 96, 32).to(torch.bfloat16) for _ in range(3))
    t = "tensor<1x2x96x32xbf16>"
    row, column = ("d0 * 6144 + d1 * 3072 + d2 * 32 + d3", "d0 * 6144 + d1 * 3072 + d2 + d3 * 96")
    layouts = ", ".join(f"affine_map<(d0, d1, d2, d3) -> ({x})>" for x in (row, column, row, row))
    text = f"""
func.func @main(%q: {t}, %k: {t}, %v: {t}) -> {t} {{
  %0 = "kiln.fusion"(%q, %k, %v) ({{
  ^bb0(%q_: {t}, %k_: {t}, %v_: {t}):
    %1 = "kiln.attention"(%q_, %k_, %v_) {{scale = 0.25 : f64, causal = false}} : ({t}, {t}, {t}) -> {t}
    "kiln.yield"(%1) : ({t}) -> ()
  }}) {{kind = "attention", name = "attention", layouts = [{layouts}]}} : ({t}, {t}, {t}) -> {t}
  return %0 : {t}
}}
"""
    out = torch.full((1, 2, 96, 32), 7.0, dtype=torch.bfloat16)
    run_fusion(text, [q, k.mT.contiguous(), v], [out], options=MAPS)
    close(out, F.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.25), 1e-2)
