# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches in NVTX ranges, on the emulated GPU."""

import re

import pytest
import torch
from torch import nn

import kiln.frontend.backend as kiln
from kiln.runtime.split import short_title


def model(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    first = torch.softmax(nn.functional.linear(x, w, b), -1)
    return first, torch.linalg.det(first[:4, :4]), first.exp().sum(0).index_add(0, torch.tensor([1, 1]), x[0, :2])


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is pushed; a pop is an empty string."""
    found: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", found.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: found.append(""))
    return found


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(512, 260), torch.randn(520, 260) / 16, torch.randn(520)


def test_each_kernel_has_a_range_with_its_line(gpu, ranges) -> None:
    run = torch.compile(model, backend=kiln.kiln, options={"fallback": False, "nvtx": True})
    for _ in range(2):
        given = inputs()
        for value, exact in zip(run(*given), model(*(x.double() for x in given)), strict=True):
            assert ((value.double() - exact).norm() / exact.norm()).item() < 1e-4
    titles = [title for title in ranges if title and not title.startswith("kiln ")]
    assert {name.rpartition("_")[0] for name in gpu.launched} <= {title.partition(" ")[0] for title in titles}
    assert all(re.search(r" \(test_ranges\.py:\d+\)$", title) for title in titles), titles
    assert any(title.startswith("aten.linear") for title in titles)  # by a library
    assert sum(title == "" for title in ranges) == sum(title != "" for title in ranges)
    assert gpu.recorded == gpu.replayed == 0  # what is replayed as a graph has no ranges


def test_there_are_none_by_default(gpu, ranges) -> None:
    torch.compile(model, backend=kiln.kiln, options={"fallback": False})(*inputs())
    assert ranges == []


def test_pytorchs_profiler_sees_them(gpu, ranges) -> None:
    run = torch.compile(model, backend=kiln.kiln, options={"fallback": False, "nvtx": True})
    given = inputs()
    run(*given)
    ranges.clear()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run(*given)
    names = [event.name for event in profiler.events()]
    assert any("(test_ranges.py:" in name for name in names) and ranges == []


def test_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from kiln.frontend.options import Options

    assert not Options.build().nvtx
    monkeypatch.setenv("KILN_NVTX", "1")
    assert Options.build().nvtx


def test_titles_without_folders() -> None:
    assert short_title("mm (/a/b (c)/model.py:12:5)") == "mm (model.py:12)"
    assert short_title("mm (/a/b/model.py:12:5)") == "mm (model.py:12)"
    assert short_title("mm (model.py:12)") == "mm (model.py:12)" and short_title("mm") == "mm"
