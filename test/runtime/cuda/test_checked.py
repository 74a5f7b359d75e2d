# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution on the emulated GPU: launches one by one, libraries' calls among them, no replays."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from kiln.errors import CheckError
from kiln.runtime.checked.checker import LaunchChecker


def compiled(function: Callable[..., Any], check: bool | str = True) -> Callable[..., Any]:
    return torch.compile(function, backend=kiln.backend, options={"fallback": False, "check": check, "cache": False})


def test_kernels_and_products_of_a_library(gpu, checkers):
    def run(x, w, b):
        return F.layer_norm(F.gelu(F.linear(x, w, b)), (520,)).sum(0)

    call = compiled(run)
    for _ in range(2):
        call(torch.randn(256, 260), torch.randn(520, 260) / 16, torch.randn(520))
    plan = checkers[0].plan
    assert any(getattr(step, "product", None) for step in plan.steps)
    assert checkers[0].checked == 2 * len(plan.steps) and not checkers[0].skipped


def test_sums_by_atomics_read_what_was_there(gpu, checkers):
    def scatter(x, index, y):
        return x.index_add(0, index, y) * 2

    x, index, y = torch.randn(50, 16), torch.randint(0, 50, (200,)), torch.randn(200, 16)
    compiled(scatter)(x, index, y)
    assert checkers[0].checked and not checkers[0].skipped


def test_a_wrong_kernel_is_named(gpu, monkeypatch):
    """What a launch has written is changed behind it."""
    model = nn.Sequential(nn.LayerNorm(40), nn.ReLU())
    after = LaunchChecker.after

    def changed(self, seen, results):
        results[0].view(-1)[7] += 0.01
        return after(self, seen, results)

    monkeypatch.setattr(LaunchChecker, "after", changed)
    with torch.no_grad(), pytest.raises(CheckError) as caught:
        compiled(model)(torch.randn(6, 40))
    assert "layer_norm" in caught.value.kernel and "1 of 240 elements" in str(caught.value)
