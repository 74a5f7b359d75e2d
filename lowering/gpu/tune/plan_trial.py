# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A small scheduled module as the compiler would run it: its plan, on tensors that are made for it."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import torch
from torch_mlir import ir

from kiln.errors import UnsupportedError
from kiln.lowering.gpu.tune.trial import MAX_BYTES, number_of_sets
from kiln.lowering.host.elements import dtype_name
from kiln.lowering.host.layout import HostGraph
from kiln.lowering.options import KernelsAlone
from kiln.lowering.tune.operands import random_values
from kiln.runtime.cuda.executor import CudaExecutor

__all__ = ["PlanTrial"]


class PlanTrial:
    """Tensors for the arguments of a module's @main, of known sizes and strides, and plans that run on them.

    Raises UnsupportedError where they are too large.
    """

    def __init__(self, module: ir.Module, device: str, arch: str) -> None:
        self.device, self.arch = device, arch
        function = next(op for op in module.body if op.operation.name == "func.func")
        graph = HostGraph(function)
        generator = torch.Generator()
        generator.seed()
        places: list[tuple[list[int], list[int], torch.dtype]] = []
        for argument in function.regions[0].blocks[0].arguments:
            layout = graph.strided_layout(argument)
            sizes, strides = ([ir.AffineConstantExpr(e).value for e in x] for x in (layout.shape, layout.strides))
            places.append((sizes, strides, getattr(torch, dtype_name(argument.type))))
        total = sum(_reach(sizes, strides) * dtype.itemsize for sizes, strides, dtype in places)
        if total > MAX_BYTES:
            raise UnsupportedError("func.func", "", f"operands of more than {MAX_BYTES >> 30} GiB")
        self.sets: list[list[torch.Tensor]] = [
            [
                random_values(_reach(sizes, strides), dtype, generator, device).as_strided(sizes, strides)
                for sizes, strides, dtype in places
            ]
            for _ in range(number_of_sets(total))
        ]

    def prepare(self, module: ir.Module) -> tuple[Callable[[], None], list[torch.Tensor]]:
        """Compile a module with these arguments: what runs it once, and what it computes of the first tensors.

        Raises KilnError where a kernel does not compile, and whatever a call of ATen raises.
        """
        from kiln.lowering.gpu.target import GpuTarget
        from kiln.passes.pipelines import pipeline
        from kiln.passes.plan_host import compiled_plan

        kernels = pipeline(GpuTarget(self.device, self.arch), KernelsAlone(), first="emit", last="lower")
        plan = compiled_plan(module, kernels, self.device, name="trial")
        run: Callable[[Sequence[Any]], list[Any]] = CudaExecutor(plan).run
        turns = cycle(self.sets)

        def once() -> None:
            run(next(turns))

        return once, run(self.sets[0])


def _reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of the memory that a tensor lies in."""
    return sum((n - 1) * step for n, step in zip(sizes, strides, strict=True)) + 1
