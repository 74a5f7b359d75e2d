# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cases in processes of their own, one at a time on each GPU, each GPU with its share of the processor's cores."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.gpu.cases import Case
from benchmarks.gpu.row import Row

__all__ = ["run_cases", "shares", "visible_device"]


def shares(cores: Sequence[int], count: int) -> list[list[int]]:
    """`cores` in `count` equal parts of neighbours; what is over is left idle. ValueError: fewer cores than parts."""
    size = len(cores) // count
    if size == 0:
        raise ValueError(f"{len(cores)} cores cannot be shared by {count} GPUs")
    return [list(cores[i * size : (i + 1) * size]) for i in range(count)]


def visible_device(visible: str | None, gpu: int) -> str:
    """CUDA_VISIBLE_DEVICES for a process that uses the `gpu`-th GPU that is visible here: "" if there are fewer.

    visible: the variable as it is here; None: not set, so that all GPUs are visible.
    """
    if visible is None:
        return str(gpu)
    names = visible.split(",")
    return names[gpu] if gpu < len(names) else ""


def run_cases(
    cases: Sequence[Case], arguments: Sequence[str], gpus: int, seconds: float, show: Callable[[Row], None]
) -> list[Row]:
    """The rows of `cases` in their order: `python -m benchmarks.gpu ARGUMENTS --name NAME` for each.

    GPUs 0 to `gpus` - 1 take the next case when they are done with one, none after `seconds`. `show` gets each row as
    it comes, on any thread but one at a time. A case whose process fails is a row without figures that says why.
    """
    waiting: queue.Queue[Case] = queue.Queue()
    for case in cases:
        waiting.put(case)
    rows: dict[str, Row] = {}
    lock = threading.Lock()
    begin = time.perf_counter()

    def work(gpu: int, cores: list[int]) -> None:
        while time.perf_counter() - begin < seconds:
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            row = _run(case, arguments, gpu, cores)
            with lock:
                rows[case.name] = row
                show(row)

    parts = shares(sorted(os.sched_getaffinity(0)), gpus)
    threads = [threading.Thread(target=work, args=(gpu, cores)) for gpu, cores in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [rows[case.name] for case in cases if case.name in rows]


def _run(case: Case, arguments: Sequence[str], gpu: int, cores: list[int]) -> Row:
    visible = visible_device(os.environ.get("CUDA_VISIBLE_DEVICES"), gpu)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": str(len(cores))}
    with tempfile.TemporaryDirectory() as folder:
        found = os.path.join(folder, "rows.json")
        command = [sys.executable, "-m", "benchmarks.gpu", *arguments, "--name", case.name, "--json", found]
        # The processes that a compiler starts inherit the cores.
        process = subprocess.run(
            [sys.executable, "-c", _PINNED, ",".join(map(str, cores)), *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if os.path.exists(found):
            with open(found, encoding="utf-8") as file:
                rows: list[Row] = json.load(file)
            if rows:
                return rows[0]
    last = (process.stderr.strip() or process.stdout.strip() or "no output").splitlines()[-1]
    empty: Row = {key: {} for key in ("first_s", "error", "us", "spread", "cpu_us", "wall_us")}
    why = f"exit {process.returncode}: {last[:600]}"
    return empty | {"case": case.name, "is_model": case.is_model, "failed": {"process": why}}


_PINNED = (
    "import os, sys; os.sched_setaffinity(0, set(map(int, sys.argv[1].split(',')))); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)
"""Becomes the command behind its first argument, on those cores."""
