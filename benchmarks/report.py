# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The tables of one run, on the console and as Markdown, and the machine they were measured on."""

import os
import platform
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.headline import SETTINGS, headline_lines
from benchmarks.measure import CaseResult, Outcome

__all__ = ["ALLOCATION", "machine", "markdown", "markdown_table", "show"]

ALLOCATION = (
    "Allocation: every contender returns newly allocated tensors (PyTorch's CPU allocator, default malloc settings), "
    "dropped before its next call, so large outputs pay for page faults; intermediates are newly allocated by eager "
    "and Inductor, while Kiln keeps one workspace between calls. Kiln asks for large pages below tensors of 32 MiB or "
    "more; with --large-pages PyTorch's allocator does so for all contenders (from 2 MiB on)."
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


#: Title, headers, rows.
Section = tuple[str, list[str], list[list[str]]]


def _times(results: Sequence[CaseResult], names: Sequence[str], clock: str) -> Section:
    pairs = [s for s in SETTINGS if f"kiln{s}" in names and f"inductor{s}" in names]
    ratios = [f"inductor{s} / kiln{s}" for s in pairs]
    rows = []
    for result in results:
        cells = [result.case, result.dtype, str(result.threads)]
        for name in names:
            outcome = result.outcomes[name]
            gain = f" ({outcome.speedup:.2f}x)" if name != "eager" and outcome.speedup is not None else ""
            cells.append(_milliseconds(outcome) + gain)
        gains = [result.outcomes[f"inductor{s}"].slower(result.outcomes[f"kiln{s}"]) for s in pairs]
        rows.append([*cells, *("-" if gain is None else f"{gain:.2f}x" for gain in gains)])
    title = f"time per call in ms, median of {clock}; in brackets eager's time over this one"
    return title, ["case", "dtype", "threads", *names, *ratios], rows


def _errors(results: Sequence[CaseResult], names: Sequence[str]) -> Section:
    rows = []
    for result in results:
        cells = [result.case, result.dtype, str(result.threads)]
        base = result.outcomes["eager"].error if "eager" in result.outcomes else None
        for name in names:
            outcome = result.outcomes[name]
            if outcome.error is None:
                cells.append("-")
            else:
                text = f"{outcome.error:.1e}" if name == "eager" or not base else f"{outcome.error / base:.2f}x"
                cells.append(text if outcome.right is not False else f"{text} WRONG")
        rows.append(cells)
    return "error against float64; the others' over eager's", ["case", "dtype", "threads", *names], rows


def _compile_times(cold: dict[str, dict[str, Any]], names: Sequence[str]) -> Section:
    # The floor last.
    compiled = [*(n for n in names if n not in ("eager", "tracing")), "tracing"]
    rows = []
    for case, by_name in cold.items():
        cells = [case]
        for name in compiled:
            found = by_name.get(name, {})
            warm = f" ({found['warm']:.2f})" if found.get("warm") else ""
            cells.append(f"{found['compile']:.2f}{warm}" if "compile" in found else "-")
        rows.append(cells)
    return "cold compilation in seconds; in brackets a warm one", ["case", *compiled], rows


def _memory(cold: dict[str, dict[str, Any]], names: Sequence[str]) -> Section:
    def mebibytes(found: dict[str, Any], key: str) -> str:
        value = found.get(key)
        return "-" if value is None else f"{value / 2**20:.0f}"

    compiled = [n for n in names if n != "eager"]
    rows = []
    for case, by_name in cold.items():
        cells = [case]
        for name in compiled:
            found = by_name.get(name, {})
            children = f" ({mebibytes(found, 'children_memory')})" if found.get("children_memory") else ""
            cells += [mebibytes(found, "compile_memory") + children, mebibytes(found, "run_memory")]
        rows.append(cells)
    headers = ["case", *(h for n in compiled for h in (f"{n}, compiling", "running"))]
    title = (
        "peak memory in MiB above what the process held before its first call; in brackets that of processes it started"
    )
    return title, headers, rows


def _sections(
    results: Sequence[CaseResult], cold: dict[str, dict[str, Any]], names: Sequence[str], clock: str
) -> list[Section]:
    sections = [_times(results, names, clock), _errors(results, names)]
    return [*sections, _compile_times(cold, names), _memory(cold, names)] if cold else sections


def show(
    console: Console, results: Sequence[CaseResult], cold: dict[str, dict[str, Any]], names: Sequence[str], clock: str
) -> None:
    """Print times, errors, compile times and memory, each as a table, then the summary, and what failed."""
    for title, headers, rows in _sections(results, cold, names, clock):
        table = Table(title=title, title_justify="left")
        for number, header in enumerate(headers):
            table.add_column(header, justify="left" if number == 0 else "right", no_wrap=number == 0)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in headline_lines(results, cold):
        console.print(line, markup=False, highlight=False)
    console.print(ALLOCATION, highlight=False)
    for result in results:
        for name, outcome in result.outcomes.items():
            if outcome.failure:
                text = f"{result.case}, {result.dtype}: {name} unavailable: {outcome.failure}"
                console.print(text, markup=False, highlight=False)
    for case, found in cold.items():
        for name, row in found.items():
            if "failure" in row:
                console.print(f"{case}: {name} cold compile: {row['failure']}", markup=False, highlight=False)


def markdown(
    results: Sequence[CaseResult], cold: dict[str, dict[str, Any]], names: Sequence[str], clock: str = "wall time"
) -> str:
    """The same tables for the documentation."""
    return "\n\n".join(markdown_table(*section) for section in _sections(results, cold, names, clock))


def markdown_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One table with its title above."""
    lines = ["| " + " | ".join(row) + " |" for row in (headers, ["---"] * len(headers), *rows)]
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines])
