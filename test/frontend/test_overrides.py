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


def test_the_triton_ir_of_one_kernel(tmp_path):
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x, target="tt-cpu")
    edit(folder, "[a-z]*.ttir", r"3\.0+e\+00", "5.0e+00")
    torch.testing.assert_close(called(model, x, tmp_path, target="tt-cpu"), model(x) / 3 * 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r'"tt\.return"\(\)', '"tt.retrun"()', r"\.ttir:\d+:\d+: .*tt.retrun"),
        (r"\^bb0\(%arg0: !tt.ptr<f32>", "^bb0(%arg0: !tt.ptr<f16>", r"\.ttir:\d+"),
        (r'sym_name = "', 'sym_name = "x', r"\.ttir:1: the functions are .*, and have to be"),
    ],
)
def test_wrong_triton_ir_is_an_error_with_its_line(old, new, message, tmp_path):
    model, x = Model(), torch.randn(4, 8)
    folder = dumped(tmp_path, model, x, target="tt-cpu")
    edit(folder, "[a-z]*.ttir", old, new)
    with pytest.raises(Exception, match=message):
        called(model, x, tmp_path, target="tt-cpu")


RELU = """
func.func @main(%a: !torch.vtensor<[4096],f32>) -> !torch.vtensor<[4096],f32> {
  %two = torch.constant.float 3.0
  %0 = torch.aten.relu %a : !torch.vtensor<[4096],f32> -> !torch.vtensor<[4096],f32>
  %1 = torch.aten.mul.Scalar %0, %two : !torch.vtensor<[4096],f32>, !torch.float -> !torch.vtensor<[4096],f32>
  return %1 : !torch.vtensor<[4096],f32>
}
"""


def for_a_gpu(dump, override=None):
    """The files of the one kernel that this is for sm_90, by their endings, without a GPU."""
    from kiln.dialects import create_context, parse
    from kiln.frontend.overrides import overridden
    from kiln.lowering.gpu.compile import triton_problem
    from kiln.passes import PassManager
    from kiln.passes.instruments import KernelDump, StageDump
    from kiln.passes.pipelines import named_pipeline
    from kiln.passes.plan_host import PlanHost

    if triton_problem():
        pytest.skip(str(triton_problem()))
    with create_context(tt=True):
        module = parse(RELU)
        steps = named_pipeline("gpu")
        next(step.pass_ for step in steps if isinstance(step.pass_, PlanHost)).show = False  # kernels stay
        if override is not None:
            steps = overridden(steps, module, str(override), "inference")
        folder = dump / "graph0-inference"
        PassManager(steps, [StageDump(folder, stages_only=True), KernelDump(folder)]).run(module)
    return {path.suffix: path.read_bytes() for path in folder.glob("generic*.*")}


@pytest.mark.parametrize(
    ("pattern", "old", "new"), [("*.ptx", "0f40400000", "0f40A00000"), ("[a-z]*.ttir", "3.0+e", "5.0e")]
)
def test_code_of_a_gpu(pattern, old, new, tmp_path):
    """Triton IR, and PTX: what is in the cubin is what was edited."""
    first = for_a_gpu(tmp_path / "dump")
    edit(tmp_path / "dump" / "graph0-inference", pattern, old.replace(".", r"\."), new)
    again = for_a_gpu(tmp_path / "other", tmp_path / "dump")
    assert b"0f40400000" in first[".ptx"]
    assert b"0f40400000" not in again[".ptx"] and b"0f40A00000" in again[".ptx"]
    assert first[".cubin"] != again[".cubin"]
    if ".sass" in again:
        assert b", 5 ;" in again[".sass"] and b", 5 ;" not in first[".sass"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\tret;", "\tretrun;", r"\.ptx:\d+: ptxas refuses the PTX for sm_90: line \d+: "),
        (r"\.entry ", ".entry x", r"\.ptx:1: the PTX holds no \.entry"),
    ],
)
def test_wrong_ptx_is_an_error_with_its_line(old, new, message, tmp_path):
    for_a_gpu(tmp_path / "dump")
    edit(tmp_path / "dump" / "graph0-inference", "*.ptx", old, new)
    with pytest.raises(Exception, match=message):
        for_a_gpu(tmp_path / "other", tmp_path / "dump")


def test_what_triton_refuses_is_an_error_and_no_call(tmp_path):
    """Edited code is never left out in silence."""
    for_a_gpu(tmp_path / "dump")
    edit(tmp_path / "dump" / "graph0-inference", "[a-z]*.ttir", r"end = (\d+) : i32", "end = 96 : i32")
    with pytest.raises(Exception, match=r"\.ttir:\d+"):
        for_a_gpu(tmp_path / "other", tmp_path / "dump")


def test_every_spelling_of_triton_ir_is_read():
    from kiln.lowering.gpu.ttir import from_ttir

    old = '"tt.load"(%x) {cache = 1 : i32, evict = 2 : i32} : !tt.tensordesc<tensor<16x16xf32>>'
    new = (
        '"tt.load"(%x) {cachePolicy = #tt.cache_policy<cache_modifier = none, eviction_policy = evict_first>}'
        " : !tt.tensordesc<16x16xf32>"
    )
    assert from_ttir(old) == old and from_ttir(new) == old


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
        ("*.s", "\n", "\n\n", "cannot be compiled: it is made of an earlier stage"),
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
