# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One table: time per call, error against float64, CPU time per call, seconds of the first call.

Single operations are timed on the GPU alone (CUDA graphs), models as they are called, with their launches; the JSON
file has both for all.

    python -m benchmarks.gpu --only micro --contenders eager,inductor,kiln --case linear --json results.json
    python -m benchmarks.gpu --only models --seconds 500
    python -m benchmarks.gpu --only models --gpus 4 --contenders eager,inductor,kiln,max-autotune,kiln-max-autotune

A rate is the baseline's time over Kiln's: above 1, Kiln is faster. First calls are made in the order of
``--contenders``. ``--seconds`` stops before the next case; ``--gpus`` gives each case a process of its own,
one at a time on each GPU. ``--only training`` measures training steps, with the options of
``python -m benchmarks.training``.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time

import torch

from benchmarks.gpu.report import header, line, markdown, summary
from benchmarks.gpu.row import CONTENDERS, SETTINGS, Row, measure_row


def main() -> int:
    if sys.argv[1:3] == ["--only", "training"]:
        from benchmarks.training.__main__ import main as training

        return training(sys.argv[3:], device="cuda")
    options = _options()
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    folder = tempfile.mkdtemp(prefix="kiln-gpu-benchmark-")  # first calls are cold
    os.environ["KILN_FALLBACK"] = "0"  # a graph that Kiln fails on would be timed as eager's
    os.environ["KILN_CACHE"] = "0"
    os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
    from benchmarks.gpu.cases import CASES, MODELS

    contenders = [c for c in options.contenders.split(",") if c]
    contenders += [] if "kiln" in contenders else ["kiln"]
    cases = [*(CASES if options.only != "models" else []), *(MODELS if options.only != "micro" else [])]
    cases = [case for case in cases if re.search(options.case, case.name)]
    if options.name:
        cases = [case for case in cases if case.name == options.name]
    rows: list[Row] = []

    def show(row: Row) -> None:
        rows.append(row)
        print(line(row, contenders), flush=True)
        for name, reason in row.get("failed", {}).items():
            print(f"  {name} failed: {reason}", flush=True)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n{header(contenders)}", flush=True)
    if options.gpus:
        from benchmarks.gpu.processes import run_cases

        arguments = ["--contenders", ",".join(contenders), "--rounds", str(options.rounds)]
        rows = run_cases(cases, arguments, options.gpus, options.seconds, show)
    else:
        begin = time.perf_counter()
        for case in cases:
            if time.perf_counter() - begin > options.seconds:
                print(f"stopped before {case.name}: {options.seconds:.0f} s are over", flush=True)
                break
            show(measure_row(case, contenders, options.rounds))
            torch.cuda.empty_cache()
    print("\n".join(summary(rows)), flush=True)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(rows, contenders) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("micro", "models", "training"), help="default: micro and models")
    parser.add_argument("--case", default="", help="regular expression that a case's name has to match")
    parser.add_argument("--name", default="", help="the one case of this name")
    parser.add_argument(
        "--contenders",
        default=",".join(CONTENDERS),
        help=f"comma-separated, of eager, {', '.join(SETTINGS)}; kiln is always there",
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after this time")
    parser.add_argument("--gpus", type=int, default=0, help="so many GPUs, each with cases in processes of their own")
    parser.add_argument("--json", default="", help="file for all figures")
    parser.add_argument("--markdown", default="", help="file for a table of the rows")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
