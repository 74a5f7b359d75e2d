# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks``: eager, Inductor and Kiln side by side; ``python -m benchmarks growth``: how compile time
grows with layers, and run time with sizes; ``python -m benchmarks --only training``: training steps (its options are
those of ``python -m benchmarks.training``). See docs/performance.md."""

import argparse
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from benchmarks.case import DTYPES
from benchmarks.cases import CASES, select
from benchmarks.cold import ROOT, measure_cold
from benchmarks.contenders import CONTENDERS
from benchmarks.growth import main as growth
from benchmarks.headline import headline
from benchmarks.measure import CaseResult, Outcome, Settings, measure_case
from benchmarks.report import ALLOCATION, machine, markdown, show
from benchmarks.training.__main__ import main as training


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Eager PyTorch, Inductor and Kiln side by side, in one run."
    )
    add = parser.add_argument
    add("--threads", type=int, nargs="+", default=[1], help="thread counts, each measured in a process of its own")
    add("--only", nargs="+", default=[], metavar="CASE", help="cases, prefixes of cases, or the groups model, micro")
    add("--contenders", nargs="+", default=["eager", "inductor", "kiln"], choices=list(CONTENDERS))
    add("--dtype", nargs="+", default=["f32"], choices=list(DTYPES), help="of parameters and inputs")
    add("--quick", action="store_true", help="small sizes and few rounds: a look, no measurement")
    add("--rounds", type=int, help="interleaved rounds (25; 5 with --quick)")
    add("--cpu-time", action="store_true", help="CPU time of the thread instead of wall time; for one thread")
    add("--large-pages", action="store_true", help="PyTorch's allocator asks for large pages, for all contenders")
    add("--cold", choices=["model", "all", "none"], default="model", help="whose cold compile time to measure")
    add("--json", type=Path, default=ROOT / "build" / "benchmarks.json", help="where the figures go")
    add("--markdown", type=Path, help="write the table as markdown, too")
    add("--list", action="store_true", help="list the cases")
    arguments = parser.parse_args(argv)
    if arguments.cpu_time and arguments.threads != [1]:
        parser.error("--cpu-time counts one thread: it needs --threads 1")
    if min(arguments.threads) < 1 or (arguments.rounds is not None and arguments.rounds < 1):
        parser.error("--threads and --rounds must be positive")
    try:
        arguments.cases = select(arguments.only)
    except KeyError as unknown:
        parser.error(f"--only: no case begins with {unknown}; cases are {', '.join(CASES)}")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 1 if a contender gave a wrong result or Kiln failed on a case, else 0."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["growth"]:
        return growth(given[1:])
    if given[:2] == ["--only", "training"]:
        return training(given[2:], device="cpu")
    arguments = _arguments(argv)
    if arguments.large_pages:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"  # read when PyTorch allocates for the first time
    console = Console(width=None if sys.stdout.isatty() else 200)
    if arguments.list:
        for case in CASES.values():
            console.print(f"{case.name:32} {case.group:6} {case.describe}", highlight=False)
        return 0
    here = machine()
    console.print(", ".join(f"{k} {v}" for k, v in here.items()), highlight=False)
    results: list[CaseResult] = []
    for threads in arguments.threads:
        alone = len(arguments.threads) == 1
        results += _run(arguments, threads, console) if alone else _run_apart(arguments, threads, argv, console)
    cold = _cold(arguments, console)
    clock = "CPU time" if arguments.cpu_time else "wall time"
    show(console, results, cold, arguments.contenders, clock)
    summary = headline(results, cold)
    document = {
        "machine": here,
        "allocation": ALLOCATION,
        "clock": clock,
        "quick": arguments.quick,
        "summary": summary,
        "results": [result.as_dict() for result in results],
        "cold": cold,
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(results, cold, arguments.contenders) + "\n", encoding="utf-8")
    failed = [r.case for r in results for n, o in r.outcomes.items() if n.startswith("kiln") and o.failure]
    return 1 if summary["wrong"] or failed else 0


def _run(arguments: argparse.Namespace, threads: int, console: Console) -> list[CaseResult]:
    """Every case in this process."""
    torch.set_num_threads(threads)
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
    torch._inductor.config.force_disable_caches = True
    os.environ["KILN_CACHE"] = "0"
    rounds = arguments.rounds or (5 if arguments.quick else 25)
    sample = 0.005 if arguments.quick else 0.02
    results = []
    for dtype, case in itertools.product(arguments.dtype, arguments.cases):
        settings = Settings(threads, rounds, sample, arguments.cpu_time, arguments.quick, dtype)
        result = measure_case(case, arguments.contenders, settings)
        found = ", ".join(f"{n} {1e3 * o.median:.3f} ms" for n, o in result.outcomes.items() if o.median is not None)
        describe = case.describe if not arguments.quick else "small"
        console.print(f"{case.name} ({describe}, {dtype}): {found}", highlight=False)
        results.append(result)
    return results


def _run_apart(
    arguments: argparse.Namespace, threads: int, argv: list[str] | None, console: Console
) -> list[CaseResult]:
    """Every case in a process of its own: compiled code may hold on to the thread count it was compiled for."""
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        file = Path(folder) / "results.json"
        given = list(sys.argv[1:] if argv is None else argv)
        # The last of two equal options counts.
        command = [sys.executable, "-m", "benchmarks", *given, "--threads", str(threads), "--cold", "none"]
        console.print(f"{threads} threads", highlight=False)
        subprocess.run([*command, "--json", str(file)], check=False, stdout=subprocess.DEVNULL, cwd=ROOT)
        if not file.exists():
            raise SystemExit(f"python -m benchmarks: error: the run with {threads} threads ended without a result")
        rows = json.loads(file.read_text(encoding="utf-8"))["results"]
    return [CaseResult(**(row | {"outcomes": {n: Outcome(**o) for n, o in row["outcomes"].items()}})) for row in rows]


def _cold(arguments: argparse.Namespace, console: Console) -> dict[str, dict[str, Any]]:
    """Compile times and memory by case and contender, with the first of the thread counts and of the dtypes."""
    found: dict[str, dict[str, Any]] = {}
    wanted = [c for c in arguments.cases if arguments.cold == "all" or c.group == arguments.cold]
    for case in wanted:
        for name in dict.fromkeys([*arguments.contenders, "tracing"]):
            contender = CONTENDERS[name]
            if contender.compiles and not contender.unavailable():
                row = measure_cold(case.name, name, arguments.threads[0], arguments.quick, arguments.dtype[0])
                found.setdefault(case.name, {})[name] = row
                text = f"{row['compile']:.2f} s" if "compile" in row else row["failure"]
                console.print(f"cold compile, {case.name}, {name}: {text}", highlight=False)
    return found


if __name__ == "__main__":
    sys.exit(main())
