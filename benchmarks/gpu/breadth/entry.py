# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the breadth run is made of: entries (architectures), and the jobs that run one of them in one way."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["DTYPES", "Built", "Entry", "Inputs", "Job", "jobs_of"]

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}

Inputs = Callable[[torch.Generator], Mapping[str, Any] | Sequence[Any]]
"""Makes a model's arguments on the CPU: by name, or positional."""
Built = tuple[nn.Module, Inputs]


@dataclass(frozen=True)
class Entry:
    """One architecture: `build(batch)` gives a module in float32 and the maker of its inputs.

    `batch` is the large batch. `trains`: gradients are compared too, `input_gradients`: those of the inputs as well.
    `cost`: about how long a job takes beside one of cost 1, since long jobs start first. `dtypes`: those eager can do.
    """

    name: str
    family: str
    build: Callable[[int], Built]
    batch: int = 8
    trains: bool = False
    cost: float = 1.0
    input_gradients: bool = True
    dtypes: tuple[str, ...] = tuple(DTYPES)


@dataclass(frozen=True)
class Job:
    """One entry in one dtype at one batch size: a forward pass, or a training step."""

    entry: str
    kind: str
    dtype: str
    batch: int

    @property
    def key(self) -> str:
        return f"{self.entry} {self.kind} {self.dtype} batch {self.batch}"


def jobs_of(
    entries: Iterable[Entry],
    dtypes: Sequence[str] = tuple(DTYPES),
    kinds: Sequence[str] = ("forward", "train"),
    turn: int = 0,
) -> list[Job]:
    """All jobs in tiers, each of which has one job of each architecture, the longest first.

    Which way an architecture is run in a tier goes round from one to the next, so that the first tier has all ways, and
    with `turn` from run to run.
    """
    tiers: list[list[tuple[float, Job]]] = []
    for number, entry in enumerate(entries):
        ways = [job for job in _ways(entry) if job.dtype in dtypes and job.kind in kinds]
        for tier, _ in enumerate(ways):
            if tier == len(tiers):
                tiers.append([])
            tiers[tier].append((entry.cost, ways[(number + tier + turn) % len(ways)]))
    return [job for tier in tiers for _, job in sorted(tier, key=lambda pair: -pair[0])]


def _ways(entry: Entry) -> list[Job]:
    """Each once, of an entry whose large batch is 1 as well."""
    part = max(1, entry.batch // 4)
    found = [
        Job(entry.name, "forward", "bf16", entry.batch),
        Job(entry.name, "train", "bf16", part),
        Job(entry.name, "forward", "f16", 1),
        Job(entry.name, "forward", "f32", entry.batch),
        Job(entry.name, "forward", "bf16", 1),
        Job(entry.name, "train", "f32", part),
        Job(entry.name, "forward", "f16", entry.batch),
    ]
    found = [job for job in found if job.dtype in entry.dtypes and (entry.trains or job.kind != "train")]
    return list(dict.fromkeys(found))
