# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The workbench on a GPU: times and instructions in traces, NVTX ranges, edited code of kernels."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import kiln
from kiln.frontend.report.trace.graph_data import graph_data

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(1024)
        self.linear = nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        return (nn.functional.gelu(y) + x) * 3.0


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def made(dtype: torch.dtype = torch.bfloat16) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Model().cuda().to(dtype).eval(), torch.randn(4096, 1024, device="cuda", dtype=dtype)


def error(found: torch.Tensor, model: nn.Module, x: torch.Tensor, factor: float = 1.0) -> float:
    import copy

    with torch.no_grad():
        exact = factor * copy.deepcopy(model).double()(x.double())
    return ((found.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_trace_has_times_and_the_roof(mode: str | None) -> None:
    model, x = made()
    with torch.no_grad():
        found = kiln.trace(model, x, mode=mode)
    data = graph_data(found.graphs[0].record)
    assert data["roof"] and len(data["launches"]) >= 2
    for launch in data["launches"]:
        assert launch["measured"] is not None and 1e-7 < launch["measured"] < 1e-2, launch
        # Kernels that move megabytes cannot be faster than memory and tensor cores, nor this many times slower.
        if launch["kernel"] >= 0:
            assert 0.02 < launch["roof"] / launch["measured"] < 1.6, launch
    assert "of roof" in found.graphs[0].time(calls=3).to_text()
    found.graphs[0].check()


def test_a_training_step_has_times() -> None:
    model, x = made()
    found = kiln.trace(model.train(), x, backward=True, calls=3)
    assert [graph.record.report.graph for graph in found.graphs] == ["forward", "backward"]
    for graph in found.graphs:
        own = [launch for launch in graph_data(graph.record)["launches"] if launch["kernel"] >= 0]
        assert own and all(launch["measured"] for launch in own)


def test_instructions_lead_to_the_model() -> None:
    from kiln.lowering.gpu.sass import disassembler

    if disassembler() is None:
        pytest.skip("needs nvdisasm of Triton's package")
    model, x = made()
    with torch.no_grad():
        data = graph_data(kiln.trace(model, x, calls=1).graphs[0].record)
    for kernel in data["kernels"]:
        (sass,) = [level for level in kernel["levels"] if level["title"] == "SASS"]
        known = [s for text, s in zip(sass["text"].split("\n"), sass["sets"], strict=True) if text.startswith("/*")]
        assert sum(s >= 0 for s in known) > 0.8 * len(known), kernel["name"]


def test_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    push = torch.cuda.nvtx.range_push

    def told(title: str) -> Any:
        found.append(title)
        return push(title)

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told)
    model, x = made()
    with torch.no_grad():
        run = torch.compile(model, backend="kiln", options={"nvtx": True, "cache": False, "fallback": False})
        assert error(run(x), model, x) < 1e-2
        kernels = [title for title in found if not title.startswith("kiln ")]
        assert len(kernels) >= 2 and all(re.search(r" \(test_workbench_on_gpu\.py:\d+\)$", title) for title in kernels)
        with torch.profiler.profile() as profiler:
            run(x)
            torch.cuda.synchronize()
    names = [event.name for event in profiler.events()]
    assert set(kernels) <= set(names)


@pytest.mark.parametrize("ending", ["fused.mlir", "sched.mlir", "ttir", "ptx"])
def test_edited_files_are_what_runs(ending: str, tmp_path: Path) -> None:
    model, x = made(torch.float32)
    options = {"fallback": False, "cache": False}
    with torch.no_grad():
        first = torch.compile(model, backend="kiln", options={**options, "debug_dir": str(tmp_path)})(x)
        torch._dynamo.reset()
        assert error(first, model, x) < 1e-2
        old, new = ("0f40400000", "0f40A00000") if ending == "ptx" else (r"3\.0+e\+00", "5.0e+00")
        edited = [path for path in tmp_path.glob(f"*/*.{ending}") if re.search(old, path.read_text())]
        assert edited
        for path in edited:
            path.write_text(re.sub(old, new, path.read_text()))
        second = torch.compile(model, backend="kiln", options={**options, "override": str(tmp_path)})(x)
    assert error(second, model, x, 5 / 3) < 1e-2
