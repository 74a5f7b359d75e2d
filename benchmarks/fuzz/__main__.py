# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks.fuzz``: random graphs compiled for a target, and compared with float64; docs/fuzzing.md."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.fuzz.campaign import Tally, campaign
from benchmarks.fuzz.generate import Case, generate
from benchmarks.fuzz.regression import write_test
from benchmarks.fuzz.shrink import shrink
from benchmarks.fuzz.table import table, unreached
from benchmarks.fuzz.worker import Outcome, Worker

ROOT = Path(__file__).parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status is 1 if a graph failed, or a path of the target was not reached."""
    given = _arguments(argv)
    os.environ["KILN_CACHE"] = "0"
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    numbers = given.only or range(given.seed, given.seed + given.graphs)
    tally = campaign(given.target, numbers, given.jobs, given.out, given.minutes, _progress)
    tests = _reduced(tally, given.target, given.jobs, given.shrink, given.seconds, given.out)
    missed = unreached(given.target, tally.paths)
    print(f"\n{given.target}: {tally}")
    print(table(given.target, tally.paths))
    if missed:
        print(f"{len(missed)} paths were not reached (more graphs may)")
    _print_failures(tally, tests, given.target)
    if given.results is not None:
        record(given.results, given.target, tally, missed)
    return int(bool(tally.failures or (missed and not given.only and not given.partial)))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=main.__doc__)
    add = parser.add_argument
    add("--target", choices=["cpu", "tt-cpu", "cuda"], default="cpu")
    add("--graphs", type=int, default=200)
    add("--seed", type=int, default=0, help="number of the first graph; the others follow")
    add("--only", type=int, nargs="+", default=[], help="numbers of graphs to run instead")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    add("--minutes", type=float, help="no more graphs are begun then")
    add("--shrink", type=int, default=6, help="failures that are reduced, of different causes")
    add("--seconds", type=float, default=60, help="for the reduction of each")
    add("--partial", action="store_true", help="paths may be left unreached")
    add("--out", type=Path, default=ROOT / "build" / "fuzz", help="folder for logs and tests")
    add("--results", type=Path, help="JSON file that gets the counts of this campaign")
    return parser.parse_args(argv)


def _progress(tally: Tally) -> None:
    print(f"{tally}", file=sys.stderr, flush=True)


def _reduced(tally: Tally, target: str, jobs: int, most: int, seconds: float, out: Path) -> dict[int, Path]:
    """Tests of the first failure of each cause, reduced side by side; by number."""
    first: dict[str, Outcome] = {}
    for outcome in sorted(tally.failures, key=lambda o: o.number):
        first.setdefault(outcome.cause, outcome)
    chosen = list(first.values())[:most]
    if not chosen:
        return {}

    def reduce(outcome: Outcome) -> tuple[int, Path]:
        worker = Worker(target, out / f"shrink{outcome.number}.log")
        kept: dict[str, Outcome] = {"last": outcome}

        def fails(case: Case) -> bool:
            found = worker.result(case)
            is_same = found.kind == outcome.kind and (found.kind != "error" or found.cause == outcome.cause)
            if is_same:
                kept["last"] = found
            return is_same

        case = shrink(generate(outcome.number, target), fails, seconds)
        worker.close()
        return outcome.number, write_test(case, kept["last"], target, out / "tests")

    with ThreadPoolExecutor(max(1, min(jobs, len(chosen)))) as pool:
        return dict(pool.map(reduce, chosen))


def _print_failures(tally: Tally, tests: dict[int, Path], target: str) -> None:
    for found in _by_cause(tally)[:20]:
        first = found[0]
        numbers = " ".join(str(o.number) for o in found[:8])
        print(f"- {len(found)} {_first_line(first)}\n  graphs {numbers}")
        if first.number in tests:
            print(f"  {tests[first.number]}")
            print("   ", "\n    ".join(tests[first.number].read_text().split("PROGRAM = ")[1].splitlines()[:14]))
    if tally.failures:
        numbers = " ".join(str(o.number) for o in tally.failures[:8])
        print(f"again: python -m benchmarks.fuzz --target {target} --only {numbers}")


def record(path: Path, target: str, tally: Tally, missed: Sequence[str]) -> None:
    """One row more. What `causes` say is what was seen; who finds out why it was puts that in its place."""
    rows = json.loads(path.read_text()) if path.exists() else []
    rows.append(
        {
            "date": date.today().isoformat(),
            "torch": torch.__version__,
            "triton": _version("triton"),
            "commit": _commit(),
            "target": target,
            "machine": torch.cuda.get_device_name() if target == "cuda" else f"{_processor()}, {os.cpu_count()} cores",
            "graphs": tally.compared,
            "failed": len(tally.failures),
            "skipped": tally.kinds["skipped"],
            "seconds": round(tally.seconds),
            "unreached": list(missed),
            "causes": [
                {"failures": len(found), "cause": _first_line(found[0]), "graphs": [o.number for o in found]}
                for found in _by_cause(tally)
            ],
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _by_cause(tally: Tally) -> list[list[Outcome]]:
    """Failures of one cause side by side, the most frequent first."""
    causes: dict[str, list[Outcome]] = {}
    for outcome in sorted(tally.failures, key=lambda o: o.number):
        causes.setdefault(outcome.cause, []).append(outcome)
    return sorted(causes.values(), key=len, reverse=True)


def _first_line(outcome: Outcome) -> str:
    return f"{outcome.kind}: {outcome.text.splitlines()[0][:300] if outcome.text else ''}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def _commit() -> str:
    """With a + behind it where files differ from it."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or "-"


def _processor() -> str:
    """The name that Linux has for it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)


if __name__ == "__main__":
    sys.exit(main())
