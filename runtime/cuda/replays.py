# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches at addresses seen before, replayed as one CUDA graph: a call then costs one launch in place of hundreds.

All that the launches of a segment depend on are the words of the call's state in front of its tensor maps: the table
(sizes, kernels, symbols) and the addresses of workspace, inputs and results. When they come for the third time, the
driver records what the table launches, into a stream that nothing else uses, and from then on calls with the same words
launch the recording in their own stream. PyTorch's allocator gives a loop's calls the same memory again and again.

A recording owns no memory, copies nothing and keeps nothing alive but the binding of its sizes. It is of the addresses
that a call has just been given, so whatever frees, moves or shares memory between calls needs no care: other addresses
are other words. One recording does not overlap with itself; the driver orders its launches.
"""

import ctypes
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kiln.runtime.cuda.driver import CudaError
from kiln.runtime.rules import launch_rules

__all__ = ["LEAST_LAUNCHES", "GraphDriver", "LaunchReplays"]

log = logging.getLogger("kiln")

LEAST_LAUNCHES = launch_rules().recorded_launches
"""Launches of a segment that pay for a recording."""

_SIGHTINGS = launch_rules().recorded_sightings
"""After how many calls the same words are worth a recording; twice as many for each `_KEPT` made."""

_KEPT = 4
"""Recordings that a plan keeps of each segment; beyond, the one not used for longest goes."""

_REMEMBERED = 16
"""Words of each segment without a recording of which it is counted how often they came."""

_REFUSALS = 4
"""Recordings that the driver has refused when no more are tried."""

_MOST_DOUBLINGS = 20


class GraphDriver(Protocol):
    """What the driver does for recordings (:class:`kiln.runtime.cuda.driver.Driver`)."""

    def record(self, context: int, code: int, state: int) -> int:
        """An executable graph of what `kiln_run_cuda`, at the address `code`, launches for a state."""
        ...

    def graph_functions(self) -> tuple[Callable[[int], int], Callable[[int, int], int], Callable[[int], Any]]:
        """cuCtxSetCurrent(context), cuGraphLaunch(graph, stream), cuGraphExecDestroy(graph)."""
        ...

    def check(self, code: int, what: str) -> None:
        """Raise RuntimeError, which names `what`, for a code of the driver other than 0."""


@dataclass
class _Recording:
    graph: int
    keep: Any  # what the table and the library's calls in it point to


class LaunchReplays:
    """Stands for `run(state, stream)`, which is `kiln_run_cuda` at the address `code`, with its result. Thread-safe.

    words: how many words of the state, behind the first, launches depend on. segments: how many runs of launches of a
    call are long enough. owner: `owner(table)` -> how many launches
    the table at an address is for, and what keeps it alive; None for a table that is not known any more.
    """

    def __init__(
        self,
        name: str,
        cuda: GraphDriver,
        context: int,
        code: int,
        run: Callable[[int, int], int],
        words: int,
        owner: Callable[[int], tuple[int, Any] | None],
        segments: int = 1,
    ) -> None:
        self._name, self._cuda, self._context, self._run, self._owner = name, cuda, context, run, owner
        self._code, self._refused = code, 0
        self._bytes = 8 * words
        self._kept, self._remembered = _KEPT * segments, _REMEMBERED * segments
        self._set_context, self._launch, self._destroy = cuda.graph_functions()
        self._is_recorded = torch._C._cuda_isCurrentStreamCapturing
        self._lock = threading.Lock()
        self._recordings: OrderedDict[bytes, _Recording] = OrderedDict()
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self.made = 0
        self.reason = ""
        """Why nothing is recorded any more, if so."""
        # Not when the process ends: CUDA may be gone by then.
        weakref.finalize(self, _destroy_all, self._destroy, self._recordings).atexit = False

    def __call__(self, state: int, stream: int) -> int:
        """Run the launches of a state on a stream, by a recorded graph if there is one; returns the status, 0 if
        good.
        """
        words = ctypes.string_at(state + 8, self._bytes)
        if words not in self._recordings:
            status = self._run(state, stream)
            if not status and not self.reason:
                self._count(words, state)
            return status
        if self._is_recorded():  # the driver takes no graphs there
            return self._run(state, stream)
        with self._lock:
            found = self._recordings.get(words)
            if found is None:  # another thread's recording took its place
                return self._run(state, stream)
            self._recordings.move_to_end(words)
            code = self._set_context(self._context) or self._launch(found.graph, stream)
        if code:
            self._cuda.check(code, f"graph {self._name!r}, replaying its launches")
        return 0

    def _count(self, words: bytes, state: int) -> None:
        """Takes down that the words came, and records their launches if that was often enough."""
        with self._lock:
            seen = self._seen.pop(words, 0) + 1
            if seen < _SIGHTINGS << min(self.made // self._kept, _MOST_DOUBLINGS):
                self._seen[words] = seen
                if len(self._seen) > self._remembered:
                    self._seen.popitem(last=False)
            elif words not in self._recordings and not self._is_recorded():
                self._record(words, state)

    def _record(self, words: bytes, state: int) -> None:
        owned = self._owner(ctypes.c_int64.from_address(state + 8).value)
        if owned is None or owned[0] < LEAST_LAUNCHES:
            return
        try:
            graph = self._cuda.record(self._context, self._code, state)
        except CudaError as error:
            # Another thread's wait for the whole GPU may have been in the way.
            self._refused += 1
            if self._refused >= _REFUSALS:
                self.reason = str(error)
                log.info("graph %s is launched kernel by kernel: %s", self._name, error)
            return
        self.made += 1
        if len(self._recordings) >= self._kept:
            self._destroy(self._recordings.popitem(last=False)[1].graph)
        self._recordings[words] = _Recording(graph, owned[1])


def _destroy_all(destroy: Callable[[int], Any], recordings: "OrderedDict[bytes, _Recording]") -> None:
    """The driver frees one that still runs when it is done."""
    while recordings:
        destroy(recordings.popitem()[1].graph)
