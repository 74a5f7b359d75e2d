# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiled code that leaves the process by PyTorch's ways: cache artifacts, ``aot_compile``."""

import re
import sys
from pathlib import Path

import forked_python
import pytest
import torch
from torch.compiler import _cache as torch_cache

import kiln
from kiln.errors import CompileError, KilnError
from kiln.frontend.cache import serialized_artifact
from kiln.frontend.cache.artifacts import KilnArtifact
from kiln.frontend.cache.compiled_graphs import graph_cache
from kiln.frontend.report import collect
from kiln.runtime.disk_cache import COMPILED, IMPORTED, seal

from .conftest import assert_same

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Calls of the result go to other cache folders, as on another machine."""

    def use(name):
        monkeypatch.setenv("KILN_CACHE", "1")
        monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / name / "kiln"))
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / name / "torch"))
        torch._dynamo.reset()

    use("here")
    # PyTorch 2.11 has aot_compile off by default.
    with torch_cache.CacheArtifactManager.with_fresh_cache(), torch._dynamo.config.patch(enable_aot_compile=True):
        yield use


def f(x, w):
    return torch.relu(x @ w + 1).sum(-1), x.transpose(0, 1)


def run(fn, *args):
    torch._dynamo.reset()
    with collect() as reports:
        result = torch.compile(fn, backend="kiln")(*args)
    return result, [report.cache for report in reports]


def test_artifacts(folder):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    assert [graph_cache().origin(entry.key) for entry in graph_cache().entries()] == [COMPILED]
    data, info = torch.compiler.save_cache_artifacts()
    assert len(info.artifacts["kiln"]) == 1
    folder("there")
    loaded = torch.compiler.load_cache_artifacts(data)
    assert loaded.artifacts["kiln"] == info.artifacts["kiln"]
    assert [graph_cache().origin(entry.key) for entry in graph_cache().entries()] == [IMPORTED]
    result, did = run(f, x, w)
    assert did == ["loaded"]
    assert_same(result, f(x, w))


def test_loaded_graphs_are_artifacts_as_well(folder):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    with torch_cache.CacheArtifactManager.with_fresh_cache():
        assert run(f, x, w)[1] == ["loaded"]
        _, info = torch.compiler.save_cache_artifacts()
    assert len(info.artifacts["kiln"]) == len(info.artifacts["aot_autograd"]) == 1


def test_a_damaged_artifact_is_left_out(folder, caplog):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    data, _ = torch.compiler.save_cache_artifacts()
    stored = graph_cache().get(graph_cache().entries()[0].key)
    broken = data.replace(stored[-100:], bytes(100))
    assert broken != data
    folder("there")
    torch.compiler.load_cache_artifacts(broken)  # PyTorch has a checksum of its own
    key = torch_cache.CacheArtifactManager.deserialize(data)["kiln"][0].key
    KilnArtifact(key, seal(key, stored)[:-1] + b"?").populate_cache()
    assert "is left out: it is damaged" in caplog.text
    assert graph_cache().entries() == []
    result, did = run(f, x, w)
    assert did == ["stored"]
    assert_same(result, f(x, w))


@pytest.mark.parametrize("key", ["../" * 3 + "a" * 55, "a" * 63, ""])
def test_an_artifact_names_no_other_file(key, folder, caplog):
    KilnArtifact(key, seal(key, b"payload")).populate_cache()
    assert "left out" in caplog.text
    assert graph_cache().entries() == []


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(7, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return torch.relu(self.linear(x))


def test_a_function_compiled_ahead(folder, tmp_path):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    compiled = torch.compile(f, backend="kiln", fullgraph=True).aot_compile(((x, w), {}))
    assert_same(compiled(x, w), f(x, w))
    compiled.save_compiled_function(str(tmp_path / "f"))
    folder("there")
    with (tmp_path / "f").open("rb") as file:
        loaded = torch.compiler.load_compiled_function(file, f_globals=f.__globals__)
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    assert_same(loaded(x, w), f(x, w))
    assert graph_cache().entries() == []
    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        loaded(torch.randn(6, 7), w)


def test_a_model_compiled_ahead_with_its_gradient_and_sizes(folder, tmp_path):
    compiled = torch.compile(Counting(), backend="kiln", fullgraph=True, dynamic=True)
    compiled.forward.aot_compile(((torch.randn(5, 7),), {})).save_compiled_function(str(tmp_path / "m"))
    folder("there")
    model = Counting()
    with (tmp_path / "m").open("rb") as file:
        loaded = torch.compiler.load_compiled_function(file, f_globals=globals())
    for n in (5, 2, 9):
        x = torch.randn(n, 7)
        result, expected = loaded(model, x), torch.relu(model.linear(x))
        assert_same(result.detach(), expected.detach())
        (ours,) = torch.autograd.grad(result.sum(), model.linear.weight)
        (theirs,) = torch.autograd.grad(expected.sum(), model.linear.weight)
        assert_same(ours, theirs)
    assert model.calls == 3


def test_a_damaged_function_is_an_error(folder, tmp_path, monkeypatch):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    compiled = torch.compile(f, backend="kiln", fullgraph=True).aot_compile(((x, w), {}))
    compiled.save_compiled_function(str(tmp_path / "f"))
    stored = graph_cache().get(graph_cache().entries()[0].key)
    data = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(data.replace(stored[-100:], bytes(100)))
    with (tmp_path / "f").open("rb") as file, pytest.raises(KilnError, match="is damaged"):
        torch.compiler.load_compiled_function(file, f_globals=f.__globals__)
    (tmp_path / "f").write_bytes(data)
    settings = serialized_artifact.code_settings
    monkeypatch.setattr(serialized_artifact, "code_settings", lambda options: ["torch 1.0", *settings(options)[1:]])
    with (tmp_path / "f").open("rb") as file, pytest.raises(KilnError, match="made with torch 2.*here is torch 1.0"):
        torch.compiler.load_compiled_function(file, f_globals=f.__globals__)


@pytest.mark.parametrize(
    ("options", "reason"), [({"freezing": True}, "frozen weights"), ({"cache": False}, "cache is off")]
)
def test_what_cannot_be_compiled_ahead_is_an_error(options, reason):
    compiled = torch.compile(f, backend="kiln", fullgraph=True, options=options)
    with torch.no_grad(), pytest.raises(CompileError, match=reason):
        compiled.aot_compile(((torch.randn(5, 7), torch.randn(7, 3)), {}))


def test_patterns_without_a_source_are_not_compiled_ahead():
    with kiln.patterns.scope(), pytest.raises(CompileError, match="the source of .* is not known"):
        kiln.patterns.register("double", lambda x: x + x, eval("lambda x: x * 2"), examples=[(torch.randn(3),)])
        torch.compile(f, backend="kiln", fullgraph=True).aot_compile(((torch.randn(5, 7), torch.randn(7, 3)), {}))


EXAMPLES = re.findall(r"^```py\n(.*?)^```", (ROOT / "docs" / "cache.md").read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_page(example, tmp_path, monkeypatch):
    """Each is a file that is run twice; the second run prints what the page says."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "example.py").write_text(example)
    for _ in range(2):
        command = [sys.executable, "example.py"]
        done = forked_python.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    (promised,) = re.findall(r"print\(.*\)  # then (.*)", example)
    assert done.stdout.strip() == promised


def test_the_page_has_examples():
    assert len(EXAMPLES) == 3
