# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``torch._dynamo.config.caching_precompile`` with Kiln: Dynamo does not run, and no graph is taken for another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._C._dynamo.eval_frame import _reset_precompile_entries
from torch._dynamo.precompile_context import PrecompileContext
from torch._dynamo.utils import counters

import kiln
from kiln.frontend.cache import autograd_cache_hooks, graph_key
from kiln.frontend.cache.compiled_graphs import graph_cache

from .conftest import assert_same


@pytest.fixture(autouse=True)
def precompiling(caches):
    with torch._dynamo.config.patch(caching_precompile=True):
        forget()
        yield
    forget()


def forget():
    """What another process would not know."""
    torch._dynamo.reset()
    PrecompileContext.clear()
    for fn in (f, Net.forward, dynamic, broken):
        _reset_precompile_entries(fn.__code__)
    counters.clear()


def save():
    """What the end of a process does; afterwards nothing is known."""
    torch.compiler.save_cache_artifacts()
    forget()


def was_loaded():
    return counters["dynamo_cache"]["dynamo_cache_hit"] > 0 and not counters["frames"]


def f(x, w):
    return torch.relu(x @ w + 1).sum(-1), x.transpose(0, 1)


def test_nothing_is_traced(kinds):
    for turn in range(2):
        x, w = torch.randn(5, 7), torch.randn(7, 3)
        compiled = torch.compile(f, backend="kiln", fullgraph=True)
        assert_same(compiled(x, w), f(x, w))
        assert was_loaded() == (turn == 1)
        save()
    assert kinds == ["inference"]


def test_kiln_cache_is_not_needed(kinds):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    torch.compile(f, backend="kiln")(x, w)
    save()
    graph_cache().clear()
    assert_same(torch.compile(f, backend="kiln")(x, w), f(x, w))
    assert was_loaded()


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.act, self.norm = nn.Linear(6, 5), act, nn.BatchNorm1d(5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.norm(self.act(self.first(x)))


def step(model, compiled, x):
    model.zero_grad()
    loss = (compiled(x) ** 2).mean()
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    return [loss.detach(), *grads, *(b.clone() for b in model.buffers())]


def twins(act):
    """Two models with the same new weights."""
    models = Net(act), Net(act)
    models[1].load_state_dict(models[0].state_dict())
    return models


def test_training_with_buffers_and_other_weights(kinds):
    for turn in range(2):
        model, same = twins(nn.GELU())
        compiled = torch.compile(model, backend="kiln")
        for _ in range(2):
            x = torch.randn(4, 6)
            assert_same(step(model, compiled, x), step(same, same, x))
        assert was_loaded() == (turn == 1)
        save()
    assert sorted(kinds) == ["backward", "forward"]


def test_another_model_with_the_same_code_and_shapes(kinds):
    """PyTorch finds the entry by the function's name; its guards tell the models apart."""
    x = torch.randn(4, 6)
    for act in (nn.GELU(), nn.Tanh()):
        model, same = twins(act)
        assert_same(step(model, torch.compile(model, backend="kiln"), x), step(same, same, x))
        save()
    assert sorted(kinds) == ["backward", "backward", "forward", "forward"]


def dynamic(x):
    return (x * 2).reshape(-1), x.shape[0] + 1, torch.softmax(x, -1)


def test_dynamic_sizes(kinds):
    for turn in range(2):
        compiled = torch.compile(dynamic, backend="kiln", dynamic=True, fullgraph=True)
        for n in (4, 9, 17):
            x = torch.randn(n, n + 3)
            assert_same(compiled(x), dynamic(x))
        assert was_loaded() == (turn == 1)
        save()
    assert kinds == ["inference"]


def test_dynamic_training(kinds):
    def grads(fn, x):
        x = x.clone().requires_grad_()
        fn(x)[2].pow(2).sum().backward()
        return x.grad

    for turn in range(2):
        compiled = torch.compile(dynamic, backend="kiln", dynamic=True, fullgraph=True)
        for n in (4, 9, 17):
            x = torch.randn(n, n + 3)
            assert_same(grads(compiled, x), grads(dynamic, x))
        assert was_loaded() == (turn == 1)
        save()
    assert sorted(kinds) == ["backward", "forward"]


def broken(x):
    y = torch.sin(x) + 1
    torch._dynamo.graph_break()
    return y * torch.tensor([1.0, 2.0, 3.0])


def test_graph_break_and_constants(kinds):
    for _ in range(2):
        x = torch.randn(2, 3)
        assert_same(torch.compile(broken, backend="kiln")(x), broken(x))
        save()
    assert kinds == ["inference", "inference"]


def test_frozen_graphs_are_not_kept(kinds, caplog):
    autograd_cache_hooks._told.clear()
    x = torch.randn(4, 6)
    for act in (nn.GELU(), nn.GELU()):
        model = Net(act).eval()
        with torch.no_grad():
            expected = model(x)
            assert_same(torch.compile(model, backend="kiln", options={"freezing": True})(x), expected)
        save()
    assert kinds == ["inference", "inference"]
    assert "keeps no graphs: code with frozen weights" in caplog.text


def entry_file(folder):
    (found,) = (folder / "torch").glob("dynamo/*/entry")
    return found


@pytest.mark.parametrize("place", [64, -16])
def test_a_damaged_artifact(place, caches, kinds):
    """Its header (behind the magic), its code: compiled again."""
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    torch.compile(f, backend="kiln")(x, w)
    save()
    data = bytearray(entry_file(caches).read_bytes())
    begin = data.rindex(b"KILNCODE")  # PyTorch keeps the text of this file before it
    end = begin + len(graph_cache().get(graph_cache().entries()[0].key))
    data[begin + place if place > 0 else end + place] ^= 1
    entry_file(caches).write_bytes(data)
    assert_same(torch.compile(f, backend="kiln")(x, w), f(x, w))
    assert counters["dynamo_cache"]["dynamo_cache_error"] == 1
    assert not was_loaded()


def test_a_cut_off_artifact(caches):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    torch.compile(f, backend="kiln")(x, w)
    save()
    entry_file(caches).write_bytes(entry_file(caches).read_bytes()[:-2000])
    assert_same(torch.compile(f, backend="kiln")(x, w), f(x, w))
    assert not was_loaded()


@pytest.mark.parametrize("change", [("torch 2", "torch 3"), ("features", "lacks")], ids=["version", "processor"])
def test_code_made_elsewhere(change, monkeypatch, kinds, caplog):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    torch.compile(f, backend="kiln")(x, w)
    save()
    text = graph_key.version_text()
    assert change[0] in text
    monkeypatch.setattr(graph_key, "version_text", lambda: text.replace(*change))
    assert_same(torch.compile(f, backend="kiln")(x, w), f(x, w))
    assert kinds == ["inference", "inference"]
    assert not was_loaded()


def test_another_number_of_threads(kinds):
    """Dynamo's guards look at it."""
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    threads = torch.get_num_threads()
    torch.compile(f, backend="kiln")(x, w)
    save()
    try:
        torch.set_num_threads(threads + 1)
        assert_same(torch.compile(f, backend="kiln")(x, w), f(x, w))
    finally:
        torch.set_num_threads(threads)
    assert kinds == ["inference", "inference"]


def test_reports_are_of_the_graph_and_options_asked_for():
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    torch.compile(f, backend="kiln")(x, w)
    save()
    (graph,) = kiln.explain(f, x, w, options={"fast_math": True}).graphs
    assert graph.cache == "stored"
    assert kiln.profile(f, x, w, calls=2).launches
    save()
    assert len(list(graph_cache().entries())) == 2
    torch.compile(f, backend="kiln")(x, w)
    assert was_loaded()


PROCESS = """
import sys, torch
from torch._dynamo.utils import counters
torch._dynamo.config.caching_precompile = True
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))
def run(x):
    return model(x).sum()
import kiln
x = torch.randn(4, 8)
result = torch.compile(run, backend="kiln")(x)
torch.testing.assert_close(result, run(x))
result.backward()
torch.compiler.save_cache_artifacts()
print(dict(counters["frames"]), "torch_mlir" in sys.modules)
"""


def test_processes(tmp_path):
    """The second traces nothing, and never imports MLIR; its weights are others."""
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    for seed, expected in (("1", "{'total': 1, 'ok': 1} True"), ("2", "{} False")):
        command = [sys.executable, str(script), seed]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == expected
