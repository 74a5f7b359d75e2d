# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""docs/performance.md and its charts, from the stored runs and `performance.md.j2`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from benchmarks.charts import Chart
from benchmarks.charts import svg as line_charts
from benchmarks.headline import SETTINGS
from benchmarks.report_page.bars import Bars
from benchmarks.report_page.bars import svg as bar_charts
from benchmarks.report_page.data import Run, standing

__all__ = ["files"]

_SUITES = ("cpu models", "cpu small")


def files(runs: Mapping[str, Run]) -> dict[str, str]:
    """Texts by their names in docs/."""
    return {
        "performance.md": _page(runs),
        "training.md": _training_page(runs),
        "performance-cpu.svg": _cpu_chart(runs),
        "performance-gpu.svg": _gpu_chart(runs["h200-models-bf16"]),
        "growth.svg": line_charts(_growth(runs)),
    }


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _training_page(runs: Mapping[str, Run]) -> str:
    found = [run for run in runs.values() if run.head["suite"] == "training"]
    return _template("training.md.j2").render(runs=found, ms=_ms, best=_best, standing=standing)


def _best(run: Run, times: str) -> dict[str, float]:
    """The best time of the others over the best of Kiln's modes, by case."""
    found = {}
    for row in run.rows:
        own = [value for name, value in row[times].items() if name.startswith("kiln")]
        others = [value for name, value in row[times].items() if not name.startswith("kiln")]
        if own and others:
            found[row["case"]] = min(others) / min(own)
    return found


def _page(runs: Mapping[str, Run]) -> str:
    template = _template("performance.md.j2")
    gpu = runs["h200-models-bf16"]
    return template.render(
        runs=runs,
        summary=[*_cpu_summary(runs), *_gpu_summary(runs)],
        gpu={name: standing(_shares(gpu, key)) for name, key in (("cpu", "cpu_of_call_ms"), ("first", "first_call_s"))},
        compile=_compile(runs["epyc-compile-times"]),
        off=_off(runs["epyc-workbench-off"]),
        cases=list(dict.fromkeys(row["case"] for row in runs["epyc-models-f32-1t"].rows)),
        cell=_cell,
        ratio=_ratio,
        ms=_ms,
    )


def _cpu_summary(runs: Mapping[str, Run]) -> list[list[str]]:
    """Cells of the summary: a row for each suite, dtype and thread count of a machine, a column for each setting."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for run in runs.values():
        if run.head["suite"] not in _SUITES:
            continue
        what = run.head["suite"].removeprefix("cpu ").replace("small", "small graphs") + f", {run.head['dtype']}"
        what += f", {run.head['setting']}" if "setting" in run.head else ""
        key = (run.head["machine"]["name"], what, str(run.head["threads"]))
        cells = rows.setdefault(key, ["-"] * (len(SETTINGS) + 1))
        for column, suffix in enumerate(SETTINGS):
            gains = run.gains(f"inductor{suffix}", f"kiln{suffix}")
            cells[column] = _words(gains) if gains else cells[column]
        over_eager = run.gains("eager")
        cells[-1] = f"{standing(over_eager).mean:.2f}" if over_eager else cells[-1]
    return [[*key, *cells] for key, cells in sorted(rows.items())]


def _gpu_summary(runs: Mapping[str, Run]) -> list[list[str]]:
    models = runs["h200-models-bf16"]
    kinds = {
        "models, bf16, as called": (models, "as_called_ms"),
        "models, bf16, on the GPU alone": (models, "on_gpu_ms"),
        "operations": (runs["h200-operations"], "times"),
        "indexed writes": (runs["h200-indexed-writes"], "times"),
    }
    rows = []
    for what, (run, times) in kinds.items():
        over_eager = standing(run.gains("eager", "kiln", times))
        cells = [_words(run.gains("inductor", "kiln", times)), *["-"] * (len(SETTINGS) - 1), f"{over_eager.mean:.2f}"]
        rows.append([run.head["machine"]["name"], what, "-", *cells])
    return rows


def _words(gains: Mapping[str, float]) -> str:
    found = standing(gains)
    return f"**{found.mean:.2f}** of {found.count}, least {found.least:.2f} ({found.case})"


def _shares(run: Run, key: str) -> dict[str, float]:
    """Kiln's figure over Inductor's, by case."""
    return {row["case"]: row[key]["kiln"] / row[key]["inductor"] for row in run.rows if "inductor" in row[key]}


def _off(run: Run) -> dict[str, float]:
    """The most that the workbench takes of a compilation, and of a call, in percent, while all of it is off."""
    return {
        "compile": max(100 * row["share"] for row in run.rows if row["what"] == "compile"),
        "call": max(100 * (row["ratio"] - 1) for row in run.rows if row["what"] == "call"),
    }


def _compile(run: Run) -> dict[str, tuple[float, float, float]]:
    """Kiln's compile time over Inductor's: geometric mean, least and largest, by kind."""
    kinds = {
        "cold": ("cold_s",),
        "cold with start": ("cold_s", "start_s"),
        "warm": ("warm_s",),
        "warm with start": ("warm_s", "warm_start_s"),
        "CPU time of the cold call": ("cpu_s",),
    }
    found = {}
    for kind, keys in kinds.items():
        shares = {}
        for row in run.rows:
            ours, theirs = (sum(row[key][name] for key in keys) for name in ("kiln", "inductor"))
            # Recorded ratios are of unrounded times.
            shares[row["case"]] = row.get("kiln_over_inductor", {}).get(kind, ours / theirs)
        found[kind] = (standing(shares).mean, min(shares.values()), max(shares.values()))
    return found


def _cell(runs: Mapping[str, Run], name: str, case: str, contender: str) -> str:
    return _ms(runs[name].row(case).get("times", {}).get(contender))


def _ratio(runs: Mapping[str, Run], name: str, case: str, setting: str = "") -> str:
    gain = runs[name].gains(f"inductor{setting}", f"kiln{setting}").get(case)
    return "-" if gain is None else f"{gain:.2f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _cpu_chart(runs: Mapping[str, Run]) -> str:
    charts = []
    for machine in ("epyc", "xeon"):
        series = {dtype: runs[f"{machine}-models-{dtype}-1t"].gains("inductor") for dtype in ("f32", "bf16")}
        charts.append(Bars(f"{machine}, one thread: Inductor's time over Kiln's", series))
    return bar_charts(charts)


def _gpu_chart(run: Run) -> str:
    series = {
        "as called": run.gains("inductor", "kiln", "as_called_ms"),
        "on the GPU": run.gains("inductor", "kiln", "on_gpu_ms"),
    }
    best = {"as called": run.best_gains("as_called_ms"), "on the GPU": run.best_gains("on_gpu_ms")}
    titles = ("H200, bf16: Inductor's time over Kiln's", "the fastest of the others over Kiln")
    return bar_charts([Bars(title, values) for title, values in zip(titles, (series, best), strict=True)])


def _growth(runs: Mapping[str, Run]) -> Sequence[Chart]:
    compiling: dict[str, list[tuple[float, float]]] = {}
    for row in runs["epyc-growth-compile"].rows:
        for name, seconds in row["seconds"].items():
            compiling.setdefault(name, []).append((row["layers"], seconds))
    charts = [Chart("first call of a GPT-2 of width 256", "layers", "seconds", compiling)]
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for row in runs["epyc-growth-run"].rows:
        kinds.setdefault(row["class"], []).append(row)
    for kind, rows in kinds.items():
        ours = [(row["size"], row["kiln_us"]) for row in rows]
        theirs = [(row["size"], row["kiln_us"] * row["gains"]["inductor/kiln"]) for row in rows]
        charts.append(Chart(f"run time: {kind}", rows[0]["of"], "us per call", {"kiln": ours, "inductor": theirs}))
    return charts
