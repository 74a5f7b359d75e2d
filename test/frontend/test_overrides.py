# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stages of a dump that somebody edited, compiled in place of what passes make."""

import re
import warnings

import pytest
import torch

import kiln
from kiln.errors import BackendOptionError
from kiln.frontend.options import Options


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(8, 8)])

    def forward(self, x):
        return torch.relu(self.inner[0](x)) * 3.0


def dumped(folder, model, x, **options):
    with torch.no_grad():
        torch.compile(model, backend="kiln", options={"debug_dir": str(folder), **options})(x)
    torch._dynamo.reset()
    return next(path for path in folder.iterdir())


def edit(folder, pattern, old, new):
    (path,) = folder.glob(pattern)
    text, count = re.subn(old, new, path.read_text())
    assert count
    path.write_text(text)
    return path


def run(model, x, folder, **options):
    with torch.no_grad():
        return kiln.explain(model, x, options={"override": str(folder), **options})


def called(model, x, folder, **options):
    with torch.no_grad():
        return torch.compile(model, backend="kiln", options={"override": str(folder), **options})(x)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(
    "pattern", ["00-*.mlir", "*.kiln.mlir", "*.fused.mlir", "*.kernels.mlir", "[0-9]*.vector.mlir", "[0-9]*.ttir.mlir"]
)
def test_an_edited_stage_is_compiled(pattern, target, tmp_path):
    if (target == "cpu") == pattern.startswith("[0-9]*.ttir") or (target, pattern) == ("tt-cpu", "[0-9]*.vector.mlir"):
        pytest.skip("this target has no such stage")
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x, target=target)
    torch.testing.assert_close(called(model, x, tmp_path, target=target), model(x))  # nothing is edited
    torch._dynamo.reset()
    edit(folder, pattern, r"3\.0+(e\+00)?\b", "5.0")
    torch.testing.assert_close(called(model, x, tmp_path, target=target), model(x) / 3 * 5)


def test_the_code_of_one_kernel(tmp_path):
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x)
    edit(folder, "[a-z]*.llvm.mlir", r"3\.0+e\+00", "5.0e+00")
    torch.testing.assert_close(called(model, x, tmp_path), model(x) / 3 * 5)


def test_each_graph_finds_its_own_folder(tmp_path):
    """By what was imported, and not by how many graphs a process has compiled before."""
    model, x = Model(), torch.randn(4, 8, requires_grad=True)
    torch.compile(model, backend="kiln", options={"debug_dir": str(tmp_path)})(x).sum().backward()
    (backward,) = tmp_path.glob("*-backward")
    edit(backward, "*.fused.mlir", r"3\.0+e\+00", "5.0e+00")
    torch._dynamo.reset()
    first, x.grad = x.grad, None
    result = torch.compile(model, backend="kiln", options={"override": str(tmp_path)})(x)
    torch.testing.assert_close(result, model(x))
    result.sum().backward()
    torch.testing.assert_close(x.grad, first / 3 * 5)


def test_it_is_told(tmp_path, caplog):
    model, x = Model(), torch.randn(4, 8)
    path = edit(dumped(tmp_path, model, x), "*.fused.mlir", r"3\.0+e\+00", "5.0e+00")
    with caplog.at_level("WARNING", "kiln"):
        (graph,) = run(model, x, tmp_path).graphs
    assert f"the inference graph is compiled with {path}, which was edited" in caplog.text
    assert [n.reason for n in graph.notes if n.pass_name == "replace-module"] == [f"replaced by {path}"]


def test_it_is_not_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / "cache"))
    model, x = Model(), torch.randn(4, 8)
    assert run(model, x, "").graphs[0].cache == "stored"
    folder = dumped(tmp_path / "dump", model, x)  # although the cache has the graph
    edit(folder, "*.fused.mlir", r"3\.0+e\+00", "5.0e+00")
    monkeypatch.setenv("KILN_OVERRIDE", str(tmp_path / "dump"))
    torch.testing.assert_close(called(model, x, tmp_path / "dump"), model(x) / 3 * 5)
    torch._dynamo.reset()
    assert run(model, x, tmp_path / "dump").graphs[0].cache == "off: edited stages are compiled"
    monkeypatch.delenv("KILN_OVERRIDE")
    torch._dynamo.reset()
    assert run(model, x, "").graphs[0].cache == "loaded"
    torch._dynamo.reset()
    torch.testing.assert_close(called(model, x, ""), model(x))


def test_another_graph_is_compiled_as_it_is(tmp_path):
    model, x = Model(), torch.randn(4, 8)
    edit(dumped(tmp_path, model, x), "*.fused.mlir", r"3\.0+e\+00", "5.0e+00")
    with pytest.warns(RuntimeWarning, match="holds no dump of the inference graph, which is compiled as it is"):
        torch.testing.assert_close(called(torch.exp, x, tmp_path), x.exp())


@pytest.mark.parametrize(
    ("pattern", "old", "new", "message"),
    [
        ("*.fused.mlir", "return %", "return ?", r"fused.mlir:\d+:11: expected"),
        ("*.fused.mlir", '"kiln.fusion"', '"kiln.fussion"', r"fused.mlir:\d+:\d+: .*kiln.fussion"),
        (
            "*.fused.mlir",
            "    return",
            "    %0 = math.exp %cst : f32\n    return",
            "stage 'fused': math.exp is not allowed",
        ),
        ("*.kiln.mlir", "@main(", "@main(%more: tensor<2xf32>, ", r"kiln.mlir:\d+: @main is .*2xf32.*, and has to be"),
        ("*.object.mlir", "module", " module", "machine code is not in the IR: edit an earlier stage"),
        ("*.s", "\n", "\n\n", "cannot be compiled: it is made of a stage in MLIR"),
        ("*.llvm.mlir", "\n}\n", "\n  llvm.func @more()\n}\n", "the functions are .*more.*, and have to be"),
    ],
)
def test_a_wrong_file_is_an_error_with_its_line(pattern, old, new, message, tmp_path):
    """With the fallback on: the file is wrong, and not the model."""
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x)
    if not list(folder.glob(pattern)):
        pytest.skip("no disassembler")
    path = sorted(folder.glob(pattern))[-1]
    edit(folder, path.name, re.escape(old), new.replace("\\", r"\\"))
    with pytest.raises(Exception, match=message):
        called(model, x, tmp_path)


def test_a_dump_does_not_write_over_edited_files(tmp_path, monkeypatch):
    from kiln.frontend import native

    monkeypatch.setattr(native, "_numbers", iter([0, 0]))
    model, x = Model(), torch.randn(4, 8)
    path = edit(dumped(tmp_path, model, x), "*.fused.mlir", r"3\.0+e\+00", "5.0e+00")
    text = path.read_text()
    with pytest.raises(Exception, match="was edited, and a dump would write over it"):
        dumped(tmp_path, model, x)
    assert path.read_text() == text


def test_a_missing_folder(tmp_path):
    with pytest.raises(BackendOptionError, match="option 'override': there is no folder"):
        Options.build(options={"override": str(tmp_path / "none")})


def test_arguments_have_the_names_of_the_model(tmp_path):
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x)
    for pattern in ("00-*.mlir", "*.fused.mlir", "*.sched.mlir"):
        (path,) = folder.glob(pattern)
        main = next(line for line in path.read_text().splitlines() if "func.func @main" in line)
        assert re.findall(r"%([\w.]+): ", main) == ["inner.0.weight", "inner.0.bias", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(called(model, x, tmp_path), model(x))
