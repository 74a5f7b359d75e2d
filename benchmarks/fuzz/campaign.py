# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Many cases in several processes: goes on behind failures, and counts what was reached."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from benchmarks.fuzz.worker import Outcome, Worker

_LIFE = 250
"""Cases after which a process is replaced: compilers keep memory."""


@dataclass
class Tally:
    """Outcomes by kind, paths taken, failures."""

    kinds: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """One more."""
        self.kinds[outcome.kind] += 1
        self.paths.update(outcome.paths)
        if outcome.failed:
            self.failures.append(outcome)

    @property
    def compared(self) -> int:
        """Cases that were compared with float64, or failed before that."""
        return self.kinds.total() - self.kinds["skipped"]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        return f"{self.kinds.total()} graphs in {self.seconds:.0f} s: {kinds}"


def campaign(
    target: str,
    numbers: Iterable[int],
    jobs: int,
    out: Path,
    minutes: float | None = None,
    report: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Run the cases of these numbers, or as many as fit into the time; `report` is called now and then."""
    out.mkdir(parents=True, exist_ok=True)
    start, told = time.monotonic(), time.monotonic()
    tally, waiting = Tally(), _until(numbers, None if minutes is None else start + 60 * minutes)
    workers = [Worker(target, out / f"worker{i}.log") for i in range(jobs)]
    with open(out / "outcomes.jsonl", "a") as log:
        for worker in workers:
            _next(worker, waiting)
        while busy := [w for w in workers if w.task is not None]:
            wait([w.pipe for w in busy], timeout=1.0)
            for worker in busy:
                outcome = worker.poll()
                if outcome is None:
                    continue
                tally.add(outcome)
                print(json.dumps(asdict(outcome)), file=log, flush=True)
                if worker.done >= _LIFE:
                    worker.restart()
                _next(worker, waiting)
            tally.seconds = time.monotonic() - start
            if time.monotonic() - told > 30:
                told = time.monotonic()
                report(tally)
    for worker in workers:
        worker.close()
    return tally


def _until(numbers: Iterable[int], end: float | None) -> Iterator[int]:
    for number in numbers:
        if end is not None and time.monotonic() > end:
            return
        yield number


def _next(worker: Worker, numbers: Iterator[int]) -> None:
    number = next(numbers, None)
    if number is not None:
        worker.submit(number)
