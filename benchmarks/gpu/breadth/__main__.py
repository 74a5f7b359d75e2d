# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Correctness of Kiln on a GPU over many architectures, against float64 and beside eager.

    python -m benchmarks.gpu.breadth --minutes 9 --out build/breadth.jsonl     # again: goes on where it stopped
    python -m benchmarks.gpu.breadth --only 'swin|bert' --dtype bf16 --jobs 4
    python -m benchmarks.gpu.breadth --dynamic                                 # sizes unknown to the compiler
    python -m benchmarks.gpu.breadth --backend aot_eager                       # what the method itself finds wrong
    python -m benchmarks.gpu.breadth --device cpu --target tt-cpu --only mlp

Each job is a process: a crash or a hang costs one row. The exit status is 1 if a row is wrong, failed, crashed or hung.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.breadth.child import Settings
from benchmarks.gpu.breadth.entry import DTYPES, jobs_of
from benchmarks.gpu.breadth.families import entries_of
from benchmarks.gpu.breadth.lines import about_run, read, write
from benchmarks.gpu.breadth.pool import run_jobs
from benchmarks.gpu.breadth.report import line, summary
from benchmarks.gpu.breadth.row import Row


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    entries = entries_of(options.entries)
    chosen = [entry for entry in entries.values() if re.search(options.only, f"{entry.name} {entry.family}")]
    jobs = jobs_of(chosen, options.dtype.split(","), options.kind.split(","), options.turn)
    if options.batch:
        jobs = [job for job in jobs if (job.batch == 1) == (options.batch == "one")]
    part, parts = map(int, options.shard.split("/"))
    jobs = [job for i, job in enumerate(jobs) if i % parts == part]
    if options.list:
        print("\n".join(job.key for job in jobs))
        return 0
    if options.device == "cuda" and not _has_gpu():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    out = Path(options.out)
    about = about_run(options.device, options.commit, options.dynamic)
    before, rows = read(out) if out.exists() else (about, [])
    if before.get("sizes", "known") != about["sizes"]:
        print(f"{out} is a run with sizes that are {before.get('sizes', 'known')}: give another --out", file=sys.stderr)
        return 1
    rows = [row for row in rows if row["status"] not in options.again.split(",")]
    done = {row["job"] for row in rows}
    jobs = [job for job in jobs if job.key not in done]
    os.environ |= {"KILN_CACHE": "0", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    # Jobs end without tidying up: the locks that libraries made are no leak of ours.
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="kiln-breadth-triton-"))
    kiln_options = {"target": options.target} if options.target else {}
    kiln_options |= json.loads(options.options)
    settings = Settings(options.device, options.backend, kiln_options, options.entries, options.dynamic)
    print(f"{len(chosen)} architectures, {len(jobs)} jobs, {len(done)} done before, {options.jobs} at once", flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as file:
        write(file, [{"run": about}, *rows])

        def show(row: Row) -> None:
            row["family"] = entries[row["entry"]].family
            rows.append(row)
            write(file, [row])
            print(line(row)[: 140 if row["status"] == "right" else 600], flush=True)

        limit = {"workers": options.jobs, "seconds": 60 * options.minutes, "limit": options.limit}
        left = run_jobs(jobs, settings, **limit, show=show)
    print(summary(rows), flush=True)
    if left:
        print(f"no time for {left} jobs: the same command goes on with them", flush=True)
    return int(any(row["status"] not in ("right", "not run") for row in rows))


def _has_gpu() -> bool:
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    return torch.cuda.is_available()


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--only", default="", help="regular expression for 'name family' of an architecture")
    found.add_argument("--dtype", default=",".join(DTYPES), help="comma-separated")
    found.add_argument("--kind", default="forward,train", help="comma-separated")
    found.add_argument("--batch", choices=("one", "large"), help="default: both")
    found.add_argument("--turn", type=int, default=0, help="which way of running each architecture comes first")
    found.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th job from the I-th on")
    found.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    found.add_argument("--minutes", type=float, default=10.0, help="start no job after this time")
    found.add_argument("--limit", type=float, default=150.0, help="seconds of one job")
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    found.add_argument("--backend", default="kiln", help="of torch.compile, or module:function")
    found.add_argument("--dynamic", action="store_true", help="sizes unknown to the compiler; other batches as well")
    found.add_argument("--target", default="", help="Kiln's: tt-cpu runs the GPU's kernels on the CPU")
    found.add_argument("--options", default="{}", help="Kiln's other options as JSON")
    found.add_argument("--entries", default="", help="module whose ENTRIES are run in place of the built-in ones")
    found.add_argument("--out", default="build/breadth.jsonl", help="a line for each row; jobs in it are not run again")
    found.add_argument("--again", default="", help="comma-separated statuses of the rows in it that are run again")
    found.add_argument("--commit", default="", help="what the run is of, where git does not know")
    found.add_argument("--list", action="store_true", help="print the jobs in their order")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
