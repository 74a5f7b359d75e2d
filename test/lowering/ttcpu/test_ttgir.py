# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The TTGIR of attention by warps with different jobs, interpreted: its numbers, and that what is wrong with it shows."""

import os
import re
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "gpu", "dot"))

from fusion_support import close, emit_fusion, function, run_fusion
from test_specialized import MAPS, attention, schedule
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.schedules import to_attribute
from kiln.errors import InvalidIRError, NumericsError, UnsupportedError
from kiln.lowering.gpu import ttir
from kiln.lowering.gpu.dot.specialized import Place, Specialized
from kiln.lowering.gpu.dot.specialized_ttgir import specialized_ttgir
from kiln.lowering.ttcpu.ttgir.interpret import run_ttgir
from kiln.lowering.ttcpu.ttgir.memory import TtgirError
from kiln.lowering.ttcpu.ttgir.run import run_specialized
from kiln.passes.numerics.kernels import verify_kernels


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("h", "g", "s", "t", "together", "dtype", "causal", "size"),
    [
        (2, 2, 300, 300, 2, "bf16", True, 128),
        (4, 2, 130, 257, 4, "bf16", False, 128),
        (3, 1, 260, 70, 1, "f16", True, 128),
        (2, 2, 1, 1, 1, "bf16", False, 128),
        (2, 1, 128, 384, 2, "bf16", False, 80),
    ],
)
def test_what_is_shipped_computes_what_the_triton_ir_does(h, g, s, t, together, dtype, causal, size, seed):
    type_ = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    q, kv = torch.randn(2, s, h, size).to(type_), torch.randn(2, t, 2, g, size).to(type_)
    out = torch.full((2, s, h, size), 7.0, dtype=type_)
    text = attention(2, h, g, s, t, causal, dtype, size)
    changes = schedule(together, pingpong=bool(seed & 1))
    kernel = emit_fusion(text, MAPS, changes)
    with kernel.context:
        run_specialized(function(kernel), [q, kv, kv.flatten(), out], seed)
    x, k, v = (x.transpose(1, 2).double() for x in (q, kv[:, :, 0], kv[:, :, 1]))
    want = F.scaled_dot_product_attention(x, k, v, scale=0.125, is_causal=causal, enable_gqa=True).transpose(1, 2)
    close(out, want, 1e-2 if dtype == "bf16" else 2e-3)
    if seed == 0:
        body = torch.full_like(out, 7.0)
        run_fusion(text, [q, kv, kv.flatten()], [body], options=MAPS, changes=changes)
        close(body, out.double(), 5e-3 if dtype == "bf16" else 1e-3)


# -- defects ----------------------------------------------------------------------------------------------


def problem(**changes: Any) -> tuple[str, list[torch.Tensor], torch.Tensor]:
    """A kernel's text, its tensors, and what it is to compute."""
    places = [Place(i, (0, 1), (0, 0, 0, 0)) for i in range(4)]
    p = Specialized((1,), 2, 2, 200, 520, 128, "bf16", 0.125, False, True, 128, 2, 1, True, *places)
    q, k, v = (torch.randn(1, 2, n, 128).bfloat16() for n in (200, 520, 520))
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.125)
    return specialized_ttgir(p, "kernel"), [q, k, v, torch.full_like(q, torch.nan)], want


def without(text: str, pattern: str, number: int = 0) -> str:
    """The text without the line of this number of those that hold the pattern."""
    lines = text.splitlines()
    found = [i for i, line in enumerate(lines) if re.search(pattern, line)]
    return "\n".join(lines[: found[number]] + lines[found[number] + 1 :])


def barrier(text: str, op: str, name: str, number: int) -> str:
    """A pattern for the uses by `op` of one barrier: that of the value which is a part of `name`, by its number; the
    first ones are for initialising it."""
    parts = re.findall(rf"(%\w+) = ttg.memdesc_index %{name}\[", text)
    return rf"{op} {parts[number]}\b"


def defect(name: str, text: str) -> str:
    if name == "no wait for keys":
        return without(text, barrier(text, "ttng.wait_barrier", "k_full", 2))
    if name == "no wait for values":
        return without(text, barrier(text, "ttng.wait_barrier", "v_full", 2))
    if name == "keys are never given back":
        return without(text, barrier(text, "ttng.arrive_barrier", "k_empty", 2))
    if name == "values are given back too early":
        line = next(x for x in text.splitlines() if re.search(barrier(text, "ttng.arrive_barrier", "v_empty", 2), x))
        early = re.search(r".*ttng.warp_group_dot .*#sums>\n", text)
        assert early is not None
        moved = text.replace(line + "\n", "")
        uses = re.findall(r"%\w+", line)
        made = [x for x in text.splitlines() if any(x.strip().startswith(f"{u} = ") for u in uses)]
        for x in made:
            moved = moved.replace(x + "\n", "", 1)
        return moved.replace(early[0], early[0] + "\n".join([*made[:2], line]) + "\n", 1)
    if name == "wrong bytes":
        return text.replace("ttng.barrier_expect %v", "ttng.barrier_expect %v", 1).replace(", 32768, ", ", 32000, ", 1)
    if name == "no fence":
        return without(text, "fence_async_shared", 1)
    if name == "no wait before the result's memory is written":
        return without(text, "async_tma_store_wait", 0)
    if name == "no wait for the product":
        found = re.search(r"(%\w+) = ttng.warp_group_dot_wait (%\w+) \{pendings = 0", text)
        assert found is not None
        first, rest = text.split("partition0(", 1)  # names mean something else in another region
        first = re.sub(rf"{found[1]}\b", found[2], without(first, re.escape(found[0])))
        return f"{first}partition0({rest}"
    if name == "a product is read too early":
        return text.replace(
            "{pendings = 0 : i32} : tensor<64x128xf32, #sums>", "{pendings = 1 : i32} : tensor<64x128xf32, #sums>", 1
        )
    if name == "one arrival too few":
        return text.replace("ttng.init_barrier", "ttng.init_barrier", 1).replace(
            ", 2 : !ttg.memdesc<1xi64", ", 3 : !ttg.memdesc<1xi64", 1
        )
    raise AssertionError(name)


DEFECTS = [
    "no wait for keys",
    "no wait for values",
    "keys are never given back",
    "values are given back too early",
    "wrong bytes",
    "no fence",
    "no wait before the result's memory is written",
    "no wait for the product",
    "a product is read too early",
    "one arrival too few",
]


@pytest.mark.parametrize("name", DEFECTS)
def test_defects_are_found(name):
    """By an error, or by NaN, with one of the first seeds."""
    text, tensors, want = problem()
    changed = defect(name, text)
    assert changed != text
    for seed in range(4):
        tensors[3].fill_(torch.nan)
        try:
            run_ttgir(changed, tensors, 2, seed)
        except TtgirError:
            return
        if not (tensors[3].double() - want).norm() < 1e-2 * want.norm():
            return
    raise AssertionError(f"{name}: nothing was seen")


def test_without_a_defect_nothing_is_found():
    text, tensors, want = problem()
    for seed in range(4):
        tensors[3].fill_(torch.nan)
        run_ttgir(text, tensors, 2, seed)
        close(tensors[3], want, 1e-2)


def test_a_deadlock_says_who_waits_for_what():
    text, tensors, _ = problem()
    with pytest.raises(
        TtgirError, match=r"no partition can go on: .*partition 1, line \d+: waits for the end of phase"
    ):
        run_ttgir(defect("keys are never given back", text), tensors, 1)


def test_what_is_not_interpreted_is_named():
    text, tensors, _ = problem()
    with pytest.raises(UnsupportedError, match="math.exp at line"):
        run_ttgir(text.replace("math.exp2", "math.exp", 1), tensors, 1)
    with pytest.raises(InvalidIRError, match="unknown form of TTGIR"):
        run_ttgir(
            text.replace("    ttng.fence_async_shared {bCluster = false}\n", "    something else\n", 1), tensors, 1
        )


def scheduled() -> str:
    """A module whose attention is scheduled for warps with different jobs."""
    t = "tensor<1x2x200x128xbf16>"
    with create_context(tt=True), ir.Location.unknown():
        chosen = str(to_attribute(schedule(1, 3)))  # an attribute dies with its context
    layout = "affine_map<(d0, d1, d2, d3) -> (d0 * 51200 + d1 * 25600 + d2 * 128 + d3)>"
    return f"""
func.func @main(%q: {t}, %k: {t}, %v: {t}) -> {t} {{
  %0 = "kiln.fusion"(%q, %k, %v) ({{
  ^bb0(%q_: {t}, %k_: {t}, %v_: {t}):
    %1 = "kiln.attention"(%q_, %k_, %v_) {{scale = 0.125 : f64, causal = false}} : ({t}, {t}, {t}) -> {t}
    "kiln.yield"(%1) : ({t}) -> ()
  }}) {{kind = "attention", name = "attention", layouts = [{layout}, {layout}, {layout}, {layout}],
      schedule = {chosen}}} : ({t}, {t}, {t}) -> {t}
  return %0 : {t}
}}
"""


@pytest.mark.parametrize("name", ["", "no wait for keys", "a product is read too early"])
def test_checks_run_what_is_shipped(name, monkeypatch):
    """The loops in Triton IR, which are what runs, are right whatever the text for a GPU is."""
    if name:
        monkeypatch.setattr(ttir, "specialized_ttgir", lambda p, kernel: defect(name, specialized_ttgir(p, kernel)))
    with create_context(tt=True), ir.Location.unknown():
        module = parse(scheduled())
        if name:
            with pytest.raises(NumericsError, match="what a GPU would run"):
                verify_kernels(module, "tt-cpu")
        else:
            verify_kernels(module, "tt-cpu")
