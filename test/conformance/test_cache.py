# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The persistent cache behind ``torch.compile``: same results from loaded code, and never the code of another graph."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import kiln
from kiln.frontend.cache import graph_key, source_key
from kiln.frontend.cache.compiled_graphs import graph_cache
from kiln.frontend.report import collect
from kiln.runtime.disk_cache import DiskCache

from .conftest import assert_same


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    return graph_cache()


def run(fn, *args, options=None, **settings):
    """Compile as another process would; returns (result, what the cache did for each graph)."""
    torch._dynamo.reset()
    with collect() as reports:
        result = torch.compile(fn, backend="kiln", fullgraph=True, options=options, **settings)(*args)
    return result, [report.cache for report in reports]


def f(x, w):
    return torch.relu(x @ w + 1).sum(-1), x.transpose(0, 1)


def test_the_second_compilation_loads(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    first, did = run(f, x, w)
    assert did == ["stored"]
    x = torch.randn(5, 7)
    second, did = run(f, x, w)
    assert did == ["loaded"]
    assert_same(second, f(x, w))
    assert len(cache.entries()) == 1


def test_reports_are_the_same(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    first = kiln.explain(f, x, w).graphs[0]
    second = kiln.explain(f, x, w).graphs[0]
    assert (first.cache, second.cache) == ("stored", "loaded")
    for name in ("kernels", "decisions", "aten_calls", "memory", "eager_memory", "workspace_bytes"):
        assert getattr(first, name) == getattr(second, name)
    assert first.kernels


def test_dynamic_sizes(cache):
    def g(x):
        return (x * 2).reshape(-1), x.shape[0] + 1, torch.softmax(x, -1)

    for turn in ("stored", "loaded"):
        torch._dynamo.reset()
        compiled = torch.compile(g, backend="kiln", dynamic=True, fullgraph=True)
        with collect() as reports:
            for n in (4, 9, 17):
                x = torch.randn(n, n + 3)
                assert_same(compiled(x), g(x))
        assert [report.cache for report in reports] == [turn]


def test_about_the_same_sizes_are_one_entry(cache):
    """What is fast depends on the sizes that a graph was traced with, as powers of two; what is right does not."""
    for size, count in ((65, 1), (100, 1), (129, 2)):
        torch._dynamo.reset()
        x = torch.randn(size, 3)
        torch._dynamo.mark_dynamic(x, 0)
        found = torch.compile(lambda x: x.sum(0) * 2, backend="kiln", fullgraph=True)(x)
        torch.testing.assert_close(found, x.sum(0) * 2)
        assert len(cache.entries()) == count


def test_training(cache):
    def step(model, x):
        model.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss.detach(), *(p.grad.clone() for p in model.parameters())

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2))
    x = torch.randn(4, 6)
    expected = step(model, x)
    for turn in ("stored", "loaded"):
        torch._dynamo.reset()
        with collect() as reports:
            assert_same(step(torch.compile(model, backend="kiln"), x), expected)
        assert [report.cache for report in reports if report.graph == "forward"] == [turn]
    assert len(cache.entries()) == 2


def test_mutated_inputs_and_aliases(cache):
    def g(x, y):
        y.add_(x)
        return y, x.view(-1), None, 3

    for turn in ("stored", "loaded"):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        expected_y = y + x
        result, did = run(g, x, y)
        assert did == [turn]
        assert result[0] is y
        torch.testing.assert_close(y, expected_y)
        assert result[1].data_ptr() == x.data_ptr()
        assert result[2:] == (None, 3)


def test_values_of_constants_are_in_the_key(cache):
    def with_constant(values):
        constant = torch.tensor(values)
        return lambda x: x * constant + torch.tensor([1.0, 2.0, values[2]])

    x = torch.randn(2, 3)
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]):
        fn = with_constant(values)
        result, did = run(fn, x)
        assert did == ["stored"]
        assert_same(result, fn(x))
        result, did = run(fn, x)
        assert did == ["loaded"]
        assert_same(result, fn(x))


@pytest.mark.parametrize(
    "other",
    [
        lambda: (f, torch.randn(5, 8), torch.randn(8, 3)),  # sizes
        lambda: (f, torch.randn(7, 5).t(), torch.randn(7, 3)),  # strides
        lambda: (f, torch.randn(5, 7).double(), torch.randn(7, 3).double()),  # dtype
        lambda: (lambda x, w: (torch.relu(x @ w + 2).sum(-1), x.transpose(0, 1)), torch.randn(5, 7), torch.randn(7, 3)),
    ],
)
def test_another_graph_is_another_entry(cache, other):
    run(f, torch.randn(5, 7), torch.randn(7, 3))
    fn, *args = other()
    result, did = run(fn, *args)
    assert did == ["stored"]
    assert_same(result, fn(*args))


def test_options_and_settings_are_in_the_key(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    assert run(f, x, w)[1] == ["stored"]
    assert run(f, x, w, options={"fast_math": True})[1] == ["stored"]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        assert run(f, x, w)[1] == ["stored"]
    finally:
        torch.set_num_threads(threads)
    assert run(f, x, w, options={"trace": False})[1] == ["loaded"]


def test_changed_versions_compile_anew(cache, monkeypatch):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    assert run(f, x, w)[1] == ["loaded"]
    text = graph_key.version_text() + "; torch-mlir another"
    monkeypatch.setattr(graph_key, "version_text", lambda: text)
    assert run(f, x, w)[1] == ["stored"]
    assert len(cache.entries()) == 2


def test_a_damaged_entry_is_compiled_again(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    (path,) = cache.folder.glob("??/*.kiln")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    result, did = run(f, x, w)
    assert did == ["stored"]
    assert_same(result, f(x, w))
    assert run(f, x, w)[1] == ["loaded"]


def test_a_whole_entry_with_a_broken_plan_is_compiled_again(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    (entry,) = cache.entries()
    cache.put(entry.key, cache.get(entry.key)[:-10])
    result, did = run(f, x, w)
    assert did == ["stored"]
    assert_same(result, f(x, w))


def test_code_of_this_process_is_not_stored(cache):
    x = torch.randn(3)
    result, did = run(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, [x]), x)
    assert did[0].startswith("off: attribute true_graph_0")
    assert cache.entries() == []


def test_off(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    assert run(f, x, w, options={"cache": False})[1] == ["off"]
    assert cache.entries() == []


def test_patterns_from_outside_are_part_of_the_key(cache):
    x, w = torch.randn(5, 7), torch.randn(7, 3)

    def compiled_with(value):
        with kiln.patterns.scope():
            replacement = lambda x: x * 2 if value else x
            kiln.patterns.register("double", lambda x: x + x, replacement, examples=[(torch.randn(3),)])
            return run(f, x, w)[1]

    assert run(f, x, w)[1] == ["stored"]
    assert compiled_with(2) == ["stored"]
    assert compiled_with(2) == ["loaded"]
    assert compiled_with(2.0) == ["stored"]  # the value that the replacement closes over
    assert compiled_with(object()) == ["off: a object in code from outside has no text"]


def test_own_code_that_changed_is_not_stored(cache, monkeypatch):
    monkeypatch.setattr(source_key, "_STARTED", 0.0)
    with kiln.patterns.scope():
        kiln.patterns.register("double", lambda x: x + x, lambda x: x * 2, examples=[(torch.randn(3),)])
        (did,) = run(f, torch.randn(5, 7), torch.randn(7, 3))[1]
    assert did.startswith("off: ") and did.endswith("changed while this process was running")


PROCESS = """
import sys, torch, kiln
from kiln.frontend.report import collect
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)).eval()
x = torch.randn(4, 8)
with torch.no_grad(), collect() as reports:
    result = torch.compile(model, backend="kiln")(x)
    torch.testing.assert_close(result, model(x))
print([report.cache for report in reports], "torch_mlir" in sys.modules)
"""


def start(cache):
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen([sys.executable, "-c", PROCESS], env=environment, stdout=subprocess.PIPE, text=True)


def test_processes(cache):
    """Two compile at once; a third loads, and never imports MLIR."""
    outputs = [process.communicate(timeout=300)[0].strip() for process in [start(cache), start(cache)]]
    assert all(text in ("['stored'] True", "['loaded'] False") for text in outputs)
    assert start(cache).communicate(timeout=300)[0].strip() == "['loaded'] False"


def test_command(cache, capsys, monkeypatch):
    from kiln.tools import kiln_cache

    run(f, torch.randn(5, 7), torch.randn(7, 3))
    before = cache.entries()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["kiln-cache", "show", "--all"])
    with pytest.raises(SystemExit) as stopped:
        kiln_cache.main()
    assert not stopped.value.code
    shown = capsys.readouterr().out
    assert str(cache.folder) in shown
    assert "1 graphs" in shown
    assert "test_cache.py:" in shown and "relu" in shown
    assert cache.entries() == before  # to look is no use
    assert "0 tuned schedules" in shown
    tuned = DiskCache(cache.folder / "tuned", 1 << 20)
    for arguments, removed, left in ((["--no-tuned"], 1, 1), ([], 1, 0)):
        assert tuned.put("ab" * 32, b"a schedule")
        monkeypatch.setattr(sys, "argv", ["kiln-cache", "clear", *arguments])
        with pytest.raises(SystemExit):
            kiln_cache.main()
        assert f"{removed} files removed" in capsys.readouterr().out
        assert cache.entries() == []
        assert len(tuned.entries()) == left
    monkeypatch.setenv("KILN_CACHE_MIB", "many")
    monkeypatch.setattr(sys, "argv", ["kiln-cache", "show"])
    assert kiln_cache.main() == 1
    assert "KILN_CACHE_MIB" in capsys.readouterr().err


def test_code_that_others_may_have_written_is_not_run(cache, caplog):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    cache.folder.chmod(0o777)
    result, (did,) = run(f, x, w)
    assert did.startswith(f"not stored: {cache.folder} (drwxrwxrwx) may be written to by all users")
    assert_same(result, f(x, w))
    assert len([r for r in caplog.records if "is not used, since others" in r.getMessage()]) == 1
    cache.folder.chmod(0o700)
    assert run(f, x, w)[1] == ["loaded"]
