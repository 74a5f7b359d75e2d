# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""compose-views and fold-matmul-views keep the numbers, and leave the views they should; decisions are recorded."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_mlir import ir

sys.path.insert(0, str(Path(__file__).parent))

from case_tensors import noise
from harness import convert, main_arguments

from kiln.dialects import kiln
from kiln.dialects.execute import run_reference
from kiln.passes.compose_views import ComposeViews
from kiln.passes.fold_matmul_views import FoldMatmulViews

F = torch.nn.functional


def mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, b)) @ w2.t() + x


def heads(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    batch, length, _ = x.shape
    q = F.linear(x, w, b).view(batch, length, 2, 4).transpose(1, 2)
    scores = (q @ q.transpose(-1, -2)).softmax(-1)
    return (scores @ q).transpose(1, 2).reshape(batch, length, 8)


def slices(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x[:, 1:] @ w).flip(0).transpose(0, 1)[1:].reshape(-1)


X = noise(2, 3, 8)
WEIGHTS = (noise(5, 8, seed=1), noise(5, seed=2), noise(8, 5, seed=3))
# function, inputs, matmuls that keep a view as an operand
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], int]] = {
    "mlp": (mlp, (X, *WEIGHTS), 0),
    "mlp_batch_1": (mlp, (X[:1].clone(), *WEIGHTS), 0),
    "heads": (heads, (X, noise(8, 8, seed=1), noise(8, seed=2)), 2),
    "slices": (slices, (X, noise(8, 8, seed=1)), 1),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, dynamic: bool, context: ir.Context) -> None:
    fn, inputs, viewed = CASES[name]
    imported, decisions = convert(fn, inputs, context, dynamic)
    assert decisions and {d.way for d in decisions} == {"kiln"}
    ComposeViews().run(imported.module)
    FoldMatmulViews().run(imported.module)
    assert imported.module.operation.verify()
    arguments = [v.numpy() if isinstance(v, torch.Tensor) else v for v in main_arguments(imported, inputs)]
    result = run_reference(imported.module, arguments)[imported.outputs[0].index]
    torch.testing.assert_close(torch.from_numpy(result.copy()), fn(*inputs), rtol=1e-5, atol=1e-5)
    block = imported.module.body.operations[0].regions[0].blocks[0]
    operands = [v for op in block.operations if op.operation.name == "kiln.matmul" for v in op.operation.operands]
    made_by = [kiln.name_of(v.owner) for v in operands if not isinstance(v, ir.BlockArgument)]
    matmuls = [op.operation for op in block.operations if op.operation.name == "kiln.matmul"]
    assert all(ir.RankedTensorType(op.results[0].type).rank >= 3 for op in matmuls)
    assert made_by.count("kiln.view") <= viewed * len(matmuls)


def test_decisions_name_every_op(context: ir.Context) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> Any:
        return torch.relu(x), i // (i + 1), torch.lgamma(x)

    _, decisions = convert(fn, (X, torch.arange(4)), context)
    ways = {d.op: d for d in decisions}
    assert ways["torch.aten.relu"].way == "kiln"
    assert not ways["torch.aten.relu"].reason
    assert ways["torch.aten.lgamma"].way == "aten"
    assert "no rule" in ways["torch.aten.lgamma"].reason
    division = next(d for op, d in ways.items() if ".div" in op or "floor_divide" in op)
    assert division.way == "aten"
    assert "may be zero" in division.reason
    assert division.location
