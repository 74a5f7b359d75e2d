# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compile time and memory: the first call of a compiled model in a fresh process, with empty caches (cold), and once
more with the caches that this left (warm).

``python -m benchmarks.cold CASE CONTENDER`` is that process; it prints one JSON object. Imports are excluded: before
the clock starts, the process has compiled and run ``x + 1`` with the same contender, which loads every module of the
compiler and pays for what is needed once a process (Inductor's probing of the C++ compiler, Kiln's launcher, a
collection of garbage behind the imports).
"""

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory import DescendantPeak, peak_bytes, resident_bytes, start_peak

__all__ = ["ROOT", "cpu_seconds", "measure_cold"]

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600
"""Seconds after which a compilation is given up."""


def measure_cold(case: str, contender: str, threads: int, small: bool, dtype: str = "f32") -> dict[str, Any]:
    """Run this file as a process of its own, twice.

    Returns:
        ``compile``: seconds of the model's first call; ``cpu``: CPU seconds of it, child processes included; ``start``:
        seconds of the first trivial call, imports included; ``steady``: seconds of the model's second call, which the
        first one includes as well; ``warm``, ``warm_cpu`` and ``warm_start``: ``compile``, ``cpu`` and ``start`` of the
        second process, which finds what the first one left on the disk. In bytes, None where the system does not say:
        ``compile_memory``, what the first call took at its peak above what the process held before;
        ``children_memory``, the most that the processes held which it started (C++ compilers, workers);
        ``run_memory``, what the second process took at the peak of a later call above what it held before its first.
        Or ``failure``: why there are none of these.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        command = [case, contender, "--threads", str(threads), "--dtype", dtype, *["--small"] * small]
        found = _process(folder, command)
        if "failure" not in found:
            again = _process(folder, command)
            found["warm"], found["warm_cpu"] = again.get("compile"), again.get("cpu")
            found["warm_start"], found["run_memory"] = again.get("start"), again.get("run_memory")
        return found


def _process(folder: str, arguments: list[str]) -> dict[str, Any]:
    caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "KILN_CACHE_DIR": f"{folder}/kiln", "KILN_CACHE": "1"}
    environment = {**os.environ, **caches, "TMPDIR": folder}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "benchmarks.cold", *arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as log:
        # Started and watched from here, so that looking at its children takes none of its time.
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=log) as process:
            children = DescendantPeak(process)
            end = time.monotonic() + LIMIT
            while process.poll() is None:
                if time.monotonic() > end:
                    process.kill()
                    return {"failure": f"not done after {LIMIT} s"}
                children.sample()
                time.sleep(0.02)
        texts = []
        for file in (out, log):
            file.seek(0)
            texts.append([line for line in file.read().decode(errors="replace").splitlines() if line.strip()])
    if process.returncode:
        return {"failure": texts[1][-1] if texts[1] else f"exit status {process.returncode}"}
    return {**json.loads(texts[0][-1]), "children_memory": children.bytes}


def cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended (the C++ compiler)."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _above(base: int | None) -> int | None:
    """The peak above ``base`` bytes."""
    peak = peak_bytes()
    return None if peak is None or base is None else max(0, peak - base)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("case")
    parser.add_argument("contender")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()

    import torch

    from benchmarks.case import DTYPES, built
    from benchmarks.cases import CASES
    from benchmarks.contenders import CONTENDERS
    from benchmarks.measure import summary

    torch.set_num_threads(arguments.threads)
    contender = CONTENDERS[arguments.contender]
    module, inputs = built(CASES[arguments.case], arguments.dtype, arguments.small)

    class Trivial(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    def timed(call: Callable[..., Any], *values: torch.Tensor) -> float:
        start = time.perf_counter()
        call(*values)
        return time.perf_counter() - start

    with torch.no_grad():
        module(*inputs)
        try:
            first = timed(contender.prepare(Trivial()), torch.randn(64, dtype=DTYPES[arguments.dtype]))
            # What the imports left has to be looked through once; whoever's model comes first would pay for it.
            first += timed(gc.collect)
            prepared = contender.prepare(module)
            base = resident_bytes()
            base = base if start_peak() else None
            before = cpu_seconds()
            compile_seconds = timed(prepared, *inputs)
            cpu = cpu_seconds() - before
            compiling = _above(base)
            steady = timed(prepared, *inputs)
            resident_bytes()  # gives back what compiling left
            start_peak()
            timed(prepared, *inputs)
            running = _above(base)
        except Exception as error:  # for the report, in one line
            print(json.dumps({"failure": f"{type(error).__name__}: {summary(error)}"}))
            return
    found = {"compile": compile_seconds, "cpu": cpu, "start": first, "steady": steady}
    found |= {"compile_memory": compiling, "run_memory": running}
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
