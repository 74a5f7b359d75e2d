# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions around attention: the layouts of projections, sizes at run time, keys and values through descriptors."""

import pytest
import torch
import torch.nn.functional as F
from fusion_support import TYPES, close, emit_fusion, run_fusion

from kiln.lowering.gpu.dot.fusions import DotOptions

# Attention between the layouts of projections: heads lie inside of a token's row, in and out.
ATTENTION = """
func.func @main(%q: tensor<2x{h}x?x{d}x{t}> {{kiln.shape = affine_map<()[s0] -> (2, {h}, s0, {d})>}},
    %k: tensor<2x{g}x?x{d}x{t}> {{kiln.shape = affine_map<()[s0] -> (2, {g}, s0, {d})>}},
    %v: tensor<2x{g}x?x{d}x{t}> {{kiln.shape = affine_map<()[s0] -> (2, {g}, s0, {d})>}},
    %r: tensor<2x?x{h}x{d}x{t}> {{kiln.shape = affine_map<()[s0] -> (2, s0, {h}, {d})>}},
    %s0: index {{kiln.symbol = "s0"}}) -> tensor<2x?x{h}x{d}x{t}> {{
  %0 = "kiln.fusion"(%q, %k, %v, %r, %s0) ({{
  ^bb0(%q_: tensor<2x{h}x?x{d}x{t}>, %k_: tensor<2x{g}x?x{d}x{t}>, %v_: tensor<2x{g}x?x{d}x{t}>,
      %r_: tensor<2x?x{h}x{d}x{t}>, %n: index):
    %1 = "kiln.attention"(%q_, %k_, %v_) {{scale = 0.25 : f64, causal = {causal}}}
      : (tensor<2x{h}x?x{d}x{t}>, tensor<2x{g}x?x{d}x{t}>, tensor<2x{g}x?x{d}x{t}>) -> tensor<2x{h}x?x{d}x{t}>
    %e = "kiln.empty"(%n) {{shape = affine_map<()[s0] -> (2, {h}, s0, {d})>}} : (index) -> tensor<2x{h}x?x{d}x{t}>
    %2 = linalg.generic {{indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
        affine_map<(d0, d1, d2, d3) -> (d0, d2, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>],
        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
        ins(%1, %r_ : tensor<2x{h}x?x{d}x{t}>, tensor<2x?x{h}x{d}x{t}>) outs(%e : tensor<2x{h}x?x{d}x{t}>) {{
    ^bb0(%in: {t}, %c: {t}, %out: {t}):
      %7 = arith.addf %in, %c : {t}
      linalg.yield %7 : {t}
    }} -> tensor<2x{h}x?x{d}x{t}>
    "kiln.yield"(%2) : (tensor<2x{h}x?x{d}x{t}>) -> ()
  }}) {{kind = "attention", name = "attention", layouts = [
      affine_map<(d0, d1, d2, d3)[s0] -> (d0 * s0 * {h} * {d} + d2 * {h} * {d} + d1 * {d} + d3)>,
      affine_map<(d0, d1, d2, d3)[s0] -> (d0 * s0 * {g} * {d} + d2 * {g} * {d} + d1 * {d} + d3)>,
      affine_map<(d0, d1, d2, d3)[s0] -> (d0 * s0 * {g} * {d} + d2 * {g} * {d} + d1 * {d} + d3)>,
      affine_map<(d0, d1, d2, d3)[s0] -> (d0 * s0 * {h} * {d} + d1 * {h} * {d} + d2 * {d} + d3)>,
      affine_map<(d0, d1, d2, d3)[s0] -> (d0 * s0 * {h} * {d} + d2 * {h} * {d} + d1 * {d} + d3)>]}}
    : (tensor<2x{h}x?x{d}x{t}>, tensor<2x{g}x?x{d}x{t}>, tensor<2x{g}x?x{d}x{t}>, tensor<2x?x{h}x{d}x{t}>, index)
    -> tensor<2x{h}x?x{d}x{t}>
  return %r : tensor<2x?x{h}x{d}x{t}>
}}
"""


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 50, 130])
def test_attention_between_projections(tokens, causal, element):
    dtype, tolerance = TYPES[element]
    h, g, d = 4, 2, 24
    q, k, v = (torch.randn(2, tokens, heads, d).to(dtype) for heads in (h, g, g))
    r, out = torch.randn(2, tokens, h, d).to(dtype), torch.full((2, tokens, h, d), 7.0, dtype=dtype)
    text = ATTENTION.format(h=h, g=g, d=d, t=element, causal=str(causal).lower())
    run_fusion(text, [q, k, v, r], [out], symbols=[tokens])
    heads = [t.transpose(1, 2).double() for t in (q, k, v)]
    want = F.scaled_dot_product_attention(*heads, scale=0.25, is_causal=causal, enable_gqa=True)
    close(out, want.transpose(1, 2) + r.double(), tolerance)


@pytest.mark.parametrize("size", [1, 24])
@pytest.mark.parametrize("flat", [False, True])
def test_attention_of_one_query(size, flat):
    """One row in a block of sixteen, and heads of one element, whose stride may be missing."""
    text = ATTENTION.format(h=2, g=2, d=size, t="f32", causal="false").replace("?", "1").replace(", s0,", ", 1,")
    text = text.replace("(2, s0,", "(2, 1,").replace("* s0", "* 1")
    if flat and size == 1:
        text = text.replace(" + d3)", ")")
    q, k, v, r = (torch.randn(2, 1, 2, size) for _ in range(4))
    out = torch.full((2, 1, 2, size), 7.0)
    run_fusion(text, [q, k, v, r], [out], symbols=[1])
    close(out, v.double() + r.double(), 2e-6)


# Attention with keys and values through descriptors: sizes known, heads inside of a token's row or apart.
PLACES = {
    "tokens": "d0 * 256 * {g} * 32 + d2 * {g} * 32 + d1 * 32 + d3",
    "heads": "d0 * {g} * 256 * 32 + d1 * 256 * 32 + d2 * 32 + d3",
    "packed": "d0 * 256 * 3 * {g} * 32 + d2 * 3 * {g} * 32 + d1 * 32 + d3 + {g} * 32",
}
DESCRIBED = """
func.func @main(%q: tensor<2x4x100x32xbf16>, %k: tensor<2x{g}x256x32xbf16>, %v: tensor<2x{g}x256x32xbf16>)
    -> tensor<2x4x100x32xbf16> {{
  %0 = "kiln.fusion"(%q, %k, %v) ({{
  ^bb0(%q_: tensor<2x4x100x32xbf16>, %k_: tensor<2x{g}x256x32xbf16>, %v_: tensor<2x{g}x256x32xbf16>):
    %1 = "kiln.attention"(%q_, %k_, %v_) {{scale = 0.25 : f64, causal = {causal}}}
      : (tensor<2x4x100x32xbf16>, tensor<2x{g}x256x32xbf16>, tensor<2x{g}x256x32xbf16>) -> tensor<2x4x100x32xbf16>
    "kiln.yield"(%1) : (tensor<2x4x100x32xbf16>) -> ()
  }}) {{kind = "attention", name = "attention", layouts = [
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>,
      affine_map<(d0, d1, d2, d3) -> ({place})>, affine_map<(d0, d1, d2, d3) -> ({place})>,
      affine_map<(d0, d1, d2, d3) -> (d0 * 12800 + d1 * 3200 + d2 * 32 + d3)>]}}
    : (tensor<2x4x100x32xbf16>, tensor<2x{g}x256x32xbf16>, tensor<2x{g}x256x32xbf16>) -> tensor<2x4x100x32xbf16>
  return %0 : tensor<2x4x100x32xbf16>
}}
"""


def placed(x, place):
    """[2, g, 256, 32] in memory as a place says; the memory's first element is what a kernel is given."""
    if place == "heads":
        return x.contiguous()
    if place == "tokens":
        return x.transpose(1, 2).contiguous()
    return (
        torch.stack([torch.full_like(x, torch.nan), x, torch.full_like(x, torch.nan)], 1)
        .permute(0, 3, 1, 2, 4)
        .contiguous()
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("g", [2, 4])
def test_attention_through_descriptors(g, place, causal):
    q, k, v = (torch.randn(2, h, n, 32).to(torch.bfloat16) for h, n in ((4, 100), (g, 256), (g, 256)))
    out = torch.full((2, 4, 100, 32), 7.0, dtype=torch.bfloat16)
    text = DESCRIBED.format(g=g, causal=str(causal).lower(), place=PLACES[place].format(g=g))
    kernel = emit_fusion(text, DotOptions(descriptors=True))
    assert "tt.descriptor_load" in str(kernel)
    run_fusion(text, [q, placed(k, place), placed(v, place)], [out], options=DotOptions(descriptors=True))
    heads = [t.double() for t in (q, k, v)]
    close(out, F.scaled_dot_product_attention(*heads, scale=0.25, is_causal=causal, enable_gqa=True), 1e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("place", list(PLACES))
def test_described_keys_that_fill_no_block(place, causal):
    """197 keys of 24 elements: what a block has past the ends of a head is zero, whatever memory has there."""
    q, k, v = (torch.randn(2, h, n, 24).to(torch.bfloat16) for h, n in ((4, 100), (2, 197), (2, 197)))
    out = torch.full((2, 4, 100, 24), 7.0, dtype=torch.bfloat16)
    text = DESCRIBED.format(g=2, causal=str(causal).lower(), place=PLACES[place].format(g=2))
    for old, new in (("12800", "9600"), ("3200", "2400"), ("256", "197"), ("32", "24")):
        text = text.replace(old, new)
    kernel = str(emit_fusion(text, DotOptions(descriptors=True)))
    assert f"!tt.tensordesc<tensor<1x1x{64 if causal else 256}x32xbf16>>" in kernel
    memory = [torch.full((x.numel() * 3 + 4096,), torch.nan, dtype=torch.bfloat16) for x in (k, v)]
    for x, m in zip((k, v), memory, strict=True):
        m[: placed(x, place).numel()] = placed(x, place).flatten()
    run_fusion(text, [q, *memory], [out], options=DotOptions(descriptors=True))
    heads = [t.double() for t in (q, k, v)]
    close(out, F.scaled_dot_product_attention(*heads, scale=0.25, is_causal=causal, enable_gqa=True), 1e-2)


@pytest.mark.parametrize(
    ("masks", "blocks", "descriptors"),
    [
        ("behind", (64, 32), True),
        ("ahead", (64, 32), True),
        ("ahead", (32, 64), False),
        ("branch", (64, 32), True),
        ("branch", (32, 64), False),
        ("all", (32, 64), True),
    ],
)
def test_where_blocks_are_masked(masks, blocks, descriptors):
    """However the diagonal and the last keys are masked, and in which order heads come, the numbers are the same."""
    q, k, v = (torch.randn(2, h, n, 32).to(torch.bfloat16) for h, n in ((4, 100), (2, 197), (2, 197)))
    for causal, keys in ((True, 197), (False, 197), (True, 64)):
        out = torch.full((2, 4, 100, 32), 7.0, dtype=torch.bfloat16)
        text = DESCRIBED.format(g=2, causal=str(causal).lower(), place=PLACES["tokens"].format(g=2))
        text = text.replace("256", str(keys))
        changes = {"block_m": blocks[0], "block_n": blocks[1], "masks": masks, "across_heads": masks == "all"}
        operands = [placed(x[:, :, :keys], "tokens") for x in (k, v)]
        run_fusion(text, [q, *operands], [out], options=DotOptions(descriptors=descriptors), changes=changes)
        heads = [t.double() for t in (q, k[:, :, :keys], v[:, :, :keys])]
        close(out, F.scaled_dot_product_attention(*heads, scale=0.25, is_causal=causal, enable_gqa=True), 1e-2)


def test_one_key_for_all_heads():
    """Heads that are expanded have no dim in the descriptor."""
    q, k, v = (torch.randn(2, h, n, 32).to(torch.bfloat16) for h, n in ((4, 100), (1, 256), (1, 256)))
    out = torch.full((2, 4, 100, 32), 7.0, dtype=torch.bfloat16)
    text = DESCRIBED.format(g=4, causal="false", place="d0 * 256 * 32 + d2 * 32 + d3")
    assert "!tt.tensordesc<tensor<1x128x32xbf16>>" in str(emit_fusion(text, DotOptions(descriptors=True)))
    run_fusion(text, [q, k, v], [out], options=DotOptions(descriptors=True))
    heads = [t.double() for t in (q, k.expand(2, 4, 256, 32), v.expand(2, 4, 256, 32))]
    close(out, F.scaled_dot_product_attention(*heads, scale=0.25), 1e-2)
