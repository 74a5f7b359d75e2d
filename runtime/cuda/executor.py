# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a plan on one NVIDIA GPU, in PyTorch's current stream and with memory from PyTorch's allocator."""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kiln.runtime.binding import Binding, Segment, StateLayout
from kiln.runtime.cuda.binding import CudaBinder, CudaLayout, SegmentLaunches
from kiln.runtime.cuda.driver import CudaError, driver
from kiln.runtime.executor import Executor
from kiln.runtime.loader import load
from kiln.runtime.plan import Plan

__all__ = ["CudaExecutor"]

_MISALIGNED = -1
_MAX_MAPS = 64
"""Tensor descriptors kept per use, by address."""


class _Misaligned(Exception):
    """An input does not start at a multiple of 16 bytes, as kernels assume; nothing has run yet."""


class CudaExecutor(Executor):
    """A callable that runs one plan on the GPU that the plan names; see :class:`kiln.runtime.executor.Executor`.

    All launches between two ATen calls are one native call. It returns before they have run, as PyTorch's own
    operators do. Workspace is allocated anew at each call, so that calls in different streams never share it, and an
    allocation that fails is PyTorch's OutOfMemoryError.

    Raises CudaError when there is no driver or it refuses a kernel.
    """

    def __init__(self, plan: Plan, constants: Mapping[str, torch.Tensor] | None = None, *, check: bool = False) -> None:
        self._index = torch.device(plan.device).index or 0
        torch.cuda.init()
        with torch.cuda.device(self._index):
            super().__init__(plan, constants, check=check)
        self.constants[:] = [_aligned(c) for c in self.constants]
        self._written_out = self.run
        native = [part for part in self._parts if part.launches]
        read = {p.buffer for part in native for launch in part.launches for p in launch.pointers}
        self._inputs = sorted({b.index for i, b in enumerate(plan.buffers) if b.kind == "input" and i in read})
        self._looks_first = len(native) > 1  # a later segment would find out too late
        self.run = self._run

    # -- what depends on the device ------------------------------------------------------------------

    def _state_layout(self, parts: Sequence[Segment]) -> StateLayout:
        return CudaLayout(self.plan, parts)

    def _load(self, parts: Sequence[Segment]) -> tuple[CudaBinder, Callable[[int], Any] | None]:
        layout = self._layout
        assert isinstance(layout, CudaLayout)
        plan = self.plan
        if not any(part.launches for part in parts):
            return CudaBinder(plan, parts, layout, [], [0, 0, 0, 0]), None
        cuda = driver()
        context = cuda.context(self._index)
        functions = [cuda.load(plan.objects[k.object], k.entry, k.shared) for k in plan.kernels]
        entries = [cuda.address(name) for name in ("cuLaunchKernel", "cuMemsetD8Async", "cuCtxSetCurrent")]
        self._code = load([plan.launcher], ["kiln_run_cuda"])
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(self._code["kiln_run_cuda"])
        current, index = torch._C._cuda_getCurrentRawStream, self._index

        def launch(address: int) -> None:
            status = run(address, current(index))
            if status:
                self._fail(status, address)

        return CudaBinder(plan, parts, layout, functions, [*entries, context]), launch

    def _device_functions(self) -> dict[str, Any]:
        empty = _allocator()
        nothing = torch.empty(0, dtype=torch.uint8, device=self.plan.device)

        def workspace(size: int) -> torch.Tensor:
            return empty((size,), (1,), torch.uint8) if size else nothing

        return {
            "empty": empty,
            "threads": lambda: 1,
            "workspace": workspace,
            "describe": self._describe,
            "aligned": _aligned,
        }

    # -- a call --------------------------------------------------------------------------------------

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        if torch._C._cuda_getDevice() != self._index:
            with torch.cuda.device(self._index):
                return self._run(inputs)
        if self._looks_first:
            return self._written_out(self._aligned_inputs(inputs))
        try:
            return self._written_out(inputs)
        except _Misaligned:
            self._looks_first = True
            return self._written_out(self._aligned_inputs(inputs))

    def _aligned_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs, with a copy of each one that kernels read and that is not aligned."""
        moved = [i for i in self._inputs if inputs[i].data_ptr() & 15]
        if not moved:
            return inputs
        return [_aligned(value) if i in moved else value for i, value in enumerate(inputs)]

    def _describe(self, state: Any, binding: Binding, part: int) -> None:
        """Writes the addresses of the tensor descriptors that a segment's launches need into the state."""
        words = state.words
        for request in binding.device[part].maps:
            address = struct.unpack_from("q", words, 8 * request.base)[0] + request.offset
            found = request.known.get(address)
            if found is None:
                if len(request.known) >= _MAX_MAPS:
                    request.known.clear()
                found = driver().tensor_map(request.format, address, request.shape, request.strides)
                request.known[address] = found
            struct.pack_into("q", words, 8 * request.slot, found[1])

    def _fail(self, status: int, state: int) -> None:
        """Raises for what `kiln_run_cuda` returned."""
        if status == _MISALIGNED:
            raise _Misaligned
        code, number = status & 0xFFFFFFFF, status >> 32
        table = ctypes.c_int64.from_address(state + 8 * StateLayout.TABLE).value
        names = [
            found.names
            for binding in self._bound.values()
            for part, found in binding.device.items()
            if isinstance(found, SegmentLaunches) and binding.tables.get(part) == table
        ]
        entry = names[0][number] if names and number < len(names[0]) else f"launch {number}"
        try:
            driver().check(code, f"graph {self.plan.name!r}, kernel {entry}")
        except CudaError as error:
            raise CudaError(
                error.code, f"{error}; CUDA_LAUNCH_BLOCKING=1 shows where an earlier launch failed"
            ) from None


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with the same strides where it does not start at a multiple of 16 bytes."""
    if not tensor.data_ptr() & 15:
        return tensor
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _allocator() -> Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]:
    """`empty(shape, strides, dtype)` on the current GPU."""
    try:  # a third of the cost of torch.empty_strided; what Inductor's wrappers call
        from torch._C._dynamo.guards import _empty_strided_cuda  # pyright: ignore[reportAttributeAccessIssue]

        return _empty_strided_cuda
    except ImportError:
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
