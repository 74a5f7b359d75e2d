# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The benchmarks' cases can be built, and their tables say what was measured."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from benchmarks.case import built
from benchmarks.cases import CASES, select
from benchmarks.charts import Chart, svg
from benchmarks.growth import CLASSES, compile_growth
from benchmarks.growth_plot import growth_charts
from benchmarks.headline import headline, headline_lines
from benchmarks.measure import CaseResult, Outcome, Settings, measure_case
from benchmarks.memory import DescendantPeak, peak_bytes, resident_bytes, start_peak
from benchmarks.networks import BUILDERS
from benchmarks.report import markdown


def test_every_network_is_a_case():
    assert {case.name for case in select(["model"])} == set(BUILDERS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_small_models_run(dtype):
    name = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
    for case in select(["model"]):
        module, inputs = built(case, name, small=True)
        with torch.no_grad():
            result = module(*inputs)
        assert result.dtype == dtype, case.name
        assert result.isfinite().all(), case.name


def test_a_case_is_the_same_at_every_build():
    (one, x), (two, y) = (built(CASES["dlrm"], "f32", small=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(x, y, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_measured(dtype):
    build, _, _ = CLASSES["softmax"]
    settings = Settings(rounds=2, sample=1e-4, dtype=dtype)
    result = measure_case(build(20), ["eager", "kiln", "kiln-freezing"], settings)
    assert result.dtype == dtype
    for outcome in result.outcomes.values():
        assert not outcome.failure
        assert outcome.right and outcome.median and outcome.median > 0 and len(outcome.seconds) == 2


@pytest.mark.parametrize("name", ["softmax", "layernorm", "int_mm_333x1000x1001", "quantised_linear_16x768x768"])
def test_micro_cases_are_one_graph(name):
    """Without weights and with some: a frame that Dynamo cannot trace would be measured for no compiler."""
    module, inputs = built(CASES[name], "f32", small=True)
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), module(*inputs))


def test_tables():
    times = {"eager": 4e-3, "inductor": 3e-3, "inductor-freezing": 2e-3, "kiln": 1e-3, "kiln-freezing": 8e-4}
    outcomes = {n: Outcome(seconds=[t], median=t, speedup=4e-3 / t, error=1e-7, right=True) for n, t in times.items()}
    outcomes["kiln"].error, outcomes["kiln"].right = 1e-5, False
    outcomes["inductor"].right = None  # timed, but never compared
    results = [CaseResult("bert", "model", 1, outcomes, "bf16")]
    mib = 1 << 20
    cold = {
        "bert": {
            "kiln": {
                "compile": 1.5,
                "warm": 0.25,
                "compile_memory": 10 * mib,
                "children_memory": 0,
                "run_memory": 2 * mib,
            },
            "inductor": {
                "compile": 6.0,
                "compile_memory": 50 * mib,
                "children_memory": 300 * mib,
                "run_memory": 8 * mib,
            },
        }
    }
    text = markdown(results, cold, list(times))
    assert "| bert | bf16 | 1 | 4.000 | 3.000 (1.33x) | 2.000 (2.00x) | 1.000 (4.00x) | 0.800 (5.00x) |" in text
    assert "(5.00x) | 3.00x | 2.50x |" in text  # Inductor's time over Kiln's, by setting
    assert "100.00x WRONG" in text
    assert text.count("WRONG") == 1
    assert "| bert | 6.00 | - | 1.50 (0.25) | - | - |" in text
    assert "| bert | 50 (300) | 8 | - | - | 10 | 2 | - | - |" in text  # memory
    summary = headline(results, cold)
    assert summary["wrong"] == ["bert, bf16: kiln"]
    assert summary["compile_gains"] == {"compile": [pytest.approx(4.0), "bert", 4.0]}
    gains = {(s["against"], s["kiln"]): s["mean"] for s in summary["standings"]}
    assert gains["inductor", "kiln"] == pytest.approx(3.0)
    assert gains["inductor-freezing", "kiln-freezing"] == pytest.approx(2.5)


def test_standings():
    def row(case, group, eager, inductor, kiln):
        times = {"eager": eager, "inductor": inductor, "kiln": kiln}
        return CaseResult(case, group, 1, {n: Outcome(seconds=[t], median=t) for n, t in times.items()})

    results = [row("bert", "model", 8, 4, 1), row("swin", "model", 8, 1, 4), row("chain", "micro", 6, 3, 1)]
    results[2].outcomes["eager"].seconds = []  # it failed: no part of any mean
    assert headline_lines(results, {}) == [
        "model, f32, 1 threads: inductor / kiln: 1.00 (geometric mean of 2), least 0.25 (swin)",
        "model, f32, 1 threads: eager / kiln: 4.00 (geometric mean of 2), least 2.00 (swin)",
        "micro, f32, 1 threads: inductor / kiln: 3.00 (geometric mean of 1), least 3.00 (chain)",
    ]


def test_memory_of_a_process():
    """A peak that has passed is seen, and so is that of a child."""
    before = resident_bytes()
    if before is None or not start_peak():
        pytest.skip("the system does not tell peaks")
    block = bytearray(b"x" * (64 << 20))
    del block
    peak = peak_bytes()
    assert peak is not None and (60 << 20) < peak - before < (200 << 20)
    text = "x = bytearray(b'x' * (64 << 20)); print(1, flush=True); input()"
    command = ["sh", "-c", f'"$0" -c "{text}"; true', sys.executable]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        children = DescendantPeak(process)
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        children.sample()
        process.communicate(b"\n")
    assert children.bytes is not None and children.bytes > 64 << 20


def test_growth():
    one, three = compile_growth(["tracing"], [1, 3], repeats=1)
    assert (one.layers, one.per_layer) == (1, None)
    assert one.median is not None and three.median is not None and one.median > 0
    assert three.per_layer == pytest.approx((three.median - one.median) / 2)


def test_charts():
    """Every line and point is there; a larger value is higher up, and farther to the right."""
    outcomes = {"eager": {"median": 4e-6}, "kiln": {"median": None}}
    document = {
        "clock": "CPU time",
        "compile": [
            {"contender": name, "layers": layers, "median": seconds}
            for name, layers, seconds in (
                ("kiln", 1, 0.5),
                ("kiln", 48, 3.0),
                ("tracing", 1, None),
                ("inductor", 1, 7.0),
            )
        ],
        "run": [{"case": f"softmax {n}", "size": "columns", "outcomes": outcomes} for n in (16, 1024)],
    }
    charts = growth_charts(document)
    assert [chart.title for chart in charts] == [
        "compile time: first call of a GPT-2 of width 256",
        "run time: softmax",
    ]
    assert set(charts[0].lines) == {"kiln", "inductor"} and set(charts[1].lines) == {"eager"}
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(svg(charts))
    lines = [line.get("points", "").split() for line in root.iter(f"{space}polyline")]
    assert sorted(map(len, lines)) == [1, 2, 2]
    (left, low), (right, high) = ([float(value) for value in point.split(",")] for point in lines[0])
    assert left < right and high < low  # pixels are counted downwards
    texts = {text.text for text in root.iter(f"{space}text")}
    assert {"layers", "columns", "1Ki", "kiln", "eager", "us per call, CPU time"} <= texts
    with pytest.raises(ValueError, match="positive"):
        svg([Chart("nothing", "x", "y", {"kiln": [(0, 1)]})])


def test_memory_of_a_process_that_ends_meanwhile(monkeypatch):
    """Between the look for its folder and that into it."""

    def gone(*_):
        raise FileNotFoundError("/proc/1/task")

    monkeypatch.setattr(Path, "glob", gone)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        peak = DescendantPeak(process)
        peak.sample()
    assert not peak.bytes
