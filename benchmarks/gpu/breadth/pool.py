# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Jobs in processes of their own, several at a time, each with a time limit."""

import contextlib
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.gpu.breadth import child
from benchmarks.gpu.breadth.child import Settings
from benchmarks.gpu.breadth.entry import Job
from benchmarks.gpu.breadth.row import Row

__all__ = ["run_jobs"]

PRELOADED = ["benchmarks.gpu.breadth.preloaded"]
_DUMPING = "Timeout ("
"""How faulthandler's dump of a process near its limit begins."""
GRACE = 20.0
"""Seconds that running jobs have beyond the end of the time for starting them."""


@dataclass
class _Running:
    job: Job
    process: BaseProcess
    results: connection.Connection
    log: Path
    begin: float


def run_jobs(
    jobs: Sequence[Job], settings: Settings, *, workers: int, seconds: float, limit: float, show: Callable[[Row], None]
) -> int:
    """Call `show` with the row of each job as it ends; the number of jobs for which there was no time.

    At most `workers` run at once. None starts after `seconds`; one that runs longer than `limit` seconds is killed.
    """
    context = _context(settings)
    waiting, running = list(jobs), []
    begin = time.monotonic()
    left_over = 0
    with tempfile.TemporaryDirectory(prefix="kiln-breadth-") as folder:
        while waiting or running:
            spent = time.monotonic() - begin
            if spent > seconds:
                left_over, waiting = left_over + len(waiting), []
            if spent > seconds + GRACE:
                for one in running:
                    _end(one)
                left_over, running = left_over + len(running), []
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                log = Path(folder) / f"{time.monotonic_ns()}.log"
                running.append(_start(context, job, settings, log, limit))
            for one in _finished(running, limit):
                running.remove(one)
                show(_row(one, limit))
    return left_over


def _context(settings: Settings) -> BaseContext:
    """Processes forked from one that has imported everything; spawned ones if such a fork cannot use the GPU."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # asking for a GPU does not start CUDA in what is forked later
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    if settings.device == "cuda":
        process = context.Process(target=_probe)
        process.start()
        process.join()
        if process.exitcode != 0:
            return multiprocessing.get_context("spawn")
    return context


def _probe() -> None:
    import torch

    torch.ones(1, device="cuda").add(1).cpu()


def _start(context: BaseContext, job: Job, settings: Settings, log: Path, limit: float) -> _Running:
    receiver, sender = context.Pipe(duplex=False)
    arguments = (job, settings, sender, str(log), limit)
    process = context.Process(target=child.main, args=arguments, daemon=True)
    process.start()
    sender.close()
    return _Running(job, process, receiver, log, time.monotonic())


def _finished(running: Sequence[_Running], limit: float) -> list[_Running]:
    """Those that have a result, have ended, or are over the limit; waits for a moment."""
    ready = connection.wait([one.results for one in running], timeout=0.25)  # the end of a process closes its pipe
    now = time.monotonic()
    return [one for one in running if one.results in ready or now - one.begin > limit]


def _row(one: _Running, limit: float) -> Row:
    job = one.job
    row: Row = {"job": job.key, "entry": job.entry, "kind": job.kind, "dtype": job.dtype, "batch": job.batch}
    if not one.results.poll():
        found = _hung(one, limit)
        found["seconds"] = time.monotonic() - one.begin
    else:
        try:
            found = one.results.recv()
        except EOFError:
            one.process.join(5)
            found = {"status": "crashed", "reason": f"{_exit(one.process.exitcode)}: {_last(one.log)}"}
            if _DUMPING in _text(one.log):  # which may end the process: other threads go on while it reads their frames
                found = _hung(one, limit)
            found["seconds"] = time.monotonic() - one.begin
    _end(one)
    return row | found


def _hung(one: _Running, limit: float) -> Row:
    return {"status": "hung", "reason": f"no result within {limit:.0f} s; it was at {_place(one.log)}"}


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit {code}"


def _place(log: Path) -> str:
    """The innermost frames of the main thread, of the traceback that a job writes shortly before its limit."""
    frames = re.findall(
        r'File "(?:.*/)?([^/"]+)", line (\d+) in (\S+)', _text(log).rpartition("most recent call first")[2]
    )
    return ", ".join(f"{file}:{number} {name}" for file, number, name in frames[:5]) or "an unknown place"


def _last(log: Path) -> str:
    """The last lines of what the process printed."""
    text = _text(log)
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-300:] or "no output"


def _end(one: _Running) -> None:
    if one.process.is_alive():
        one.process.join(1)
    if one.process.is_alive():
        one.process.kill()
        one.process.join()
    one.results.close()
    one.log.unlink(missing_ok=True)
