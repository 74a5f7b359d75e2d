# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A child process that compiles and judges one case after the other, and its parent's end of the pipe."""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from benchmarks.fuzz.device import works
from benchmarks.fuzz.execute import why_skipped
from benchmarks.fuzz.generate import Case, generate
from kiln.lowering import paths

SECONDS = 180.0
"""After which a case hangs."""
_MEMORY = 2 << 30
"""Bytes that a worker's allocator may keep of a GPU that others use, too."""

_fork = multiprocessing.get_context("forkserver")  # of a process that has imported PyTorch and Kiln
_fork.set_forkserver_preload(["benchmarks.fuzz.worker"])
_spawn = multiprocessing.get_context("spawn")  # a GPU's driver does not live through a fork


@dataclass
class Outcome:
    """What became of a case.

    kind: "right", "skipped" (PyTorch itself does not compile it, or wrongly), "wrong", "error" (it does not compile),
    "crash" (the process died), "hang". text: why. paths: how often each was taken. is_last: the process ends behind
    it, as its GPU does not work any more.
    """

    number: int
    kind: str
    text: str = ""
    seconds: float = 0.0
    paths: dict[str, int] = field(default_factory=dict)
    is_last: bool = False

    @property
    def failed(self) -> bool:
        return self.kind not in ("right", "skipped")

    @property
    def cause(self) -> str:
        """The failure without its numbers: equal for many cases with one cause."""
        line = self.text.splitlines()[0] if self.text else ""
        return f"{self.kind}: {''.join('#' if c.isdigit() else c for c in line)[:60]}"


def judge(case: Case) -> Outcome:
    """Runs a case in this process."""
    start = time.monotonic()
    paths.reset()
    try:
        text = why_skipped(case.program, case.setting)
        kind = "skipped" if text else "right"
    except AssertionError as error:
        kind, text = "wrong", str(error) or repr(error)
    except Exception as error:
        inner = getattr(error, "inner_exception", error)  # of Dynamo's BackendCompilerFailed
        kind, text = "error", f"{type(inner).__name__}: {inner}\n{traceback.format_exc()}"
    return Outcome(case.number, kind, text, time.monotonic() - start, paths.taken())


def serve(pipe: Connection, target: str, log: str) -> None:
    """The child: gets numbers or cases, sends outcomes."""
    with open(log, "a") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
        os.dup2(file.fileno(), sys.stdout.fileno())
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch._logging.set_logs(all=50)
    with contextlib.suppress(EOFError):
        while True:
            task = pipe.recv()
            try:
                case = generate(task, target) if isinstance(task, int) else task
                outcome = judge(case)
            except Exception:  # of the generator
                outcome = Outcome(task if isinstance(task, int) else task.number, "error", traceback.format_exc())
            outcome.is_last = target == "cuda" and not _has_gpu()
            if outcome.is_last and outcome.kind == "right":
                outcome.kind, outcome.text = "crash", "the GPU does not work any more"
            pipe.send(outcome)
            if outcome.is_last:
                return


def _has_gpu() -> bool:
    """Whether the GPU still works for this process; gives memory back."""
    is_there = works("cuda")
    if is_there and torch.cuda.memory_reserved() > _MEMORY:
        torch.cuda.empty_cache()
    return is_there


class Worker:
    """The parent's end of a child; a new child takes the place of one that died."""

    def __init__(self, target: str, log: Path) -> None:
        self._target, self._log = target, log
        self._started = 0.0
        self.task: int | Case | None = None
        self.done = 0
        self._start()

    def _start(self) -> None:
        context = _spawn if self._target == "cuda" else _fork
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._target, str(self._log)), daemon=True)
        self._process.start()
        theirs.close()
        self.done = 0

    def submit(self, task: int | Case) -> None:
        """Begin with a case, or with that of a number."""
        self.task, self._started = task, time.monotonic()
        try:
            self.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):  # the child died between two cases
            self.restart()
            self.pipe.send(task)

    def poll(self, seconds: float = 0.0) -> Outcome | None:
        """The outcome of the case, if there is one by now."""
        if self.task is None:
            return None
        number = self.task if isinstance(self.task, int) else self.task.number
        if self.pipe.poll(seconds):
            try:
                outcome = self.pipe.recv()
                if outcome.is_last:
                    self.restart()
            except (EOFError, ConnectionResetError):
                self._process.join(10)
                code = self._process.exitcode or 0
                name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
                outcome = Outcome(number, "crash", f"the process died: {name}", time.monotonic() - self._started)
                self.restart()
            self.task = None
            self.done += 1
            return outcome
        if time.monotonic() - self._started > SECONDS:
            self.restart()
            self.task = None
            return Outcome(number, "hang", f"no end in {SECONDS:.0f} s", SECONDS)
        return None

    def result(self, task: int | Case) -> Outcome:
        """Run one case, and wait for it."""
        self.submit(task)
        while (outcome := self.poll(1.0)) is None:
            pass
        return outcome

    def restart(self) -> None:
        """A new child."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the child."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
