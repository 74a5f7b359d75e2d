# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention with large heads through the whole compiler: warps with different jobs, and what replaces a rejected one."""

import pytest
import torch
import torch.nn.functional as F

import kiln
import kiln.lowering.host.gpu_kernels as gpu_kernels
from kiln.errors import CompileError
from kiln.frontend.report import collect


def attend(q, kv):
    """Keys and values are slices of one projection, the result is what the next one reads."""
    q = q.transpose(1, 2)
    k, v = (x.transpose(1, 2) for x in kv.unbind(2))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return found.transpose(1, 2).flatten(2)


def check(size=128):
    """Runs attention of 68 heads on 34; returns the compilation's notes."""
    q = torch.randn(1, 130, 68, size, dtype=torch.bfloat16)
    kv = torch.randn(1, 37, 2, 34, size, dtype=torch.bfloat16)
    run = torch.compile(attend, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    with collect() as reports:
        found = run(q, kv)
    exact = attend(q.double(), kv.double())
    assert (found.double() - exact).norm() < 1e-2 * exact.norm()
    assert not reports[0].aten_calls
    return [n.reason for n in reports[0].notes]


def watch(gpu, monkeypatch, rejects):
    """The names of the kernels that have TTGIR, in the order in which they are compiled."""
    special: set[str] = set()
    seen: list[str] = []

    def to_ttir(function):
        name = gpu.to_ttir(function)
        (special.add if "kiln.specialized" in function.operation.attributes else special.discard)(name)
        return name

    def compile_ttir(text, target, options):
        if text in special:
            seen.append(text)
            if rejects:
                raise CompileError("no such op")
        return gpu.compile_ttir(text, target, options)

    monkeypatch.setattr(gpu_kernels, "to_ttir", to_ttir)
    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_ttir)
    return seen


@pytest.mark.parametrize("size", [128, 72, 96])
def test_large_heads(gpu, monkeypatch, size):
    seen = watch(gpu, monkeypatch, rejects=False)
    check(size)
    assert len(seen) == 1


def test_a_triton_that_rejects_it(gpu, monkeypatch):
    seen = watch(gpu, monkeypatch, rejects=True)
    assert any(note == "a smaller schedule: no such op" for note in check())
    assert len(seen) == 1


def test_what_follows_is_a_kernel_behind_it(gpu, monkeypatch):
    """With many keys; with few it is in the kernel for all GPUs."""
    for keys, kinds in ((1024, ["attention", "pointwise"]), (200, ["attention"])):
        q, k, v = (torch.randn(1, 34, n, 80, dtype=torch.bfloat16) for n in (260, keys, keys))
        seen = watch(gpu, monkeypatch, rejects=False)

        def attend(q, k, v):
            return torch.exp2(F.scaled_dot_product_attention(q, k, v) / 4)

        torch._dynamo.reset()
        with collect() as reports:
            found = torch.compile(attend, backend=kiln.backend, fullgraph=True, options={"fallback": False})(q, k, v)
        exact = attend(q.double(), k.double(), v.double())
        assert (found.double() - exact).norm() < 1e-2 * exact.norm()
        assert [kernel.kind for kernel in reports[0].kernels] == kinds and not reports[0].aten_calls
        assert len(seen) == (keys == 1024)
