# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks.fuzz``: random graphs compiled for a target, and compared with float64; docs/fuzzing.md."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
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
        _record(given.results, given.target, tally)
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
    causes: dict[str, list[Outcome]] = {}
    for outcome in sorted(tally.failures, key=lambda o: o.number):
        causes.setdefault(outcome.cause, []).append(outcome)
    for found in sorted(causes.values(), key=len, reverse=True)[:20]:
        first = found[0]
        text = first.text.splitlines()[0][:300] if first.text else ""
        numbers = " ".join(str(o.number) for o in found[:8])
        print(f"- {len(found)} {first.kind}: {text}\n  graphs {numbers}")
        if first.number in tests:
            print(f"  {tests[first.number]}")
            print("   ", "\n    ".join(tests[first.number].read_text().split("PROGRAM = ")[1].splitlines()[:14]))
    if tally.failures:
        numbers = " ".join(str(o.number) for o in tally.failures[:8])
        print(f"again: python -m benchmarks.fuzz --target {target} --only {numbers}")


def _record(path: Path, target: str, tally: Tally) -> None:
    """One row more."""
    rows = json.loads(path.read_text()) if path.exists() else []
    rows.append(
        {
            "date": date.today().isoformat(),
            "target": target,
            "machine": torch.cuda.get_device_name() if target == "cuda" else os.uname().machine,
            "torch": torch.__version__,
            "graphs": tally.compared,
            "failed": len(tally.failures),
            "skipped": tally.kinds["skipped"],
            "seconds": round(tally.seconds),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
