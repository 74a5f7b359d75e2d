# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Recordings of launches themselves: which are kept, what goes with them, and what the driver is asked for; without a
GPU, emulated or not."""

import array
import ctypes
import threading
from typing import Any

import pytest
import torch

import kiln.runtime.cuda.replays as replays
from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.runtime.cuda.driver import CudaError, Driver
from kiln.runtime.cuda.replays import LaunchReplays
from kiln.runtime.loader import load


class Graphs:
    """A driver whose graphs are the states that they were recorded from."""

    def __init__(self) -> None:
        self.alive: list[int] = []
        self.made = self.code = 0

    def record(self, context: int, code: int, state: int) -> int:
        assert code == 4711
        self.made += 1
        self.alive.append(self.made)
        return self.made

    def graph_functions(self) -> Any:
        return lambda context: 0, self._launch, self.alive.remove

    def _launch(self, graph: int, stream: int) -> int:
        assert graph in self.alive
        return self.code

    def check(self, code: int, what: str) -> None:
        if code:
            raise CudaError(code, what)


class States:
    """States of two words behind the first; `run` counts the launches in streams other than the recording's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False, raising=False)
        self.graphs, self.launched = Graphs(), 0
        self.replays = LaunchReplays(
            "g", self.graphs, 1, 4711, self._run, 2, lambda table: (replays.LEAST_LAUNCHES, table)
        )

    def _run(self, state: int, stream: int) -> int:
        self.launched += stream >= 0
        return 0

    def call(self, address: int) -> None:
        words = array.array("q", [0, 5, address, 99])
        assert self.replays(words.buffer_info()[0], 7) == 0


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> States:
    return States(monkeypatch)


def test_only_so_many_are_kept_and_the_least_used_goes(states):
    for address in range(4):
        for _ in range(3):
            states.call(address)
    states.call(0)  # used last
    for _ in range(6):  # twice as often as before
        states.call(4)
    assert states.graphs.alive == [1, 3, 4, 5]
    before = states.launched
    states.call(0)
    assert states.launched == before
    states.call(1)
    assert states.launched == before + 1


def test_addresses_that_keep_changing_are_recorded_more_and_more_seldom(states):
    for address in range(2000):
        for _ in range(3):
            states.call(address)
    assert states.graphs.made == 4


def test_addresses_that_never_come_again_are_forgotten(states):
    for address in range(2000):
        states.call(address)
    assert not states.graphs.made and len(states.replays._seen) <= 16


def test_a_replay_that_fails_is_an_error(states):
    for _ in range(3):
        states.call(0)
    states.graphs.code = 719
    with pytest.raises(CudaError, match="graph 'g', replaying its launches"):
        states.call(0)


def test_recordings_go_with_their_owner(states):
    for _ in range(3):
        states.call(0)
    assert states.graphs.alive
    del states.replays
    assert not states.graphs.alive


def test_threads(states):
    def work(seed: int) -> None:
        for call in range(3000):
            states.call((call * (seed + 1)) % 7)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states.graphs.alive) <= 4 and states.graphs.made >= 4


_P = ctypes.c_void_p
_TYPES: dict[str, list[Any]] = {
    "cuStreamCreate": [_P, ctypes.c_uint], "cuStreamBeginCapture_v2": [_P, ctypes.c_int], "cuStreamEndCapture": [_P, _P],
    "cuGraphInstantiateWithFlags": [_P, _P, ctypes.c_ulonglong], "cuGetErrorString": [ctypes.c_int, _P],
}  # fmt: skip


class Library:
    """The driver's functions for recordings: `calls` names them, `codes` are what they return if not 0."""

    def __init__(self, **codes: int) -> None:
        self.calls: list[str] = []
        self.codes = codes
        self.made = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: int) -> int:
            self.calls.append(name)
            place = {"cuStreamCreate": 0, "cuGraphInstantiateWithFlags": 0, "cuStreamEndCapture": 1}
            if name in place and name not in self.codes:
                self.made += 1
                ctypes.c_int64.from_address(arguments[place[name]]).value = self.made
            return self.codes.get(name, 0)

        found = ctypes.CFUNCTYPE(ctypes.c_int, *_TYPES.get(name, [_P]))(call)
        setattr(self, name, found)
        return found


class Recorder:
    """The driver, and the state of a plan that launches one kernel with the `streams` that it was launched in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **codes: int) -> None:
        self.library, self.streams = Library(**codes), list[int]()
        monkeypatch.setattr("ctypes.CDLL", lambda name: self.library)
        self.driver = Driver()
        self.library.calls.clear()
        self.status = 0
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int, *[_P] * 11)(self._launched)
        addresses = [ctypes.cast(f, _P).value or 0 for f in (self._launch, self.library.cuCtxSetCurrent)]
        kernel = [1234, 8, 1, 1, 1, 32, 0, 0]
        self._table = array.array("q", [16, addresses[0], 0, addresses[1], 5, 0, *kernel, 0])
        self._state = array.array("q", [0, self._table.buffer_info()[0]])
        self._code = load([cuda_launcher_object()], ["kiln_run_cuda"])

    def _launched(self, *arguments: int) -> int:
        self.streams.append(arguments[8])
        return self.status

    def record(self) -> int:
        return self.driver.record(5, self._code["kiln_run_cuda"], self._state.buffer_info()[0])


_ONCE = ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphDestroy"]


def test_the_driver_records_in_a_stream_of_its_own(monkeypatch):
    recorder = Recorder(monkeypatch)
    assert recorder.record() != recorder.record()
    assert [name for name in recorder.library.calls if name != "cuCtxSetCurrent"] == ["cuStreamCreate", *_ONCE, *_ONCE]
    assert recorder.streams == [1, 1]


@pytest.mark.parametrize("fails", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"])
def test_a_recording_that_fails_leaves_nothing(monkeypatch, fails):
    recorder = Recorder(monkeypatch, **{fails: 900})
    with pytest.raises(CudaError, match=r"recording launches: .*\(CUDA error 900\)"):
        recorder.record()
    calls = recorder.library.calls
    assert calls.count("cuGraphDestroy") == (fails == "cuGraphInstantiateWithFlags")
    assert calls.count("cuStreamEndCapture") == (fails != "cuStreamBeginCapture_v2")
    recorder.library.codes.clear()
    assert recorder.record()


def test_a_launch_that_cannot_be_recorded_ends_the_recording(monkeypatch):
    recorder = Recorder(monkeypatch)
    recorder.status = 13
    with pytest.raises(CudaError, match="recording launches"):
        recorder.record()
    assert recorder.library.calls[-3:] == ["cuStreamEndCapture", "cuGetErrorString", "cuGraphDestroy"]
    recorder.status = 0
    assert recorder.record()
