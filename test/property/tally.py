# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How many random programs a run has compared with eager, for the summary at its end."""

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Programs by the way in which they were compiled."""

    seed: int
    kinds: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    start: float = field(default_factory=time.monotonic)

    def add(self, kind: str) -> None:
        """One more; a line of progress now and then (`pytest -s` shows it)."""
        self.kinds[kind] += 1
        if self.total % 100 == 0:
            print(f"{self}", flush=True)

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        seconds = time.monotonic() - self.start
        return f"{self.total} programs compared with eager, {self.failed} failed, seed {self.seed}, {seconds:.0f} s ({kinds})"
