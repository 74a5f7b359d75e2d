# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution on an NVIDIA GPU; skipped where there is none."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from kiln.errors import CheckError
from kiln.runtime.checked.checker import LaunchChecker
from kiln.tools.kiln_check import main

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def compiled(function: Any, mode: str = "default") -> Any:
    options = {"fallback": False, "check": True, "cache": False, "mode": mode}
    return torch.compile(function, backend=kiln.backend, options=options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_right_kernels_pass(dtype: torch.dtype, mode: str) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.lift, self.back = nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.lift(self.norm(x)).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
            return x + F.gelu(self.back(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)))

    model = Block().to("cuda", dtype)
    run = compiled(model, mode)
    for _ in range(4):
        run(torch.randn(4, 130, 256, device="cuda", dtype=dtype)).float().square().sum().backward()


def test_right_convolutions_pass() -> None:
    model = nn.Sequential(nn.Conv2d(48, 192, 1), nn.ReLU(), nn.Conv2d(192, 64, 3, padding=1), nn.BatchNorm2d(64))
    model = model.to("cuda", torch.bfloat16, memory_format=torch.channels_last)
    x = torch.randn(8, 48, 28, 28, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    compiled(model)(x).float().square().sum().backward()


def test_a_kernel_without_operands_passes() -> None:
    def positions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = torch.arange(64, device=x.device)
        return x + 1, (n[None, :] - n[:, None]).clamp(min=0).float()

    compiled(positions)(torch.randn(8, device="cuda"))


def test_a_wrong_kernel_is_named_and_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    after = LaunchChecker.after

    def changed(self: Any, seen: Any, results: Any) -> None:
        results[0].view(-1)[7] += 1.0
        after(self, seen, results)

    with monkeypatch.context() as patched:
        patched.setattr(LaunchChecker, "after", changed)
        with pytest.raises(CheckError) as caught:
            compiled(lambda x: F.softmax(x, -1))(torch.randn(64, 100, device="cuda"))
    assert "softmax" in caught.value.kernel
    assert main([caught.value.folder, "--stored"]) == 1
    assert main([caught.value.folder]) == 0
