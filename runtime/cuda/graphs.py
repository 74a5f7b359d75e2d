# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``mode="reduce-overhead"``: a graph's calls recorded once, then replayed as one CUDA graph.

A recording is made at the second call with given sizes. Inputs that were at the same addresses in both calls
(parameters) or are results of a recording (what a forward graph saves for its backward graph) are read where they are,
the others are copied to memory of the recording first. An input that later comes at another address makes a new
recording, in which it is copied, unless it is a recording's result there.

Outputs are the recording's memory, which the next replay overwrites: a call that finds one of them alive runs without
the recording, and from then on that output is copied to memory of the caller's (the loss of ``loss = step(x)`` in a
loop lives until the next call is over). Nothing that a caller holds ever changes under it. No two recordings share
memory: what is workspace for one would else be what another one's caller holds.
"""

import logging
import threading
import weakref
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

_MAX_MISSES = 3
"""Calls in a row that run without a recording because what it reads in another one's memory is not there."""

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
    """Recordings as CUDA graphs on one GPU, each with a memory pool of its own."""

    def __init__(self, device: int) -> None:
        self._device = device

    def place(self) -> object:
        """The current stream, by its handle."""
        return torch._C._cuda_getCurrentRawStream(self._device)

    def record(self, work: Callable[[], list[Any]]) -> tuple[Callable[[], None], list[Any]]:
        """Record `work` as a CUDA graph; returns its replay and the static outputs."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
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


@dataclass(eq=False)
class _Recording:
    replay: Callable[[], None]
    inputs: dict[int, torch.Tensor]  # memory that inputs are copied to
    outputs: list[Any]  # as recorded; None for views of inputs
    views: "dict[int, _View]"  # by number of the output
    storages: list[torch.UntypedStorage]  # the outputs' memory
    fixed: "list[tuple[int, int]]"  # inputs that are read where they are, by number, and their addresses
    _handles: list[int] = field(init=False)
    _uses: list[int] = field(init=False)  # by storage: how many references nobody else holds
    _places: list[int] = field(init=False)
    _addresses: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._handles = [storage._cdata for storage in self.storages]
        self._uses = [_count(handle) for handle in self._handles]
        self._places = [i for i, _ in self.fixed]
        self._addresses = [address for _, address in self.fixed]

    def reads(self, inputs: Sequence[Any]) -> bool:
        """Whether these inputs are where the recording reads them, or are copied."""
        return [inputs[i].data_ptr() for i in self._places] == self._addresses

    def in_use(self) -> set[int]:
        """Handles of the memory of outputs that a caller still has."""
        counts = [_count(handle) for handle in self._handles]
        if counts == self._uses:
            return set()
        return {handle for handle, n, own in zip(self._handles, counts, self._uses, strict=True) if n > own}


_count: Callable[[int], int] = torch._C._storage_Use_Count

_recordings = weakref.WeakSet[_Recording]()
"""All that are alive, in any graph."""

_among_recordings = threading.Lock()


def _recorded_memory() -> set[int]:
    """Addresses of the memory in which recordings leave their results."""
    with _among_recordings:
        return {storage.data_ptr() for recording in _recordings for storage in recording.storages}


@dataclass
class _Sizes:
    """What is known of calls with given sizes in a given place."""

    addresses: list[int]
    copied: set[int] = field(default_factory=set[int])  # inputs
    kept: set[int] = field(default_factory=set[int])  # outputs that callers were found to keep
    shared: set[int] = field(default_factory=set[int])  # inputs that are results of a recording
    recording: _Recording | None = None
    recorded: int = 0
    misses: int = 0


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
        known = self._sizes.get(key)
        if known is None:
            while len(self._sizes) >= _MAX_SIZES:
                del self._sizes[next(iter(self._sizes))]
            self._sizes[key] = _Sizes([inputs[i].data_ptr() for i in self._tensors])
            return self._plain(inputs)
        if known.recording is None or not known.recording.reads(inputs):
            addresses = [inputs[i].data_ptr() for i in self._tensors]
            moved = {i for i, a, b in zip(self._tensors, addresses, known.addresses, strict=True) if a != b}
            if not self._may_record(known, moved):
                return self._plain(inputs)
            known.recording = None  # its memory can serve the next one
            memory = _recorded_memory()
            known.shared = {i for i in self._tensors if inputs[i].untyped_storage().data_ptr() in memory}
            known.copied |= moved - known.shared
            known.addresses = addresses
            if not self._record(known, inputs):
                return self._plain(inputs)
        recording = known.recording
        assert recording is not None
        known.misses = 0
        if in_use := recording.in_use():
            known.kept |= {i for i in self._own if recording.outputs[i].untyped_storage()._cdata in in_use}
            return self._plain(inputs)
        for i in known.copied:
            recording.inputs[i].copy_(inputs[i])
        recording.replay()
        for i in self._written:
            if i in known.copied:
                inputs[i].copy_(recording.inputs[i])
        return self._outputs(recording, inputs, known.kept)

    def _may_record(self, known: _Sizes, moved: set[int]) -> bool:
        """Whether a call whose inputs have moved is worth another recording."""
        if known.recording is None:
            return known.recorded < _MAX_RECORDINGS
        known.misses += 1
        if known.misses < _MAX_MISSES and moved - known.copied <= known.shared:
            return False  # the recording in whose memory they were was not used this time
        return known.recorded < _MAX_RECORDINGS and not known.recording.in_use()

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
        storages = [outputs[i].untyped_storage() for i in self._own]
        fixed = [(i, a) for i, a in zip(self._tensors, known.addresses, strict=True) if i not in known.copied]
        known.recording = _Recording(replay, own, outputs, views, storages, fixed)
        with _among_recordings:
            _recordings.add(known.recording)
        return True

    def _outputs(self, recording: _Recording, inputs: Sequence[Any], kept: set[int]) -> list[Any]:
        """The results for the caller: new tensors on the recording's memory, on the caller's inputs, or copies."""
        results = [value.detach() if isinstance(value, torch.Tensor) else value for value in recording.outputs]
        for i, view in recording.views.items():
            results[i] = view.of(inputs[view.input])
        copies: dict[int, torch.Tensor] = {}
        for i in kept:
            value = recording.outputs[i]
            if id(value) not in copies:
                copies[id(value)] = _empty_like(value).copy_(value)
            results[i] = copies[id(value)]
        return results


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory with the same strides."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)


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
