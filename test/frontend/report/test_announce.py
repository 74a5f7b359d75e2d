# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is told of each graph: to stderr, to PyTorch's logs and to its structured trace."""

import io
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch._logging._internal import trace_log

import kiln
from kiln.frontend.options import Options
from kiln.frontend.report.progress import showing_progress
from kiln.passes.pipelines import cpu_pipeline

ROOT = Path(__file__).parents[3]
SCHEDULE_AND_CODE = ("kiln.passes.schedule_cpu", "kiln.passes.lower_to_llvm")


def model(x):
    return torch.softmax(x.t().t() * 2, -1)


def compiled(**options):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend="kiln", options=options)(torch.randn(4, 8))


def test_the_variable_is_the_option(monkeypatch):
    assert not Options.build().trace
    monkeypatch.setenv("KILN_VERBOSE", "1")
    assert Options.build().trace and not Options.build(options={"trace": False}).trace


def test_graphs_from_the_cache_are_told_of(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    for told in ("kiln: inference graph of 4 ops in ", " s from the cache: 1 kernels"):
        compiled(trace=True, cache=True)
        assert told in capsys.readouterr().err


def test_passes_log_what_they_note(caplog):
    caplog.set_level(logging.DEBUG, "kiln.passes.fuse")
    compiled()
    assert {record.name for record in caplog.records if record.name.startswith("kiln.")} == {"kiln.passes.fuse"}
    assert any("fused into the kernel of" in record.getMessage() for record in caplog.records)


def test_schedules_and_code_are_logged_where_they_are_asked_for(caplog, tmp_path):
    caplog.set_level(logging.DEBUG, "kiln.passes.schedule_cpu")
    caplog.set_level(logging.DEBUG, "kiln.passes.lower_to_llvm")
    compiled(debug_dir=str(tmp_path))  # otherwise kernels of earlier graphs are taken
    found = [r.getMessage() for r in caplog.records if r.name in SCHEDULE_AND_CODE]
    (schedule,) = (text for text in found if text.startswith('"mul_softmax" ("reduction"): '))
    (code,) = (text for text in found if text.startswith("code of mul_softmax_"))
    assert schedule.endswith(("by the rules of its kind", "}"))
    assert "behind lower-to-llvm:\n" in code and "llvm.func" in code


def test_topics_of_torch_logs(tmp_path):
    """As users write them: each shows its own, at the level that a name alone stands for, whatever the cache has."""
    program = """
import sys, torch
with torch.no_grad():
    torch.compile(lambda x: torch.softmax(x * 2, -1), backend="kiln")(torch.ones(4, 8))
"""
    shown = {"kiln_fusion": "fused into the kernel of", "kiln_schedule": '("reduction"): ', "kiln_code": "llvm.func"}
    for topic, text in {"": "", **shown}.items():
        path = os.pathsep.join([str(ROOT), str(ROOT / "frontend" / "report" / "topics")])
        cache = {"KILN_CACHE": "1", "KILN_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        environment = {**os.environ, **cache, "TORCH_LOGS": topic or "kiln", "PYTHONPATH": path}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
        assert [name for name, other in shown.items() if other in done.stderr] == [topic][: bool(topic)]
        assert text in done.stderr


def test_an_application_that_shows_everything_did_not_ask_for_code(caplog):
    caplog.set_level(logging.INFO)
    compiled()
    assert "llvm.func" not in caplog.text and '("reduction")' not in caplog.text


def test_all_of_kiln_is_logged_without_code(caplog):
    caplog.set_level(logging.DEBUG, "kiln")
    compiled()
    assert "kiln.passes.fuse" in {record.name for record in caplog.records}
    assert "llvm.func" not in caplog.text


def test_torch_compile_debug_has_the_stages(tmp_path):
    """In PyTorch's folder of the process, beside Dynamo's log."""
    program = "import torch, kiln; torch.compile(lambda x: x.relu() * 2, backend='kiln')(torch.ones(4, 8))"
    environment = {**os.environ, "TORCH_COMPILE_DEBUG": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True)
    (folder,) = tmp_path.glob("torch_compile_debug/run_*")
    assert (folder / "torchdynamo").is_dir()
    assert len(list(folder.glob("kiln/graph0-inference/*.fused.mlir"))) == 1


@pytest.mark.skipif(shutil.which("tlparse") is None, reason="needs tlparse (pip install tlparse)")
def test_tlparse_shows_stages_and_the_report(tmp_path):
    program = "import torch, kiln; torch.compile(lambda x: x.relu() * 2, backend='kiln')(torch.ones(4, 8))"
    environment = {**os.environ, "TORCH_TRACE": str(tmp_path / "trace"), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True)
    logs = [str(log) for log in (tmp_path / "trace").glob("*.log")]  # as docs/driver.md says: DIR/*.log
    command = ["tlparse", *logs, "-o", str(tmp_path / "page"), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page" / "index.html").read_text()
    for stage in ("graph", "kiln", "fused", "sched", "llvm", "plan", "report"):
        assert f"kiln_inference_{stage}" in page
    (fused,) = tmp_path.glob("page/*/kiln_inference_fused*")
    assert "kiln.fusion" in fused.read_text()


def test_the_trace_of_a_loaded_graph_says_how_to_see_stages(monkeypatch, tmp_path):
    class Reports(logging.Handler):
        texts: list[str] = []

        def emit(self, record):
            if getattr(record, "metadata", {}).get("artifact", {}).get("name") == "kiln_inference_report":
                self.texts.append(record.payload)

    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trace_log, "handlers", [Reports()])
    for _ in range(2):
        compiled(cache=True)
    assert ["KILN_CACHE=0" in text for text in Reports.texts] == [False, True]


def test_the_trace_has_stages_and_the_report(monkeypatch):
    class Artifacts(logging.Handler):
        names: list[str] = []

        def emit(self, record):
            artifact = getattr(record, "metadata", {}).get("artifact", {})
            if artifact.get("name", "").startswith("kiln_"):
                self.names.append(artifact["name"])
                assert record.payload

    monkeypatch.setattr(trace_log, "handlers", [Artifacts()])
    compiled()
    assert Artifacts.names[:3] == ["kiln_inference_graph", "kiln_inference_kiln", "kiln_inference_fused"]
    assert Artifacts.names[-2:] == ["kiln_inference_plan", "kiln_inference_report"]


def test_rules_and_counts_are_explained():
    explanation = kiln.explain(model, torch.randn(4, 8))
    assert "algebra rules applied: t-t\n" in explanation.to_text()
    assert "torch-cse: merged=" not in explanation.to_text()
    assert "fuse: ops=" in explanation.to_text(verbose=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_long_compilations_show_their_pass(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with showing_progress("inference graph of 4 ops", seconds=0.01) as (progress,):
        progress.before_pass(cpu_pipeline()[0], None)
        end = time.monotonic() + 30
        while "kiln: compiling the inference graph of 4 ops: torch-cse" not in sys.stderr.getvalue():
            assert time.monotonic() < end
            time.sleep(0.01)


def test_short_ones_and_those_without_a_terminal_show_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with showing_progress("graph") as instruments:
        assert instruments == []
    monkeypatch.setattr(sys, "stderr", Terminal())
    with showing_progress("graph", seconds=60) as (progress,):
        progress.before_pass(cpu_pipeline()[0], None)
    assert sys.stderr.getvalue() == ""
