# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.explain`` and ``kiln-explain``."""

import inspect
import threading

import pytest
import torch

import kiln
from kiln.frontend.report import CompileReport, collect, publish
from kiln.tools.kiln_explain import main


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_counts_and_text():
    with torch.no_grad():
        explanation = kiln.explain(lambda x: torch.relu(x) * 2 + 1, torch.randn(4, 8))
    (graph,) = explanation.graphs
    assert graph.executor == "kiln" and graph.graph == "inference" and graph.nodes == 3
    assert explanation.kernels == 1 and explanation.aten_calls == []
    assert {decision.op for decision in graph.decisions} >= {"torch.aten.relu"}
    text = str(explanation)
    assert "1 kernels" in text and "torch.aten.relu" in text and "plan-host" in text


def test_aten_call_has_a_reason():
    with torch.no_grad():
        explanation = kiln.explain(lambda x: torch.linalg.det(x) + 1, torch.randn(4, 4))
    assert any("linalg" in name for name in explanation.aten_calls)
    assert all(call.reason for graph in explanation.graphs for call in graph.aten_calls)


def test_kernels_name_what_they_hold():
    with torch.no_grad():
        explanation = kiln.explain(lambda x: torch.sin(x).exp(), torch.randn(64))
    assert explanation.graphs[0].kernels[0].ops == ("sin", "exp")


def test_training_reports_the_forward_graph():
    model = torch.nn.Linear(4, 4)
    explanation = kiln.explain(model, torch.randn(2, 4))
    assert "forward" in [graph.graph for graph in explanation.graphs]


def test_graph_breaks_are_listed():
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    explanation = kiln.explain(fn, torch.ones(3))
    assert len(explanation.graphs) == 2 and len(explanation.graph_breaks) == 1


def test_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "small_model.py").write_text("import torch\ndef make():\n    return torch.nn.ReLU(), torch.ones(4)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["small_model:make"]) == 0
    assert "torch.aten.relu" in capsys.readouterr().out


def test_an_unknown_mode_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "model_with_mode.py").write_text("import torch\ndef make():\n    return torch.sin, torch.ones(4)\n")
    monkeypatch.chdir(tmp_path)
    assert main(["model_with_mode:make", "--mode", "nonsense"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: unknown mode 'nonsense'; modes are default,") and error.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "expected module:function, found 'nothing'"),
        ("no_such_module:make", "cannot import 'no_such_module'"),
        ("math:flor", "has no function 'flor'; did you mean 'floor'?"),
        ("time:time", "must return (model, inputs)"),
    ],
)
def test_command_errors_are_one_line(target, message, capsys):
    assert main([target]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("broken_syntax", "def make(:", "cannot import 'broken_syntax': SyntaxError: "),
        ("failing_module", "raise RuntimeError('boom\\nbang')", "cannot import 'failing_module': RuntimeError: boom"),
        (
            "failing_maker",
            "def make():\n    raise OSError('no weights')",
            "failing_maker:make fails: OSError: no weights",
        ),
        (
            "failing_model",
            "import torch\ndef make():\n    return torch.nn.Linear(4, 4), torch.randn(3, 5)",
            "failing_model:make fails: RuntimeError: a and b must have same reduction dim",
        ),
    ],
)
def test_models_that_fail_are_one_line(name, source, message, tmp_path, monkeypatch, capsys):
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    assert main([f"{name}:make"]) == 1
    *logged, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {message}")
    # PyTorch 2.15 logs by itself what its fake tensors refuse.
    assert not logged or "torch/_subclasses/fake_tensor.py" in logged[0]


def test_patterns_and_near_misses() -> None:
    """What matched, and what a near miss lacks."""

    def model(x: torch.Tensor) -> torch.Tensor:
        almost_gelu = 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.05 * x * x * x)))
        return almost_gelu + x * torch.sigmoid(x)

    with torch.no_grad():
        explanation = kiln.explain(model, torch.randn(4, 8))
    assert explanation.graphs[0].rewrites == {"silu": 1}
    text = explanation.to_text(width=200)
    assert "patterns rewritten: silu" in text
    assert "gelu-tanh: operand 1 of aten.mul.Scalar: 0.044715 expected, found 0.05" in text


def test_reports_of_other_threads():
    """Autograd compiles backward graphs in a thread of its own."""
    with collect() as own, collect(every_thread=True) as all_:
        thread = threading.Thread(target=publish, args=(CompileReport("backward"),))
        thread.start()
        thread.join()
        publish(CompileReport("forward"))
    publish(CompileReport("inference"))
    assert [report.graph for report in own] == ["forward"]
    assert [report.graph for report in all_] == ["backward", "forward"]


def test_places_in_reports_are_short() -> None:
    from kiln.notes import shown_location

    assert shown_location('loc("relu"("/a b/tl.py":2:0))') == "relu (tl.py:2)"
    assert shown_location('loc(fused["mm"("/x/tl.py":2:0), "relu"("/x/tl.py":3:0)])') == "mm, relu (tl.py:2, tl.py:3)"
    assert shown_location("loc(unknown)") == "loc(unknown)"
    text = kiln.explain(lambda x: torch.relu(x) + 1, torch.randn(4)).to_text(verbose=True)
    assert not [line for line in text.splitlines() if line.endswith(": ")], "a pass that counted nothing is not listed"
    assert "loc(" not in text and "relu (test_explain.py:" in text


def test_a_model_is_explained_any_number_of_times():
    """Dynamo's limit of recompilations (8) is for programs."""

    def model(x):
        return x.sin() + 1  # one kernel

    x = torch.randn(4, 8)
    assert [len(kiln.explain(model, x).graphs) for _ in range(10)] == [1] * 10
    assert [len(kiln.trace(model, x, calls=0).graphs) for _ in range(10)] == [1] * 10
    assert [len(kiln.profile(model, x, calls=1).launches) for _ in range(5)] == [1] * 5
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        with collect() as reports:
            torch.compile(model, backend="kiln")(x)
        assert len(reports) == 1
