# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is told of each graph: to stderr, to PyTorch's logs and to its structured trace."""

import io
import logging
import sys
import time

import torch
from torch._logging._internal import trace_log

import kiln
from kiln.frontend.options import Options
from kiln.frontend.report.progress import showing_progress
from kiln.passes.pipelines import cpu_pipeline


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
