# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The table of runs: `benchmarks/results/breadth.json`, shown by `docs/correctness.md`.

python -m benchmarks.gpu.breadth.table build/breadth.jsonl     # adds the run, writes both
python -m benchmarks.gpu.breadth.table --check                 # the page shows what the file holds
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu.breadth.lines import read
from benchmarks.gpu.breadth.report import counts

__all__ = ["RESULTS", "add", "main", "page_with", "parser", "table"]

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results" / "breadth.json"
PAGE = ROOT / "docs" / "correctness.md"
BEGIN, END = "<!-- breadth: written by `python -m benchmarks.gpu.breadth.table` -->", "<!-- end of breadth -->"
_COUNTS = {
    "architectures": "architectures",
    "jobs": "jobs",
    "right": "right",
    "wrong": "wrong",
    "failed": "failed",
    "crashed": "crashed",
    "hung": "hung",
    "not_run": "not run",
    "fallback_graphs": "graphs with ATen",
    "recompiles": "recompiled",
}

Run = dict[str, Any]


def table(runs: list[Run]) -> str:
    """The runs as Markdown, the newest first."""
    heads = ["date", "commit", "machine", "torch, Triton, transformers", "sizes", *_COUNTS.values()]
    lines = [heads, ["---"] * len(heads)]
    for run in reversed(runs):
        versions = ", ".join(run["versions"][name] for name in ("torch", "triton", "transformers"))
        lines.append([run["date"], f"`{run['commit']}`", run["machine"], versions, run.get("sizes", "known")])
        lines[-1] += [str(run["counts"][name]) for name in _COUNTS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def page_with(page: str, runs: list[Run]) -> str:
    """`page` with the table of `runs` between its marks. ValueError: it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN} ... {END} in the page")
    return f"{before}{BEGIN}\n\n{table(runs)}\n\n{END}{behind}"


def add(runs: list[Run], path: Path) -> list[Run]:
    """`runs` and the one of the file `path`, in place of one of the same commit, machine, date and sizes."""
    about, rows = read(path)
    run = about | {"counts": counts(rows)}
    key = ("date", "commit", "machine", "versions", "sizes")
    return [old for old in runs if any(old.get(name, "known") != run.get(name, "known") for name in key)] + [run]


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    runs: list[Run] = json.loads(RESULTS.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for path in options.files:
        runs = add(runs, path)
    fresh = page_with(page, runs)
    if options.check:
        if page != fresh:
            print("docs/correctness.md is stale; run python -m benchmarks.gpu.breadth.table", file=sys.stderr)
        return int(page != fresh)
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("files", nargs="*", type=Path, help="lines of runs to add")
    found.add_argument("--check", action="store_true", help="write nothing; 1 if the page is stale")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
