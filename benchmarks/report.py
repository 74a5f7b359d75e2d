# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The table, the markdown for docs/performance.md, and the machine it was measured on."""

import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.measure import CaseResult, Outcome

__all__ = ["ALLOCATION", "headline", "machine", "markdown", "show"]

ALLOCATION = (
    "Allocation: every contender returns newly allocated tensors (PyTorch's CPU allocator, default malloc settings), "
    "dropped before its next call, so large outputs pay for page faults alike; intermediates are newly allocated by "
    "eager and Inductor, while Kiln keeps one workspace between calls."
)


def machine() -> dict[str, Any]:
    """Processor, cores, load and versions."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    from kiln import __version__
    from kiln.lowering.cpu.isa import host

    return {
        "processor": model,
        "vectors": f"{host().name}, {host().vector_bytes * 8} bits",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kiln": __version__,
    }


def _milliseconds(outcome: Outcome) -> str:
    if outcome.median is None:
        return "-"
    value = 1e3 * outcome.median
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _cells(result: CaseResult, cold: dict[str, Any] | None, names: Sequence[str]) -> list[str]:
    cells = [result.case, str(result.threads)]
    for name in names:
        outcome = result.outcomes[name]
        text = _milliseconds(outcome)
        if name != "eager" and outcome.speedup is not None:
            text += f" ({outcome.speedup:.2f}x)"
        cells.append(text)
    kiln, inductor = result.outcomes.get("kiln"), result.outcomes.get("inductor")
    if "kiln" in names and "inductor" in names:
        known = kiln and inductor and kiln.median and inductor.median
        cells.append(f"{inductor.median / kiln.median:.2f}x" if known else "-")
    base = result.outcomes["eager"].error if "eager" in result.outcomes else None
    for name in names:
        outcome = result.outcomes[name]
        if name == "eager":
            cells.append(f"{outcome.error:.1e}" if outcome.error is not None else "-")
        elif outcome.error is None:
            cells.append("-")
        else:
            ratio = f"{outcome.error / base:.2f}x" if base else f"{outcome.error:.1e}"
            cells.append(ratio if outcome.right else f"{ratio} WRONG")
    for name in _compiled(names):
        found = (cold or {}).get(name, {})
        cells.append(f"{found['compile']:.2f}" if "compile" in found else "-")
        cells.append(f"{found['warm']:.2f}" if found.get("warm") else "-")
    return cells


def _compiled(names: Sequence[str]) -> list[str]:
    """Columns of compile time, the floor last."""
    return [*(n for n in names if n not in ("eager", "tracing")), "tracing"]


def _headers(names: Sequence[str]) -> list[str]:
    headers = ["case", "threads", *(f"{n} ms" for n in names)]
    if "kiln" in names and "inductor" in names:
        headers.append("inductor / kiln")
    headers += ["eager error" if n == "eager" else f"{n} error / eager" for n in names]
    return headers + [f"{n} {state} s" for n in _compiled(names) for state in ("cold", "warm")]


def show(
    console: Console, results: Sequence[CaseResult], cold: dict[str, dict[str, Any]], names: Sequence[str], clock: str
) -> None:
    """Print the table, then what failed."""
    table = Table(title=f"per call, median of {clock}; in brackets eager's time over this one", title_justify="left")
    for number, header in enumerate(_headers(names)):
        table.add_column(header, justify="left" if number == 0 else "right", no_wrap=number == 0)
    for result in results:
        table.add_row(*_cells(result, cold.get(result.case), names))
    console.print(table)
    console.print(ALLOCATION, highlight=False)
    for result in results:
        for name, outcome in result.outcomes.items():
            if outcome.failure:
                console.print(f"{result.case}: {name} unavailable: {outcome.failure}", markup=False, highlight=False)
    for case, found in cold.items():
        for name, row in found.items():
            if "failure" in row:
                console.print(f"{case}: {name} cold compile: {row['failure']}", markup=False, highlight=False)


def markdown(results: Sequence[CaseResult], cold: dict[str, dict[str, Any]], names: Sequence[str]) -> str:
    """The same table for the documentation."""
    headers = _headers(names)
    rows = [headers, ["---"] * len(headers), *(_cells(r, cold.get(r.case), names) for r in results)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def headline(results: Sequence[CaseResult], cold: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the project promises, from these rows: slowest case against eager, least gain in cold compile time."""
    models = [r for r in results if r.group == "model" and r.outcomes.get("kiln", Outcome()).speedup is not None]
    slowest = min(models, key=lambda r: r.outcomes["kiln"].speedup or 0.0, default=None)
    gains = {
        case: found["inductor"]["compile"] / found["kiln"]["compile"]
        for case, found in cold.items()
        if "compile" in found.get("inductor", {}) and "compile" in found.get("kiln", {})
    }
    worst = min(gains, key=lambda case: gains[case], default=None)
    speedups = [r.outcomes["kiln"].speedup or 0.0 for r in models]
    return {
        "slowest_model_against_eager": [slowest.case, slowest.outcomes["kiln"].speedup] if slowest else None,
        "mean_model_speedup": statistics.geometric_mean(speedups) if speedups else None,
        "least_cold_compile_gain": [worst, gains[worst]] if worst else None,
        "wrong": [f"{r.case}: {n}" for r in results for n, o in r.outcomes.items() if o.right is False],
    }
