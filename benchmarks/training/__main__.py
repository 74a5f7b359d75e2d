# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Training steps of ten networks with small and large batches: forward and backward, and a whole step with AdamW.

Contenders are eager, Inductor, Kiln and the two compilers with ``mode="reduce-overhead"``, interleaved; gradients are
compared with those in float64 in the same run. Without dropout. The gain is the best of the others over the best of
Kiln's.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.training.cases import cases
from benchmarks.training.measure import CONTENDERS, Row, measure
from benchmarks.training.processes import READY, run_rows

_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_LIMIT = 3
"""Times eager's error in the same dtype from which a row is wrong."""
_FLOOR = {"float32": 1e-5, "bfloat16": 1e-2}
"""Relative errors that are right whatever eager's is."""


def main(argv: list[str] | None = None, device: str | None = None) -> int:
    """Entry point; ``device`` is the default of ``--device``. Returns 1 if a gradient of Kiln's is wrong or missing."""
    options = _options(argv, device or ("cuda" if torch.cuda.is_available() else "cpu"))
    folder = tempfile.mkdtemp(prefix="kiln-training-")  # first steps are cold
    os.environ |= {"KILN_FALLBACK": "0", "KILN_CACHE": "0"}
    os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
    import kiln  # noqa: F401 - registers the backend

    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    console, rows = Console(width=None if sys.stdout.isatty() else 180), list[Row]()
    names = [n for n in options.contenders.split(",") if options.device == "cuda" or not n.endswith("graphs")]
    chosen = [case for case in cases(options.device) if re.search(options.case, case.name)]

    def show(row: Row) -> None:
        rows.append(row)
        console.print(f"{row.case}: {_gain(row)}", highlight=False)
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")

    if options.jobs > 1:
        run_rows([case.name for case in chosen], _arguments(options), options.jobs, show)
    else:
        for case in chosen:
            turn = _wait_for_turn if options.turns else lambda: None
            clock, dtype = _CLOCKS[options.clock], _DTYPES[options.dtype]
            show(measure(case, options.device, dtype, names, options.rounds, clock, turn))
            if options.device == "cuda":
                torch.cuda.empty_cache()
    for title, table in (("forward and backward, ms", "backward_ms"), ("whole step, ms", "step_ms")):
        console.print(_table(title, table, rows, names))
    for row in rows:
        for name, why in row.failed.items():
            console.print(f"{row.case}: {name} failed: {why}", highlight=False)
    return 1 if any(_is_wrong(row) for row in rows) else 0


def _wait_for_turn() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


def _arguments(options: argparse.Namespace) -> list[str]:
    """The options that a process of one case is given."""
    names = ("device", "dtype", "contenders", "rounds", "threads", "clock")
    return [f"--{name}={getattr(options, name)}" for name in names]


def _gain(row: Row) -> str:
    found = [row.gain(times) for times in (row.backward_ms, row.step_ms)]
    return ", ".join("-" if g is None else f"{g:.2f}" for g in found) + (" WRONG" if _is_wrong(row) else "")


def _is_wrong(row: Row) -> bool:
    """Whether a gradient of Kiln's is missing, or further off than eager's dtype explains."""
    limit = max(_FLOOR.get(row.dtype, 0.0), _LIMIT * row.error.get("eager", 0.0))
    own = [name for name in (*row.error, *row.failed) if name.startswith("kiln")]
    return any(name in row.failed or not row.error[name] <= limit for name in own)


def _table(title: str, times: str, rows: list[Row], names: list[str]) -> Table:
    table = Table("case", *names, "gain", "error / eager's", "peak / inductor's", title=title)
    gains: list[float] = []
    for row in rows:
        found: dict[str, float] = getattr(row, times)
        gain = row.gain(found)
        gains += [] if gain is None else [gain]
        cells = [f"{found[n]:.2f}" if n in found else "-" for n in names]
        shares = [_share(row.error, "kiln", "eager"), _share(row.peak_mib, "kiln", "inductor")]
        table.add_row(row.case, *cells, "-" if gain is None else f"{gain:.2f}", *shares)
    if gains:
        table.add_section()
        table.add_row("geometric mean", *("" for _ in names), f"{geometric_mean(gains):.2f}", f"least {min(gains):.2f}")
    return table


def _share(values: dict[str, float], of: str, to: str) -> str:
    return f"{values[of] / values[to]:.2f}" if of in values and values.get(to) else "-"


def _options(argv: list[str] | None, device: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=device)
    parser.add_argument("--dtype", choices=list(_DTYPES), default="bf16" if device == "cuda" else "f32")
    parser.add_argument("--case", default="", help="regular expression that a case's name has to match")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="comma-separated")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument(
        "--clock",
        choices=list(_CLOCKS),
        default="wall",
        help="cpu: CPU time of the process, which other work on the machine disturbs less; with --threads 1",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="cases that compile at once, each in a process; timed one after the other"
    )
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)  # one of --jobs: waits to be timed
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args(argv)
    if options.clock == "cpu" and (options.device == "cuda" or options.threads != 1):
        parser.error("--clock cpu measures one thread of a CPU: --device cpu --threads 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
