# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finding the backend, its modes and options, and what a user sees when something is wrong."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import forked_python
import pytest
import torch

import kiln
from kiln.errors import BackendOptionError
from kiln.frontend.compile import forget_warnings
from kiln.frontend.options import MODES, Options
from kiln.passes.pipelines import cpu_pipeline, named_pipeline

ROOT = Path(kiln.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_backend_is_listed():
    assert "kiln" in torch._dynamo.list_backends()


@pytest.mark.parametrize("first", ["import kiln, torch", "import torch, kiln", "import torch._dynamo, kiln"])
def test_backend_is_found_from_a_checkout(first):
    code = f"{first}\nprint(torch.compile(lambda x: x * 2, backend='kiln')(torch.ones(3)).tolist())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]", done.stderr


def test_backend_function():
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: x + 1, backend=kiln.backend)(x), x + 1)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode):
    x = torch.randn(3)
    torch.testing.assert_close(torch.compile(lambda x: x + 1, backend="kiln", mode=mode)(x), x + 1)


def test_unknown_mode():
    with pytest.raises(BackendOptionError, match="unknown mode 'max-autotunes'.*did you mean 'max-autotune'"):
        Options.build("max-autotunes")


def test_a_mode_among_the_options():
    """PyTorch takes either."""
    x, options = torch.randn(3), {"mode": "max-autotune-no-cudagraphs", "tune_seconds": 0.01}
    assert Options.build(options=options).mode == "max-autotune-no-cudagraphs"
    torch.testing.assert_close(torch.compile(lambda x: x + 1, backend="kiln", options=options)(x), x + 1)
    assert Options.build("default", {"mode": "default"}).mode == "default"
    with pytest.raises(BackendOptionError, match="mode is 'default', and 'max-autotune' among the options"):
        Options.build("default", {"mode": "max-autotune"})
    with pytest.raises(BackendOptionError, match="unknown mode 'fast'"):
        Options.build(options={"mode": "fast"})


def test_unknown_option_names_the_near_ones():
    with pytest.raises(BackendOptionError, match=r"unknown option 'fallbck'.*did you mean 'fallback'"):
        Options.build(options={"fallbck": True})


def test_unknown_option_reaches_the_user_of_torch_compile():
    compiled = torch.compile(lambda x: x + 1, backend="kiln", options={"debugdir": "x"})
    with pytest.raises(Exception, match="did you mean 'debug_dir'"):
        compiled(torch.ones(2))


def test_option_of_the_wrong_type():
    with pytest.raises(BackendOptionError, match="option 'fallback' must be a bool, found 1"):
        Options.build(options={"fallback": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune_seconds": True}, "option 'tune_seconds' must be a float, found True"),
        ({"tune_seconds": -1.0}, "option 'tune_seconds' must be above 0, found -1.0"),
        ({"tune_seconds": float("nan")}, "option 'tune_seconds' must be above 0, found nan"),
        ({"pipeline": "canonicalise"}, "option 'pipeline': unknown pass 'canonicalise'.*did you mean 'canonicalize'"),
        ({"pipeline": "cse,,cse"}, "option 'pipeline': .*expected a pass name"),
        ({"debug_dir": "/dev/null/stages"}, "option 'debug_dir': cannot make the folder /dev/null/stages"),
    ],
)
def test_values_that_no_graph_could_use(options, message):
    """Errors at once, also with the fallback on: nothing of the user's model is wrong."""
    with pytest.raises(BackendOptionError, match=message):
        Options.build(options=options)


def test_options_that_are_no_dict():
    with pytest.raises(BackendOptionError, match="options must be a dict, found list"):
        Options.build(options=["fallback"])


def test_knobs(monkeypatch, tmp_path):
    monkeypatch.setenv("KILN_FALLBACK", "0")
    monkeypatch.setenv("KILN_DUMP", str(tmp_path))
    options = Options.build()
    assert options.fallback is False and options.debug_dir == str(tmp_path)
    assert Options.build(options={"fallback": True}).fallback is True


def test_debug_dir_holds_every_stage(tmp_path):
    with torch.no_grad():
        torch.compile(lambda x: x.relu() * 2, backend="kiln", options={"debug_dir": str(tmp_path)})(torch.ones(4, 8))
    (folder,) = tmp_path.iterdir()
    names = " ".join(sorted(path.name for path in folder.iterdir()))
    for stage in ("00-input", ".graph.mlir", ".kiln.mlir", ".fused.mlir", ".sched.mlir", "plan.mlir", ".vector.mlir"):
        assert stage in names, names
    assert "test_options.py" in (folder / "00-input.mlir").read_text()
    assert next(folder.glob("*.o")).read_bytes().startswith(b"\x7fELF")
    (code,) = (path for path in folder.glob("*.llvm.mlir") if not path.name[0].isdigit())
    assert code.read_text().startswith("// code of a fusion of kind pointwise, which LLVM compiles at level 2\n")


def test_debug_dir_holds_every_pass_of_an_own_pipeline(tmp_path):
    """Its text does not say which passes complete stages; a step prints as what such a text takes."""
    options = {"debug_dir": str(tmp_path), "pipeline": ",".join(str(step.pass_) for step in cpu_pipeline())}
    with torch.no_grad():
        torch.compile(lambda x: x.relu() * 2, backend="kiln", options=options)(torch.ones(4, 8))
    names = {path.name.partition("-")[2] for path in tmp_path.glob("*/*.mlir")}
    assert {f"{step.name.partition('{')[0]}.mlir" for step in cpu_pipeline()} - names == {"canonicalize.mlir"}


@pytest.mark.parametrize("last", ["", "outline-kernels", "lower-to-llvm"])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_an_own_pipeline_may_be_whole(last, target, tmp_path):
    """As ``kiln-opt --pipeline=cpu --print-pipeline`` prints it, or cut off: no step runs twice."""
    steps = [step.pass_.spec() for step in named_pipeline(target)]
    cut = [i for i, text in enumerate(steps, 1) if text.partition("{")[0] == last]
    options = {"debug_dir": str(tmp_path), "pipeline": ",".join(steps[: cut[0]] if cut else steps), "target": target}
    x = torch.randn(4, 8)
    with torch.no_grad():
        compiled = torch.compile(lambda x: x.relu() * 2, backend="kiln", options=options | {"fallback": False})
        torch.testing.assert_close(compiled(x), x.relu() * 2)
    names = [path.name.partition("-")[2] for path in tmp_path.glob("*/[0-9]*.mlir")]
    assert names.count("convert-torch-to-kiln.mlir") == 1 and names.count("outline-kernels.mlir") == 1
    assert sum(name.startswith("plan-host") for name in names) == 1


def test_trace_prints_one_line(capsys):
    with torch.no_grad():
        torch.compile(lambda x: x.relu() * 2, backend="kiln", options={"trace": True})(torch.ones(4, 8))
    assert re.search(r"kiln: inference graph of 2 ops in .* s: 1 kernels", capsys.readouterr().err)


def test_different_options_recompile(tmp_path):
    def fn(x):
        return x + 1

    torch.compile(fn, backend="kiln")(torch.ones(2))
    torch.compile(fn, backend="kiln", options={"debug_dir": str(tmp_path)})(torch.ones(2))
    assert any(tmp_path.iterdir())


def test_reset_is_called():
    from kiln.frontend import compile as compile_module

    torch.compile(lambda x: x + 1, backend="kiln")(torch.ones(2))
    compile_module._warned.add("something")
    torch._dynamo.reset()
    assert not compile_module._warned


@pytest.fixture
def broken_pipeline():
    """A pipeline that fails on every graph: planning needs fusions, and none are made."""
    return "convert-torch-to-kiln"


def test_failing_compile_warns_once_and_runs_with_aten(broken_pipeline):
    options = {"pipeline": broken_pipeline}
    x = torch.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch._dynamo.reset_code_caches()
            result = torch.compile(lambda x: x.relu() + 1, backend="kiln", options=options)(x)
            torch.testing.assert_close(result, x.relu() + 1)
    ours = [str(w.message) for w in caught if "runs with ATen" in str(w.message)]
    assert len(ours) == 1 and "to reproduce: kiln-opt" in ours[0]


def test_failing_compile_leaves_a_reproducer_that_fails(broken_pipeline, tmp_path):
    compiled = torch.compile(
        lambda x: x.relu() + 1, backend="kiln", options={"pipeline": broken_pipeline, "fallback": False}
    )
    with pytest.raises(Exception) as caught:
        compiled(torch.ones(3))
    text = str(caught.value)
    assert "CompileError" in text
    command = re.search(r"to reproduce: (kiln-opt .*)", text)
    assert command is not None, text
    path = command.group(1).split()[-1].strip("'\"")
    assert Path(path).read_text().startswith("//")
    argv = [sys.executable, "-m", "kiln.tools.kiln_opt", "--pass-pipeline=plan-host", path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked_python.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1 and "error: " in done.stderr and "Traceback" not in done.stderr


def test_unknown_pass_in_the_pipeline_option():
    compiled = torch.compile(lambda x: x + 1, backend="kiln", options={"pipeline": "fuze", "fallback": False})
    with pytest.raises(Exception, match="unknown pass 'fuze'"):
        compiled(torch.ones(3))


def test_unsupported_dtype_runs_with_aten_and_says_why():
    x = torch.ones(3, dtype=torch.complex64)
    explanation = kiln.explain(lambda x: x.sin() * 2, x)
    assert len(explanation.graphs) == 1
    report = explanation.graphs[0]
    assert report.executor == "kiln"
    assert any("complex" in decision.reason for decision in report.decisions)
    torch.testing.assert_close(torch.compile(lambda x: x.sin() * 2, backend="kiln")(x), x.sin() * 2)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch 2.11 breaks the graph at quantize_per_tensor")
def test_quantized_tensors_are_left_to_aten():
    """PyTorch's FakeTensors take what makes one for an op on floats."""

    def function(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize() + 1

    x = torch.randn(4, 5)
    (report,) = kiln.explain(function, x).graphs
    assert report.executor == "aten" and "is quantized (torch.quint8)" in report.fallback_reason
    torch.testing.assert_close(torch.compile(function, backend="kiln")(x), function(x))


def test_target_cuda_without_tensors_there_warns():
    compiled = torch.compile(lambda x: x + 1, backend="kiln", options={"target": "cuda"})
    forget_warnings()
    with pytest.warns(RuntimeWarning, match="tensors are on the CPU; move the model and its inputs to the GPU"):
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
