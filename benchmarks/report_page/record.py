# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stores what ``python -m benchmarks --json`` and ``python -m benchmarks.gpu --json`` wrote as runs of the page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.headline import SETTINGS
from benchmarks.measure import Outcome

__all__ = ["runs_of", "write_run"]

_SUITES = {"model": "cpu models", "micro": "cpu small"}


def runs_of(document: Any, machine: str, head: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Runs by name. `document` is the parsed JSON of a benchmark, `machine` the short name that the files' names begin
    with, `head` what every run gets (`date`, `commit`, `notes`, and for a GPU `machine` and `versions`)."""
    if isinstance(document, list):
        is_training = bool(document) and "backward_ms" in document[0]
        return (_training_runs if is_training else _gpu_runs)(document, machine, head)
    here = document["machine"]
    shared = dict(head) | {
        "machine": {"name": machine, "processor": here["processor"], "cores": here["cores"]},
        "versions": {"torch": here["torch"], "python": here["python"]},
        "clock": document["clock"],
    }
    runs: dict[str, dict[str, Any]] = {}
    for result in document["results"]:
        suite, dtype, threads = _SUITES[result["group"]], result["dtype"], result["threads"]
        name = f"{machine}-{suite.split()[1]}-{dtype}-{threads}t"
        run = runs.setdefault(
            name, shared | {"suite": suite, "dtype": dtype, "threads": threads, "unit": "ms", "rows": []}
        )
        run["rows"].append(_row(result["case"], {n: Outcome(**o) for n, o in result["outcomes"].items()}))
    if document["cold"]:
        rows = [_cold_row(case, found) for case, found in document["cold"].items()]
        runs[f"{machine}-compile-times"] = shared | {"suite": "cpu compile times", "unit": "s", "rows": rows}
    return runs


def write_run(folder: Path, name: str, run: Mapping[str, Any]) -> Path:
    """Write one run, a line for each row so that a diff shows the cases that changed. Returns the file."""
    head = {key: value for key, value in run.items() if key != "rows"}
    rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in run["rows"])
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}") + f',\n "rows": [\n{rows}\n ]\n}}\n'
    file = folder / f"{name}.json"
    file.write_text(text, encoding="utf-8")
    return file


def _row(case: str, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    pairs = [(rival, f"kiln{s}") for s in SETTINGS for rival in (f"inductor{s}", "eager")]
    gains = {}
    for rival, ours in pairs:
        gain = outcomes.get(rival, Outcome()).slower(outcomes.get(ours, Outcome()))
        if gain is not None:
            gains[f"{rival}/{ours}"] = round(gain, 3)
    row: dict[str, Any] = {"case": case, "times": _rounded(outcomes), "gains": gains}
    eager = outcomes.get("eager", Outcome()).error
    errors = [o.error for name, o in outcomes.items() if name.startswith("kiln") and o.error is not None]
    if eager and errors:
        row["error_over_eager"] = sorted({round(error / eager, 2) for error in errors})
    failures = {name: o.failure for name, o in outcomes.items() if o.failure}
    return row | ({"failures": failures} if failures else {})


def _rounded(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    return {name: float(f"{1e3 * o.median:.4g}") for name, o in outcomes.items() if o.median is not None}


def _cold_row(case: str, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case}
    kinds = {"cold_s": "compile", "warm_s": "warm", "start_s": "start", "warm_start_s": "warm_start", "cpu_s": "cpu"}
    for key, source in kinds.items():
        row[key] = {name: round(f[source], 2) for name, f in found.items() if f.get(source)}
    for key, source in {"compile_memory_mib": "compile_memory", "run_memory_mib": "run_memory"}.items():
        row[key] = {name: round(f[source] / 2**20, 1) for name, f in found.items() if f.get(source) is not None}
    return row


def _named(figures: Mapping[str, float], unit: float) -> dict[str, float]:
    """Figures times `unit`, four digits, under the names of the contenders on the CPU."""
    return {
        "inductor-max-autotune" if name == "max-autotune" else name: float(f"{value * unit:.4g}")
        for name, value in figures.items()
    }


def _gpu_runs(rows: Sequence[Mapping[str, Any]], machine: str, head: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    runs: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["is_model"]:
            run = runs.setdefault(f"{machine}-models-bf16", {**head, "suite": "gpu models", "unit": "ms", "rows": []})
            stored: dict[str, Any] = {
                "case": row["case"],
                "as_called_ms": _named(row["wall_us"], 1e-3),
                "on_gpu_ms": _named(row["us"], 1e-3),
                "cpu_of_call_ms": _named(row["cpu_us"], 1e-3),
                "first_call_s": _named(row["first_s"], 1.0),
            }
        else:
            run = runs.setdefault(
                f"{machine}-operations", {**head, "suite": "gpu operations", "unit": "us", "rows": []}
            )
            stored = {"case": row["case"], "times": _named(row["us"], 1.0)}
            rate = next((key for key in ("TFLOP/s", "TB/s") if key in row), None)
            stored |= {"rate": f"{row[rate]:.3g} {rate}"} if rate else {}
        if {"kiln", "eager"} <= row["error"].keys():
            stored["error_over_eager"] = [round(row["error"]["kiln"] / row["error"]["eager"], 2)]
        run["rows"].append(stored)
    return runs


def _training_runs(
    rows: Sequence[Mapping[str, Any]], machine: str, head: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Of the rows of `benchmarks.training`, which are in one dtype."""
    dtype = {"bfloat16": "bf16", "float32": "f32"}[rows[0]["dtype"]]
    stored: list[dict[str, Any]] = []
    for row in rows:
        figures = {key: _named(row[key], 1.0) for key in ("backward_ms", "step_ms", "peak_mib", "error", "first_s")}
        failed = {"failures": row["failed"]} if row["failed"] else {}
        stored.append({"case": row["case"], **{key: found for key, found in figures.items() if found}, **failed})
    return {f"{machine}-training-{dtype}": {**head, "suite": "training", "dtype": dtype, "unit": "ms", "rows": stored}}
