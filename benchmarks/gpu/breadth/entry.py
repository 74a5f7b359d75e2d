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

    `batch` is the large batch. `trains`: gradients are compared too. `cost`: about how long a job takes beside one of
    cost 1, since long jobs start first.
    """

    name: str
    family: str
    build: Callable[[int], Built]
    batch: int = 8
    trains: bool = False
    cost: float = 1.0


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
    entries: Iterable[Entry], dtypes: Sequence[str] = tuple(DTYPES), kinds: Sequence[str] = ("forward", "train")
) -> list[Job]:
    """All jobs, those first without which a run says least; within such a tier the longest first.

    The tiers: bf16 at the large batch; training in bf16; for each architecture one of f16 with one sample, f32 at the
    large batch, bf16 with one sample, f16 at the large batch and training in f32, in turn; then the rest of these.
    """
    tiers: list[list[tuple[float, Job]]] = [[] for _ in range(4)]
    for number, entry in enumerate(entries):
        part = max(1, entry.batch // 4)
        tiers[0].append((entry.cost, Job(entry.name, "forward", "bf16", entry.batch)))
        others = [Job(entry.name, "forward", "f16", 1), Job(entry.name, "forward", "f32", entry.batch)]
        others += [Job(entry.name, "forward", "bf16", 1), Job(entry.name, "forward", "f16", entry.batch)]
        if entry.trains:
            tiers[1].append((entry.cost, Job(entry.name, "train", "bf16", part)))
            others.append(Job(entry.name, "train", "f32", part))
        turn = others[number % len(others)]
        tiers[2].append((entry.cost, turn))
        tiers[3] += [(entry.cost, job) for job in others if job != turn]
    ordered = [job for tier in tiers for _, job in sorted(tier, key=lambda pair: -pair[0])]
    # Each once, of an entry whose large batch is 1 as well.
    return [job for job in dict.fromkeys(ordered) if job.dtype in dtypes and job.kind in kinds]
