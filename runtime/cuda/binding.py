# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Bindings of plans for a GPU: launch tables as `kiln_run_cuda` reads them (lowering/host/cuda_launcher.py)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kiln.runtime.binding import Binder, Binding, Segment, StateLayout
from kiln.runtime.memory import aligned
from kiln.runtime.plan import Launch, Plan, TensorMap

__all__ = ["BY_ADDRESS", "CudaBinder", "CudaLayout", "MapRequest", "SegmentLaunches"]

BY_ADDRESS = 1 << 32
"""Flag of a slot: the word there is the address of the parameter, not its value."""

_ALIGNMENT = 128
_CLEAR = 1


class CudaLayout(StateLayout):
    """The state's words, with one more per tensor descriptor: its address, at `maps[segment, launch, pointer]`."""

    def __init__(self, plan: Plan, parts: Sequence[Segment]) -> None:
        super().__init__(plan, parts)
        self.maps: dict[tuple[int, int, int], int] = {}
        for k, part in enumerate(parts):
            for i, launch in enumerate(part.launches):
                for descriptor in launch.descriptors:
                    self.maps[k, i, descriptor.pointer] = self.words
                    self.words += 1


@dataclass
class MapRequest:
    """A tensor descriptor that a segment needs: word `slot` gets the address of one for `state[base] + offset`."""

    slot: int
    base: int
    offset: int
    format: TensorMap
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    known: dict[int, tuple[object, int]] = field(default_factory=dict)  # by address: (memory, address of the map)


@dataclass
class SegmentLaunches:
    """Of a segment's table: what each entry is, for error messages, and the tensor descriptors to make before."""

    names: list[str] = field(default_factory=list)
    maps: list[MapRequest] = field(default_factory=list)


class CudaBinder(Binder):
    """Makes the bindings of a plan whose kernels are the device functions `functions`.

    driver: the addresses of cuLaunchKernel, cuMemsetD8Async and cuCtxSetCurrent, and the context.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Segment],
        layout: CudaLayout,
        functions: Sequence[int],
        driver: Sequence[int],
    ) -> None:
        super().__init__(plan, parts, layout, functions)
        self.maps_at, self.driver = layout.maps, list(driver)

    def table(self, binding: Binding, epoch: int, part: int, threads: int) -> tuple[list[int], int]:
        words: list[int] = []
        most, needed = 1, 0
        found = binding.device[part] = SegmentLaunches()
        for i, launch in enumerate(self.parts[part].launches):
            grid = [binding.values[e] for e in launch.grid]
            if 0 in grid:
                continue
            pointers = [self._address(binding, launch, p) for p in range(len(launch.pointers))]
            for pointer, size in launch.clear:
                if binding.values[size]:
                    words += (_CLEAR, 5, *pointers[pointer], binding.values[size])
                    found.names.append(f"clearing a result of {launch.name}")
            params, scratch = self._params(binding, epoch, launch, list(pointers), grid)
            for number, descriptor in enumerate(launch.descriptors):
                request = MapRequest(
                    self.maps_at[part, i, descriptor.pointer],
                    *pointers[descriptor.pointer],
                    self.plan.kernels[launch.kernel].tensor_maps[number],
                    tuple(binding.values[e] for e in descriptor.shape),
                    tuple(binding.values[e] for e in descriptor.strides),
                )
                params[descriptor.pointer] = (request.slot | BY_ADDRESS, 0)
                found.maps.append(request)
            kernel = self.plan.kernels[launch.kernel]
            flat = [word for pair in params for word in pair]
            words += (self.addresses[launch.kernel], 8 + len(flat), *grid, kernel.threads, kernel.shared, len(params))
            words += flat
            found.names.append(launch.name)
            most, needed = max(most, len(params)), max(needed, scratch)
        checks = self._inputs_of(part)
        return [most, *self.driver, len(checks), *checks, *words, 0], needed

    def _address(self, binding: Binding, launch: Launch, number: int) -> tuple[int, int]:
        """(slot, addend) of a pointer."""
        pointer = launch.pointers[number]
        buffer = self.plan.buffers[pointer.buffer]
        offset = binding.values[pointer.bytes]
        if buffer.kind == "workspace":
            return self.layout.WORKSPACE + buffer.epoch, binding.offset(pointer.buffer) + offset
        return self.layout.slots[pointer.buffer], offset

    def _params(
        self, binding: Binding, epoch: int, launch: Launch, pointers: list[tuple[int, int]], grid: Sequence[int]
    ) -> tuple[list[tuple[int, int]], int]:
        """The parameters of a launch and its bytes of scratch memory.

        Triton's kernels take two more pointers than their source: memory for each program, and the profiler's.
        """
        start = -(-binding.scratch // _ALIGNMENT) * _ALIGNMENT
        mine = -(-aligned(binding.values[launch.scratch]) // _ALIGNMENT) * _ALIGNMENT if launch.has_scratch else 0
        each = self.plan.kernels[launch.kernel].program_scratch
        programs = grid[0] * grid[1] * grid[2] * each
        params = [*pointers, *((0, binding.values[s]) for s in launch.symbols)]
        base = self.layout.WORKSPACE + epoch
        if launch.has_scratch:
            params.append((base, start))
        params.append((base, start + mine) if each else (0, 0))
        params.append((0, 0))
        return params, (start - binding.scratch + mine + programs) if mine + programs else 0

    def _inputs_of(self, part: int) -> list[int]:
        """Slots of the graph's inputs that a segment reads first: nothing else may be unaligned."""
        fresh = self.layout.fresh[part]
        return [self.layout.slots[b] for b in fresh if self.plan.buffers[b].kind == "input"]
