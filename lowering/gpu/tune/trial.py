# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A GPU kernel with one schedule after another, run on operands of its real sizes and layouts."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules import Schedule, to_attribute
from kiln.errors import KilnError
from kiln.lowering.gpu.emit import emit_kernel
from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.lowering.host.elements import dtype_name
from kiln.lowering.host.gpu_kernels import GpuCode, start_gpu_kernel
from kiln.lowering.host.kernels import fusion_key, kernel_name
from kiln.lowering.tune.operands import KnownTensors, is_close, random_values
from kiln.runtime.cuda.executor import CudaExecutor
from kiln.runtime.plan import Buffer, Expr, Launch, Plan, Pointer

__all__ = ["MAX_BYTES", "GpuTrial", "Started", "number_of_sets"]

MAX_BYTES = 4 << 30
_CACHE_BYTES = 128 << 20
"""Operands that a call should find in memory, not in the GPU's second-level cache: more than twice the largest one."""
_MOST_SETS = 8


@dataclass(frozen=True)
class Started:
    """A kernel that Triton is compiling: its schedule, the set it is in, and how it is launched."""

    schedule: Schedule
    code: GpuCode
    launch: Launch


class GpuTrial:
    """Candidates for one `kiln.fusion` of known sizes, and the operands and results that they share.

    There are several sets of these, as many as the cache does not hold, through which calls go in turn; they are made
    when the first kernel is loaded. What is in them: see `random_values`.

    Raises:
        UnsupportedError: the kernel cannot be run by itself, with the reason.
    """

    def __init__(self, fusion: ir.OpView, device: str, arch: str) -> None:
        self.fusion, self.device, self.arch = fusion, device, arch
        self.known = KnownTensors.of(fusion, MAX_BYTES)
        self._count = len(self.known.body.tensors)
        self._expected: list[torch.Tensor] | None = None

    @functools.cached_property
    def sets(self) -> list[list[torch.Tensor]]:
        """Operands, then results, of each call in turn."""
        generator = torch.Generator()
        generator.seed()
        sizes = list(zip(self.known.elements, self.known.dtypes, strict=True))
        total = sum(n * dtype.itemsize for n, dtype in sizes)
        made: list[list[torch.Tensor]] = []
        for _ in range(number_of_sets(total)):
            operands = [random_values(n, dtype, generator, self.device) for n, dtype in sizes[: self._count]]
            results = [torch.zeros(n, dtype=dtype, device=self.device) for n, dtype in sizes[self._count :]]
            made.append([*operands, *results])
        return made

    def start(self, schedule: Schedule) -> Started:
        """Emit the kernel with a schedule, and have Triton compile it in another thread.

        Raises KilnError where it cannot be emitted.
        """
        attributes = self.fusion.operation.attributes
        saved = attributes["schedule"] if "schedule" in attributes else None
        attributes["schedule"] = to_attribute(schedule)
        try:
            name = kernel_name(self.fusion.operation, fusion_key(self.fusion.operation))
            code = start_gpu_kernel(self.fusion, emit_kernel(self.fusion, name), name, self.arch)
        finally:
            del attributes["schedule"]
            if saved is not None:
                attributes["schedule"] = saved
        pointers = tuple(Pointer(i) for i in range(len(self.known.types)))
        results = len(pointers) - self._count
        fields = code.launch_fields(_number)
        return Started(schedule, code, Launch(0, pointers, (), results=results, name="trial", **fields))

    def prepare(self, started: Started) -> Callable[[], None]:
        """Load the kernel, and check what it computes. The result launches it once.

        The results of the first schedule are those that others are compared with.

        Raises:
            KilnError: Triton or the driver refuses it, or it computes something else.
            torch.OutOfMemoryError: the GPU has no room for the operands.
        """
        kernel, data = started.code.finish(0, ir.StringAttr(self.fusion.operation.attributes["kind"]).value)
        buffers = [
            Buffer("input", dtype_name(t), (n,), (1,), n * dtype.itemsize, index=i, first=0, last=0)
            for i, (t, n, dtype) in enumerate(
                zip(self.known.types, self.known.elements, self.known.dtypes, strict=True)
            )
        ]
        plan = Plan(
            "trial",
            len(buffers),
            self.device,
            buffers=buffers,
            kernels=[kernel],
            steps=[started.launch],
            offsets={},
            launcher=cuda_launcher_object(),
            objects=[data],
        )
        call = CudaExecutor(plan).run
        self._check(call)
        turns = cycle(self.sets)

        def run() -> None:
            call(next(turns))

        return run

    def _check(self, call: Callable[[list[torch.Tensor]], Any]) -> None:
        first = self.sets[0]
        results = first[self._count :]
        for result in results:
            result.zero_()
        call(first)
        if self._expected is None:
            self._expected = [result.clone() for result in results]
            return
        for mine, expected in zip(results, self._expected, strict=True):
            if not is_close(mine, expected):
                raise KilnError("it computes something else than the default")


def number_of_sets(total: int) -> int:
    """Sets of this many bytes that calls go through in turn."""
    return max(1, min(_MOST_SETS, -(-_CACHE_BYTES // max(total, 1))))


def _number(text: str, result: int) -> Expr:
    """The value of an affine map's result, which depends on no symbol."""
    value = affine.constant_of(ir.AffineMapAttr(ir.Attribute.parse(text)).value.results[result])
    assert value is not None, "sizes are known"
    return value
