# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.trace``, the option ``trace_html`` and ``kiln-trace``: what is recorded, and who shows it."""

import re
import sys
from pathlib import Path

import forked_python
import pytest
import torch
from torch import nn
from trace_support import TARGETS, Block, nodes_of, traced

import kiln
from kiln.errors import KilnError
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.frontend.report.trace.graph_data import graph_data
from kiln.frontend.report.trace.locations import places
from kiln.frontend.report.trace.session import recorders

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize("target", TARGETS)
def test_tracing_changes_no_code(target: str, tmp_path: Path):
    model, x = Block().eval(), torch.randn(8, 64)
    options = {"target": target, "fallback": False}
    torch.compile(model, backend="kiln", options={**options, "debug_dir": str(tmp_path)})(x)
    dumped = {file.stem: file.read_text() for file in tmp_path.glob("*/*.s")}
    torch._dynamo.reset()
    record = traced(target, model).graphs[0].record
    assert dumped and dumped == {name: code["s"] for name, code in record.code.items()}


def test_stages_and_diffs():
    graph = traced().graphs[0]
    names = [stage.name for stage in graph.stages]
    assert names[0] == "input" and {"graph", "kiln", "fused", "sched", "kernels"} <= set(names)
    assert "kiln.fusion" in graph.stage("fused").text and "loc(" not in str(graph.stage("fused"))
    diff = graph.stage("fuse").diff(graph.stage("graph"))
    assert any(line.startswith("+") and "kiln.fusion" in line for line in diff.splitlines())
    with pytest.raises(KilnError, match="did you mean 'fuse' or 'fused'"):
        graph.stage("fusde")
    # A pass that changes nothing is a place as well.
    assert "narrow-attention" not in names and graph.stage("narrow-attention").text in graph.stage("kiln").text
    name = graph.record.kernels()[0]
    assert "vector" in graph.kernel(name[:12], "vector") and "Disassembly" in graph.kernel(name, "s")
    with pytest.raises(KilnError, match="has no stage 'ptx'"):
        graph.kernel(name, "ptx")


def test_printed_it_names_stages():
    found = kiln.trace(lambda x: torch.relu(x) + 1, torch.randn(4), calls=1)
    title, graph = str(found).split("\n")
    assert title.startswith("Kiln trace")
    assert graph == f"graph 0: {', '.join(stage.name for stage in found.graphs[0].stages)}" and "fused" in graph
    assert repr(found) == str(found)


def test_kernels_have_the_notes_of_their_schedules():
    data = graph_data(traced().graphs[0].record)
    product = next(kernel for kernel in data["kernels"] if kernel["kind"] == "matmul")
    assert product["schedule"] and any(note.startswith("schedule-cpu: ") for note in product["notes"])


def test_calls_lead_to_their_ops():
    data = graph_data(kiln.trace(lambda x: torch.linalg.det(x.sin()) + 1, torch.randn(4, 4)).graphs[0].record)
    calls = [launch for launch in data["launches"] if launch["kind"] == "aten"]
    assert calls and all(call["reason"] and nodes_of(data, [call["set"]]) for call in calls)


def test_rewrites_notes_and_times_are_recorded():
    record = kiln.trace(lambda x: torch.relu(x.t().t() * 1.0).sum(), torch.randn(5, 7), calls=3).graphs[0].record
    algebra = [r for step in record.steps if step.name.startswith("simplify-algebra") for r in step.rewrites]
    assert algebra and all(r.rewrite.rule and "simplify_algebra.py:" in r.source for r in algebra)
    assert all(places(r.rewrite.provenance) for r in algebra)
    data = graph_data(record)
    assert [launch["measured"] > 0 and launch["estimate"] > 0 for launch in data["launches"]] == [True] * len(
        data["launches"]
    )
    assert len(data["launches"]) == len(record.plan.steps)


def test_times_stand_beside_the_roof_of_the_machine():
    from kiln.lowering.gpu.dot.machine import machine

    record = traced("tt-cpu").graphs[0].record
    assert graph_data(record)["roof"] == ""  # a GPU's kernels on a CPU have none
    record.target, record.pipeline = "cuda", [*record.pipeline, ("assemble{arch=sm_90}", "", "")]
    data = graph_data(record)
    assert data["roof"].endswith(machine("sm_90").name)  # of another sm_90, its own name first
    for launch, times in zip(data["launches"], record.times, strict=True):
        assert launch["roof"] >= 0.99e-9 * times.moved / machine("sm_90").memory_rate > 0
    assert all(launch["roof"] > 0 for launch in graph_data(traced().graphs[0].record)["launches"])


def test_the_option_writes_a_page(tmp_path: Path):
    file = tmp_path / "deep" / "out.html"
    options = {"trace_html": str(file), "fallback": False}
    torch.compile(Block().eval(), backend="kiln", options=options)(torch.randn(8, 64))
    text = file.read_text()
    assert (
        text.startswith("<!doctype html>") and "DecompressionStream" in text and "http" not in text.split("<script")[0]
    )
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin(), backend="kiln", options=options)(torch.randn(8))
    assert len(file.read_text()) > len(text)  # both graphs


def test_training_has_both_graphs():
    with torch.enable_grad():
        found = kiln.trace(Block(), torch.randn(8, 64), options={"fallback": False}, calls=1, backward=True)
    assert [graph.record.report.graph for graph in found.graphs] == ["forward", "backward"]
    for graph in found.graphs:
        assert all(launch["measured"] is not None for launch in graph_data(graph.record)["launches"])


def test_a_file_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="cannot write the trace"):
        options = {"trace_html": str(tmp_path / "file" / "out.html"), "fallback": False}
        torch.compile(lambda x: x.sin(), backend="kiln", options=options)(torch.randn(8))


def test_nothing_is_recorded_unless_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    report = CompileReport("inference")
    monkeypatch.delenv("KILN_TRACE", raising=False)
    assert recorders(Options(), report, "cpu") == [] and Options().shares_kernels
    monkeypatch.setenv("KILN_TRACE", str(tmp_path / "x.html"))
    found = Options.build()
    assert len(recorders(found, report, "cpu")) == 1 and not found.shares_kernels and not found.cache


def test_a_notebook_shows_the_page():
    shown = traced()._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;!doctype html&gt;" in shown


def test_marimo_shows_the_page():
    """Its protocol: a method of the class, which returns a MIME type and the data."""
    found = traced()
    method = getattr(type(found), "_mime_", None)
    assert method is not None
    mime, shown = method(found)
    assert mime == "text/html" and shown == found._repr_html_()


def test_the_command(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 4), (torch.randn(2, 4),)\n"
    )
    command = [sys.executable, "-m", "kiln.tools.kiln_trace"]
    done = forked_python.run([*command, "mine:make", "-o", "t.html"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "1 graphs" in done.stdout and (tmp_path / "t.html").exists(), done.stderr
    done = forked_python.run([*command, "mine:other"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "has no function" in done.stderr
    done = forked_python.run([*command, "mine:make", "--for", "gpu"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "unknown target 'gpu'; targets are cpu, cuda, tt-cpu" in done.stderr
    # The tensors are on the CPU, so that the only graph runs with ATen: a page would be empty.
    done = forked_python.run([*command, "mine:make", "--for", "cuda"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "no graph was compiled" in done.stderr and not (tmp_path / "trace.html").exists()


@pytest.mark.parametrize(
    ("target", "tile"), [("cpu", r"mr = (\d+) "), ("tt-cpu", r"block_m = (\d+) .*block_n = (\d+)")]
)
def test_candidates_of_cost_models(target: str, tile: str) -> None:
    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w) * 2

    model, inputs = product, (torch.randn(4, 64, 64), torch.randn(4, 64, 16))
    if target == "cpu":
        model, inputs = nn.Conv2d(16, 32, 3), (torch.randn(1, 16, 30, 30),)
    torch._dynamo.reset()
    with torch.no_grad():
        record = kiln.trace(model, *inputs, options={"target": target}, calls=0).graphs[0].record
    (kernel,) = graph_data(record)["kernels"]
    what, unit, candidates = next(choice for choice in kernel["choices"] if choice[0].endswith("tile"))
    costs = [cost for _, cost in candidates]
    assert len(candidates) > 3 and costs == sorted(costs) and unit
    found = re.search(tile, kernel["schedule"])
    assert found is not None, kernel["schedule"]
    assert candidates[0][0] == (found[1] if len(found.groups()) == 1 else f"({', '.join(found.groups())})")
