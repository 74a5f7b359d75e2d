# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every stage of a compilation, as dumped, parses, verifies and keeps the stage's invariants."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kiln.dialects import create_context, parse
from kiln.passes.invariants import STAGES, check_stage


def pointwise(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + 1) * x.mean(-1, keepdim=True)


def attention(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(x.shape[0], x.shape[1], 4, -1).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


def views_and_cat(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:, 1:].flip(0), x.transpose(0, 1).reshape(x.shape[0], -1)[:, :3]], dim=1).softmax(-1)


def sorted_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x, dim=-1)
    return values.cumsum(-1), indices


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "pointwise": (pointwise, (6, 16)),
    "mlp": (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 8)), (4, 16)),
    "convolution": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 10, 10)),
    "attention": (attention, (2, 8, 32)),
    "views_and_cat": (views_and_cat, (6, 6)),
    "sorted_rows": (sorted_rows, (4, 10)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_stages(name: str, dynamic: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, shape = CASES[name]
    if isinstance(model, nn.Module):
        model = model.eval()
    options = {"fallback": False, "debug_dir": str(tmp_path)}
    x = torch.randn(shape)
    with torch.no_grad():
        result = torch.compile(model, backend="kiln", fullgraph=True, dynamic=dynamic, options=options)(x)
        torch.testing.assert_close(result, model(x))
    seen: list[str] = []
    for path in sorted(tmp_path.rglob("[0-9]*.mlir")):
        stage = path.suffixes[-2][1:] if len(path.suffixes) > 1 else ""
        if stage in STAGES:
            with create_context():
                module = parse(path.read_text(encoding="utf-8"))
                module.operation.verify()
                check_stage(module, stage)
            seen.append(stage)
    assert seen == ["graph", "kiln", "fused", "sched", "kernels", "vector", "llvm", "object", "plan"]
