# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Guard zones: bytes in front of and behind each buffer of a plan, which no step may change.

They find what no access check sees: vector code of the CPU, functions of libraries, ATen calls that write past
their results. The graph's inputs, constants and results that ATen allocates have none: their memory is not the plan's.
"""

import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch

from kiln.errors import AccessError
from kiln.runtime.binding import Binding, Segment, segments
from kiln.runtime.memory import ALIGNMENT
from kiln.runtime.plan import Launch, Plan

__all__ = ["PATTERN", "ZONE", "Zones"]

ZONE = ALIGNMENT
"""Bytes of each zone: a vector of the widest kind, and buffers stay aligned."""
PATTERN = 0xC3
"""No byte of a small integer, of a common float or of poison."""


class Zones:
    """The guard zones of one plan on a CPU. zone: bytes of each."""

    zone = ZONE

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parts: list[Segment] = segments(plan, alone=True)
        self._tensors: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}  # memory of tensors, and their bytes
        self._lock = threading.Lock()

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """`torch.empty_strided` in memory with zones; the tensor's storage begins behind the first one."""
        if 0 in shape:
            return torch.empty_strided(shape, strides, dtype=dtype)
        size = (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * dtype.itemsize
        # NumPy's memory is aligned to 16 bytes, which is not enough for what kernels may count on.
        memory = np.full(size + 3 * ZONE, PATTERN, dtype=np.uint8)
        start = -memory.ctypes.data % ZONE + ZONE
        memory = memory[start - ZONE : start + size + ZONE]
        tensor = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=ZONE)
        whole = size // dtype.itemsize * dtype.itemsize
        tensor = tensor[:whole].view(dtype).as_strided(shape, strides)
        with self._lock:
            self._tensors[memory.ctypes.data] = weakref.ref(memory), size
        return tensor

    def before(self, part: int, workspaces: Sequence[torch.Tensor | None], binding: Binding) -> None:
        """Fills the zones of the workspace's buffers that are in use at a step: elsewhere other buffers lie there."""
        for workspace, start, size, _ in self._in_use(part, workspaces, binding):
            workspace[start - ZONE : start].fill_(PATTERN)
            workspace[start + size : start + size + ZONE].fill_(PATTERN)

    def after(self, part: int, workspaces: Sequence[torch.Tensor | None], binding: Binding) -> None:
        """Raises AccessError if a step has changed a zone."""
        for workspace, start, size, buffer in self._in_use(part, workspaces, binding):
            self._look(part, workspace[start - ZONE : start + size + ZONE].numpy(), size, self._name(buffer))
        with self._lock:
            known = list(self._tensors.items())
        for key, (reference, size) in known:
            memory = reference()
            if memory is not None:
                self._look(part, memory, size, f"a tensor of {size} bytes")
            else:
                with self._lock:
                    if self._tensors.get(key, (None,))[0] is reference:
                        del self._tensors[key]

    def _in_use(
        self, part: int, workspaces: Sequence[torch.Tensor | None], binding: Binding
    ) -> list[tuple[torch.Tensor, int, int, int]]:
        """(workspace, first byte, bytes, buffer) of each workspace buffer that holds something at a step."""
        step, found = self._parts[part].steps[0], list[tuple[torch.Tensor, int, int, int]]()
        for i, buffer in enumerate(self._plan.buffers):
            if buffer.kind != "workspace" or not buffer.first <= step <= buffer.last:
                continue
            memory = workspaces[buffer.epoch] if buffer.epoch < len(workspaces) else None
            size = binding.values[buffer.bytes]
            if memory is not None and size > 0:
                found.append((memory, binding.offset(i), size, i))
        return found

    def _look(self, part: int, memory: np.ndarray, size: int, name: str) -> None:
        for zone, at, side in (
            (memory[:ZONE], -ZONE, "in front of its start"),
            (memory[ZONE + size :], size, "behind its end"),
        ):
            changed = np.flatnonzero(zone != PATTERN)
            if changed.size:
                zone[...] = PATTERN  # one error for each
                place = at + int(changed[0])
                raise AccessError(f"{self._step(part)} writes at byte {place} of {name}, {side}: it has {size} bytes")

    def _step(self, part: int) -> str:
        step = self._plan.steps[self._parts[part].steps[0]]
        if isinstance(step, Launch):
            source = f" ({step.source})" if step.source else ""
            return f"kernel @{self._plan.kernels[step.kernel].name}{source}"
        return f"the call of {step.op}"

    def _name(self, number: int) -> str:
        buffer = self._plan.buffers[number]
        return f"buffer {number} (workspace, {buffer.dtype}[{', '.join(map(str, buffer.shape))}])"
