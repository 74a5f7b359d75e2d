# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Positions of 32 bits for dynamic sizes that Dynamo's guards keep small, of 64 bits for others."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
import kiln.frontend.compile as compile_module
import kiln.frontend.import_.limits as limits
from kiln.lowering.gpu import emit


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Bits of the positions of each kernel that is emitted."""
    found: list[int] = []
    kept = emit.emit_kernel

    def kernel(fusion: Any, name: str, backend: str) -> Any:
        body = emit.FusionBody(fusion)
        found.append(emit.index_type(body, emit.fusion_layouts(fusion, body)).width)
        return kept(fusion, name, backend)

    monkeypatch.setattr(emit, "emit_kernel", kernel)
    torch._dynamo.reset()
    yield found


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options = {"target": "tt-cpu", "fallback": False, "cache": False, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, dynamic=True, options=options)


def _close(found: torch.Tensor, exact: torch.Tensor) -> None:
    assert (found.double() - exact).norm() < 1e-6 * exact.norm()


def test_one_graph_of_narrow_kernels_for_all_sizes(widths: list[int]) -> None:
    def run(x, w, b):
        return F.gelu(torch.softmax(x, -1) @ w) + b, x.sum(0), x.t() * 2

    call, first = compiled(run), 0
    for m, n in ((5, 7), (33, 129), (2, 3)):
        inputs = torch.randn(m, n), torch.randn(n, 9), torch.randn(9)
        for found, exact in zip(call(*inputs), run(*(x.double() for x in inputs)), strict=True):
            _close(found, exact)
        first = first or len(widths)
    assert len(widths) == first and set(widths) == {32}


def test_larger_tensors_compile_again_with_wide_positions(widths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMIT", 1000)
    call = compiled(lambda x: torch.relu(x) * 2)
    for shape, expected in (((9, 7), [32]), ((20, 30), [32]), ((50, 40), [32, 64]), ((60, 70), [32, 64])):
        x = torch.randn(shape)
        _close(call(x), torch.relu(x.double()) * 2)
        assert widths == expected


def test_a_training_step(widths: list[int]) -> None:
    layer = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.LayerNorm(9))
    exact = nn.Sequential(nn.Linear(7, 9), nn.GELU(), nn.LayerNorm(9)).double()
    exact.load_state_dict(layer.state_dict())
    call = compiled(layer)
    for n in (5, 40):
        x = torch.randn(n, 7)
        (call(x).sin().sum()).backward()
        (exact(x.double()).sin().sum()).backward()
    for p, q in zip(layer.parameters(), exact.parameters(), strict=True):
        assert p.grad is not None and q.grad is not None
        assert (p.grad.double() - q.grad).norm() < 1e-5 * q.grad.norm()
    assert widths.count(32) == len(widths)


def test_strides_count_as_well_as_elements(widths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements that lie far from each other."""
    monkeypatch.setattr(limits, "LIMIT", 1000)
    memory = torch.randn(50, 100)
    call = compiled(lambda x: x * 2)
    x = memory[::7, ::9]
    _close(call(x), x.double() * 2)
    assert widths == [64]


def test_graphs_from_the_cache_have_their_guards(
    widths: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """What another call has compiled, of about the same sizes, is for its sizes alone."""
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setattr(limits, "LIMIT", 1000)

    def run(x):
        return torch.relu(x) * 3

    for shapes in (((9, 7), (50, 40)), ((12, 5), (60, 36))):
        torch._dynamo.reset()
        call = compiled(run, cache=True)
        for shape in shapes:
            x = torch.randn(shape)
            _close(call(x), torch.relu(x.double()) * 3)
        assert widths == [32, 64]


def test_no_guards_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    seen: list[Any] = []
    monkeypatch.setattr(compile_module, "guard_sizes", lambda gm: seen.append(gm) or [])
    compiled(lambda x: x * 5, target="cpu")(torch.randn(3, 4))
    assert not seen
    compiled(lambda x: x * 6)(torch.randn(3, 4))
    assert seen
