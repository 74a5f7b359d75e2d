# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The processes that compile: one that works, and one that waits with everything imported."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from kiln.tools.live.jobs import Failure, Job, Outcome

__all__ = ["Children"]

_MOST = 20_000
"""Characters of a process's output that are shown."""


class Children:
    """Each job has a process of its own, which may crash or be stopped. ``folder``: for what the processes print."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: tuple[Process, Path] | None = None
        self._working: Process | None = None
        self._stopped = False
        self._count = 0

    async def prepare(self) -> None:
        """Start the process of the next job."""
        if self._waiting is None:
            self._count += 1
            log = self._folder / f"output{self._count}.txt"
            with log.open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "kiln.tools.live.worker",
                    stdin=PIPE, stdout=output, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            self._waiting = process, log

    async def renew(self) -> None:
        """Have the waiting process import Kiln anew."""
        await self._discard()
        await self.prepare()

    async def run(self, job: Job) -> tuple[Outcome, str]:
        """What becomes of a job, and what its process printed."""
        await self.prepare()
        assert self._waiting is not None
        (process, log), self._waiting = self._waiting, None
        self._working, self._stopped = process, False
        try:
            # A process that ended before it read the job says why in what it printed.
            with contextlib.suppress(ConnectionError):
                await process.communicate(json.dumps(job.to_json()).encode() + b"\n")
            status = await process.wait()
        finally:
            _kill(process)
            self._working = None
        output = log.read_text(encoding="utf-8", errors="replace")[-_MOST:]
        log.unlink()
        result = Path(job.result)
        if status == 0 and result.is_file():
            outcome = Outcome.of(json.loads(result.read_text(encoding="utf-8")))
        elif self._stopped:
            outcome = Outcome(failure=Failure("stopped"))
        else:
            outcome = Outcome(failure=Failure(f"the process that compiles {_ending(status)}", trace=output))
        return outcome, output

    def stop(self) -> None:
        """End the process that works."""
        if self._working is not None:
            self._stopped = True
            _kill(self._working)

    async def close(self) -> None:
        """End all processes."""
        self.stop()
        await self._discard()

    async def _discard(self) -> None:
        if self._waiting is not None:
            (process, log), self._waiting = self._waiting, None
            _kill(process)
            await process.wait()
            log.unlink(missing_ok=True)


def _kill(process: Process) -> None:
    """End a process with those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _ending(status: int) -> str:
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
