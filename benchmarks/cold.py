# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compile time: the first call of a compiled model in a fresh process, with empty caches (cold), and once more with the
caches that this left (warm).

``python -m benchmarks.cold CASE CONTENDER`` is that process; it prints one JSON object. Imports are excluded: before
the clock starts, the process has compiled and run ``x + 1`` with the same contender, which loads every module of the
compiler and pays for what is needed once a process (Inductor's probing of the C++ compiler, Kiln's launcher).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["measure_cold"]

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600
"""Seconds after which a compilation is given up."""


def measure_cold(case: str, contender: str, threads: int, small: bool, dtype: str = "f32") -> dict[str, Any]:
    """Run this file as a process of its own, twice.

    Returns:
        ``compile``: seconds of the model's first call; ``cpu``: CPU seconds of it, child processes included; ``start``:
        seconds of the first trivial call, imports included; ``steady``: seconds of the model's second call, which the
        first one includes as well; ``peak_rss``: bytes; ``warm`` and ``warm_cpu``: ``compile`` and ``cpu`` of the second
        process, which finds what the first one left on the disk. Or ``failure``: why there are none.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        command = [case, contender, "--threads", str(threads), "--dtype", dtype, *["--small"] * small]
        found = _process(folder, command)
        if "failure" not in found:
            again = _process(folder, command)
            found["warm"], found["warm_cpu"] = again.get("compile"), again.get("cpu")
        return found


def _process(folder: str, arguments: list[str]) -> dict[str, Any]:
    caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "KILN_CACHE_DIR": f"{folder}/kiln", "KILN_CACHE": "1"}
    environment = {**os.environ, **caches, "TMPDIR": folder}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.cold", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {LIMIT} s"}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return {"failure": lines[-1] if lines else f"exit status {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def _cpu_seconds() -> float:
    """CPU time of this process and of its children that have ended (the C++ compiler)."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _peak_bytes() -> int:
    """Peak resident memory of this process. Not ru_maxrss where it can be had: that begins at the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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

    def timed(call: Any, *values: torch.Tensor) -> float:
        start = time.perf_counter()
        call(*values)
        return time.perf_counter() - start

    with torch.no_grad():
        module(*inputs)
        try:
            first = timed(contender.prepare(Trivial()), torch.randn(64, dtype=DTYPES[arguments.dtype]))
            prepared = contender.prepare(module)
            before = _cpu_seconds()
            compile_seconds = timed(prepared, *inputs)
            cpu = _cpu_seconds() - before
            steady = timed(prepared, *inputs)
        except Exception as error:  # for the report, in one line
            print(json.dumps({"failure": f"{type(error).__name__}: {summary(error)}"}))
            return
    peak = _peak_bytes()
    found = {"compile": compile_seconds, "cpu": cpu, "start": first, "steady": steady, "peak_rss": peak}
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
