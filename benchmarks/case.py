# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A case: what every contender is measured on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from benchmarks.networks import Network

__all__ = ["DTYPES", "Case", "built"]

#: By the names that ``--dtype`` takes.
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Case:
    """One row: ``build()`` gives the full size, ``build_small()`` the one for a quick look."""

    name: str
    group: str
    describe: str
    build: Callable[[], Network]
    build_small: Callable[[], Network]


def built(case: Case, dtype: str, small: bool) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The case's module and inputs, floating point ones in ``dtype``; the same weights and values at every call."""
    torch.manual_seed(0)
    module, make_inputs = (case.build_small if small else case.build)()
    inputs = make_inputs(torch.Generator().manual_seed(1))
    to = DTYPES[dtype]
    return module.to(to), tuple(i.to(to) if i.is_floating_point() else i for i in inputs)
