# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Wheels are all that is needed: models compile and run where no program is on the PATH, so no C or C++ compiler."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROCESS = """
import copy, shutil, sys
import torch, kiln
from torch import nn

tools = ("cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "as", "ptxas", "sh")
assert [t for t in tools if shutil.which(t)] == []

torch.manual_seed(0)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.LayerNorm(8)
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.convolution(x)).flatten(2).transpose(1, 2)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return torch.log_softmax(self.head(nn.functional.gelu(x)).mean(1), -1)

def close(found, exact):
    error = (found.double() - exact).norm() / exact.norm().clamp_min(1e-30)
    assert error < 1e-5, error

model = Model()
options = {"fallback": False, "target": sys.argv[1]}
x, target = torch.randn(4, 3, 9, 7), torch.randint(0, 5, (4,))
exact = copy.deepcopy(model).double()
loss = nn.functional.nll_loss(exact(x.double()), target)
loss.backward()

run = torch.compile(model, backend="kiln", fullgraph=True, options=options)
found = nn.functional.nll_loss(run(x), target)
found.backward()
close(found, loss)
for mine, theirs in zip(model.parameters(), exact.parameters(), strict=True):
    close(mine.grad, theirs.grad)
with torch.no_grad():
    model.eval(), exact.eval()
    close(run(x), exact(x.double()))
print("ran")
"""


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_training_and_inference(tmp_path: Path, target: str) -> None:
    root = str(Path(__file__).parents[2])
    empty = tmp_path / "bin"
    empty.mkdir()
    mine = {"PATH": str(empty), "KILN_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "2"}
    kept = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "CPP", "LD", "TRITON_PTXAS_PATH")}
    environment = {**kept, **mine, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", PROCESS, target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "ran"
