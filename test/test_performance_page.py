# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""docs/performance.md is what `benchmarks.report_page` writes from the stored measurements."""

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.charts import svg as lines
from benchmarks.report_page.__main__ import DOCS, main, stale
from benchmarks.report_page.bars import Bars, svg
from benchmarks.report_page.data import FOLDER, Run, load, standing
from benchmarks.report_page.record import runs_of, write_run
from benchmarks.training.curves import CHART, RESULTS, curve_charts

SPACE = "{http://www.w3.org/2000/svg}"


def test_the_page_is_fresh() -> None:
    assert stale() == [], "run python -m benchmarks.report_page"


def test_the_chart_of_losses_is_fresh() -> None:
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert CHART.read_text(encoding="utf-8") == lines(curve_charts(document)), "run benchmarks.training.curves --record"
    page = (DOCS / "numerics.md").read_text(encoding="utf-8")
    for run in document["runs"]:
        cells = [f"{run['largest_difference'][f'{name} - float64']:.2g}" for name in ("eager", "Inductor", "Kiln")]
        row = next(line for line in page.splitlines() if line.startswith(f"| {run['precision']} |"))
        assert [float(cell) for cell in row.split("|")[2:5]] == pytest.approx([float(cell) for cell in cells], rel=0.1)


def test_the_page_fits() -> None:
    assert len((DOCS / "performance.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_check_names_what_a_new_figure_makes_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    shutil.copytree(FOLDER, results)
    docs.mkdir()
    given = ["--results", str(results), "--docs", str(docs)]
    assert main(given) == 0 and main([*given, "--check"]) == 0
    file = results / "epyc-models-f32-1t.json"
    run = json.loads(file.read_text())
    run["rows"][0]["gains"]["inductor/kiln"] = 3.21
    file.write_text(json.dumps(run))
    assert main([*given, "--check"]) == 1
    assert capsys.readouterr().err.split(" is stale")[0] == "performance.md"
    assert stale(docs, results) == ["performance.md", "performance-cpu.svg"]


def test_every_run_says_where_it_is_from() -> None:
    assert len(load()) >= 20  # which raises for a file without machine, versions, date or commit


def test_a_run_without_a_date_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"suite": "cpu models", "machine": {}, "versions": {}, "rows": [1]}))
    with pytest.raises(ValueError, match=r"x.json: no commit, date, notes"):
        load(tmp_path)


def test_gains() -> None:
    rows = [
        {"case": "a", "times": {"inductor": 4.0, "kiln": 2.0}, "gains": {"inductor/kiln": 2.1}},
        {"case": "b", "times": {"inductor": 8.0, "kiln": 1.0}},
        {"case": "c", "times": {"kiln": 1.0}},
    ]
    gains = Run("run", {}, rows).gains("inductor")
    assert gains == {"a": 2.1, "b": 8.0}  # the recorded ratio counts before that of the medians
    found = standing(gains)
    assert (found.count, found.case, found.least) == (2, "a", 2.1)
    assert found.mean == pytest.approx((2.1 * 8.0) ** 0.5)
    assert Run("run", {}, rows[1:2]).best_gains("times") == {"b": 8.0}


def _outcome(*seconds: float) -> dict[str, Any]:
    return {"seconds": list(seconds), "median": sorted(seconds)[len(seconds) // 2], "error": 1e-6}


def test_a_run_of_the_benchmark_is_stored(tmp_path: Path) -> None:
    outcomes = {"eager": _outcome(4e-3, 4e-3), "inductor": _outcome(2e-3, 6e-3), "kiln": _outcome(1e-3, 2e-3)}
    cold = {"inductor": {"compile": 4.0, "compile_memory": 3 << 20}, "kiln": {"compile": 1.0, "warm": 0.5}}
    document = {
        "machine": {"processor": "P", "cores": 2, "torch": "2", "python": "3"},
        "clock": "wall time",
        "results": [{"case": "bert", "group": "model", "dtype": "f32", "threads": 1, "outcomes": outcomes}],
        "cold": {"bert": cold},
    }
    head = {"date": "2026-01-02", "commit": "abc", "notes": []}
    for name, run in runs_of(document, "box", head).items():
        write_run(tmp_path, name, run)
    runs = load(tmp_path)
    assert list(runs) == ["box-compile-times", "box-models-f32-1t"]
    row = runs["box-models-f32-1t"].row("bert")
    assert row["times"] == {"eager": 4.0, "inductor": 6.0, "kiln": 2.0}  # ms
    assert row["gains"] == {"inductor/kiln": 2.5, "eager/kiln": 3.0}  # medians of 2 and 3, and of 4 and 2
    assert runs["box-models-f32-1t"].head["commit"] == "abc"
    compiled = runs["box-compile-times"].row("bert")
    assert compiled["cold_s"] == {"inductor": 4.0, "kiln": 1.0} and compiled["warm_s"] == {"kiln": 0.5}
    assert compiled["compile_memory_mib"] == {"inductor": 3.0}


def test_a_recorded_run_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    """From the benchmark's JSON to the page, in one command."""
    results, docs, file = tmp_path / "results", tmp_path / "docs", tmp_path / "benchmarks.json"
    shutil.copytree(FOLDER, results)
    docs.mkdir()
    outcomes = {"eager": _outcome(4e-3), "inductor": _outcome(0.7654), "kiln": _outcome(1e-3)}
    document = {
        "machine": {"processor": "P", "cores": 2, "torch": "2", "python": "3"},
        "clock": "wall time",
        "results": [{"case": "bert", "group": "model", "dtype": "f32", "threads": 1, "outcomes": outcomes}],
        "cold": {},
    }
    file.write_text(json.dumps(document))
    given = ["--results", str(results), "--docs", str(docs), "--record", str(file), "--machine", "epyc"]
    assert main([*given, "--date", "2031-05-06"]) == 0
    run = load(results)["epyc-models-f32-1t"]
    assert run.head["date"] == "2031-05-06" and run.head["commit"] and len(run.rows) == 1
    page = (docs / "performance.md").read_text(encoding="utf-8")
    assert "| bert | 4 | 765 | 1 | 765.40 |" in page and "| 2031-05-06 |" in page


def test_a_record_needs_a_machine(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--record needs --machine"):
        main(["--record", str(tmp_path / "x.json")])


def test_a_run_on_a_gpu_is_stored() -> None:
    shared = {"cpu_us": {"kiln": 30.0}, "first_s": {"kiln": 2.0}, "error": {"eager": 1e-3, "kiln": 2e-3}}
    model = {
        "case": "BERT",
        "is_model": True,
        "us": {"kiln": 500.0},
        "wall_us": {"max-autotune": 1500.0, "kiln": 700.0},
    }
    chain = {"case": "chain", "is_model": False, "us": {"eager": 3.0, "kiln": 1.5}, "wall_us": {}, "TB/s": 4.0}
    runs = runs_of([model | shared, chain | shared], "gpu", {"date": "2026-01-02"})
    assert runs["gpu-models-bf16"]["rows"][0]["as_called_ms"] == {"inductor-max-autotune": 1.5, "kiln": 0.7}
    assert runs["gpu-operations"]["rows"] == [
        {"case": "chain", "times": {"eager": 3.0, "kiln": 1.5}, "rate": "4 TB/s", "error_over_eager": [2.0]}
    ]


def test_bars() -> None:
    """A bar for each figure, as long as the figure is large."""
    root = ElementTree.fromstring(svg([Bars("title", {"f32": {"a": 1.0, "b": 2.0}, "bf16": {"b": 4.0}})]))
    widths = [float(bar.get("width", "0")) for bar in root.iter(f"{SPACE}rect") if bar.get("x") == "150.0"]
    key, *bars = widths
    assert key == 20 and bars == [60.0, 120.0, 240.0]
    assert {"title", "a", "b", "f32", "bf16"} <= {text.text for text in root.iter(f"{SPACE}text")}
    with pytest.raises(ValueError, match="a chart needs bars"):
        svg([Bars("title", {"f32": {}})])
