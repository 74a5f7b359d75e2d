# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``mode="reduce-overhead"``: a graph's calls recorded once, then replayed as one CUDA graph.

A recording is made at the second call with given sizes. Inputs that were at the same addresses in both calls
(parameters, activations of other recordings) are read where they are, the others are copied to memory of the
recording first. An input that later comes at another address makes a new recording, in which it is copied.

Outputs are the recording's memory, which the next replay overwrites: as long as one of them is alive, calls run
without the recording. Nothing that a caller holds ever changes under it.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from kiln.runtime.plan import AtenStep, Launch, Plan

__all__ = ["Capture", "CudaCapture", "GraphedRun"]

log = logging.getLogger("kiln")

_MAX_RECORDINGS = 8
"""How often one binding of sizes is recorded anew before it is left alone."""

_MAX_SIZES = 16
"""Sizes of which recordings are kept."""

Run = Callable[[Sequence[Any]], list[Any]]


class Capture(Protocol):
    """How work is recorded: `record` runs `work` (whose effects may be undefined) and returns what replays it."""

    def record(self, work: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        """Record the launches of `work`; returns what replays them, and what `work` returned."""
        ...

    def place(self) -> object:
        """Where calls run now: recordings serve calls in the place where they were made."""
        ...


class CudaCapture:
    """Recordings as CUDA graphs on one GPU. Those of one stream share a memory pool: they never run at once."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._pools: dict[object, Any] = {}

    def place(self) -> object:
        """The current stream, by its handle: graphs of different streams share no memory."""
        return torch._C._cuda_getCurrentRawStream(self._device)

    def record(self, work: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        """Record `work` as a CUDA graph in the stream's pool; returns its replay and the static outputs."""
        place = self.place()
        if place not in self._pools:
            self._pools[place] = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        pool = self._pools[place]
        with torch.cuda.device(self._device), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            outputs = work()
        return graph.replay, outputs


@dataclass(frozen=True)
class _View:
    """An output that is an input, or a part of it."""

    input: int
    is_whole: bool
    size: Sequence[int]
    stride: Sequence[int]
    offset: int

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.is_whole:
            return tensor
        return tensor.as_strided(self.size, self.stride, tensor.storage_offset() + self.offset)


@dataclass
class _Recording:
    replay: Callable[[], None]
    inputs: dict[int, torch.Tensor]  # memory that inputs are copied to
    outputs: list[Any]  # as recorded; None for views of inputs
    views: "dict[int, _View]"  # by number of the output
    uses: list[int]  # references to the outputs' memory when nobody else has one


@dataclass
class _Sizes:
    """What is known of calls with given sizes in a given place."""

    addresses: list[int]
    copied: set[int] = field(default_factory=set[int])
    recording: _Recording | None = None
    recorded: int = 0


class GraphedRun:
    """Runs a plan through recordings. `run` is the executor's; `reason` says why nothing is recorded, if so.

    May be called from several threads; one that finds a recording in use runs without.
    """

    def __init__(self, plan: Plan, run: Run, capture: Capture) -> None:
        self._plan, self._plain, self._capture = plan, run, capture
        self.reason = _obstacle(plan)
        self._tensors = sorted({b.index for b in plan.buffers if b.kind == "input"})
        self._written = sorted(_written_inputs(plan))
        self._views = {
            i: plan.buffers[o.tensor.buffer].index
            for i, o in enumerate(plan.outputs)
            if o.tensor is not None and plan.buffers[o.tensor.buffer].kind == "input"
        }
        self._own = [
            i
            for i, o in enumerate(plan.outputs)
            if o.tensor is not None and plan.buffers[o.tensor.buffer].kind not in ("input", "constant")
        ]
        self._sizes: dict[object, _Sizes] = {}
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Results for these inputs: by a recorded graph if there is one, launch by launch else."""
        if self.reason or not self._lock.acquire(blocking=False):
            return self._plain(inputs)
        try:
            return self._graphed(inputs)
        finally:
            self._lock.release()

    def _graphed(self, inputs: Sequence[Any]) -> list[Any]:
        key = (self._capture.place(), *self._symbols(inputs))
        addresses = [inputs[i].data_ptr() for i in self._tensors]
        known = self._sizes.get(key)
        if known is None:
            while len(self._sizes) >= _MAX_SIZES:
                del self._sizes[next(iter(self._sizes))]
            self._sizes[key] = _Sizes(addresses)
            return self._plain(inputs)
        moved = {i for i, a, b in zip(self._tensors, addresses, known.addresses, strict=True) if a != b}
        if known.recording is None or not moved <= known.copied:
            if known.recorded >= _MAX_RECORDINGS or (known.recording is not None and self._in_use(known.recording)):
                return self._plain(inputs)
            known.recording = None  # its memory can serve the next one
            known.copied |= moved
            known.addresses = addresses
            if not self._record(known, inputs):
                return self._plain(inputs)
        recording = known.recording
        assert recording is not None
        if self._in_use(recording):
            return self._plain(inputs)
        for i in known.copied:
            recording.inputs[i].copy_(inputs[i])
        recording.replay()
        for i in self._written:
            if i in known.copied:
                inputs[i].copy_(recording.inputs[i])
        return self._outputs(recording, inputs)

    def _symbols(self, inputs: Sequence[Any]) -> list[int]:
        found: list[int] = []
        for symbol in self._plan.symbols:
            if symbol.source == "input":
                found.append(int(inputs[symbol.input]))
            elif symbol.source in ("size", "stride"):
                found.append(getattr(inputs[symbol.input], symbol.source)(symbol.dim))
        return found

    def _record(self, known: _Sizes, inputs: Sequence[Any]) -> bool:
        """Records the work for these inputs; False, and a reason, if that is impossible."""
        own = {i: _empty_like(inputs[i]) for i in known.copied}
        given = [own.get(i, value) for i, value in enumerate(inputs)]
        try:
            replay, outputs = self._capture.record(lambda: self._plain(given))
        except Exception as error:  # noqa: BLE001 - whatever cannot be recorded can still be run
            self.reason = f"{type(error).__name__}: {error}"
            log.info("graph %s runs without CUDA graphs: %s", self._plan.name, self.reason)
            return False
        known.recorded += 1
        views: dict[int, _View] = {}
        for i, source in self._views.items():
            value, base = outputs[i], inputs[source] if source not in own else own[source]
            offset = value.storage_offset() - base.storage_offset()
            views[i] = _View(source, value is base, value.size(), value.stride(), offset)
            outputs[i] = None  # the caller's memory is not kept alive
        known.recording = _Recording(replay, own, outputs, views, [])
        known.recording.uses = [_references(outputs[i]) for i in self._own]
        return True

    def _in_use(self, recording: _Recording) -> bool:
        """Whether a caller still has an output of the last replay."""
        outputs = recording.outputs
        return any(_references(outputs[i]) > n for i, n in zip(self._own, recording.uses, strict=True))

    def _outputs(self, recording: _Recording, inputs: Sequence[Any]) -> list[Any]:
        """The results for the caller: new tensors on the recording's memory, or on the caller's inputs."""
        results: list[Any] = []
        for i, value in enumerate(recording.outputs):
            view = recording.views.get(i)
            if view is not None:
                results.append(view.of(inputs[view.input]))
            else:
                results.append(value.detach() if isinstance(value, torch.Tensor) else value)
        return results


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory with the same strides."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _references(tensor: torch.Tensor) -> int:
    """How many tensors share the tensor's memory."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _written_inputs(plan: Plan) -> set[int]:
    """Inputs that kernels write to."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    written = {p.buffer for step in launches for p in step.pointers[len(step.pointers) - step.results :]}
    return {plan.buffers[b].index for b in written if plan.buffers[b].kind == "input"}


def _obstacle(plan: Plan) -> str:
    """Why a plan cannot be recorded; empty if nothing is known to be in the way."""
    for step in plan.steps:
        if isinstance(step, AtenStep) and step.sizes:
            return f"{step.name} returns sizes that are known when it has run"
        if isinstance(step, AtenStep) and step.elsewhere:
            return f"{step.name} computes on another device"
    return ""
