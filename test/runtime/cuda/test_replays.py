# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches at addresses seen before, replayed: on an emulated GPU whose recordings keep what was launched."""

import array
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
import kiln.runtime.cuda.executor as cuda_executor
import kiln.runtime.cuda.replays as replays
from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.runtime.cuda.driver import CudaError, Driver
from kiln.runtime.cuda.replays import LaunchReplays
from kiln.runtime.loader import load


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The executors made so far, which record segments of any length."""
    made: list[Any] = []
    start = cuda_executor.CudaExecutor.__init__

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(cuda_executor.CudaExecutor, "__init__", keep)
    monkeypatch.setattr(cuda_executor, "LEAST_LAUNCHES", 1)
    monkeypatch.setattr(replays, "LEAST_LAUNCHES", 1)
    return made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False, **options})


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.double() - exact.double()).norm() / exact.double().norm()).item()


class Memory:
    """Results and workspaces at the same addresses in each call, as a caching allocator has them; `shift` moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift, self._made = 0, 0
        self._kept: dict[Any, torch.Tensor] = {}
        monkeypatch.setattr(cuda_executor, "_allocator", lambda: self.empty)

    def start(self) -> None:
        """Before a call."""
        self._made = 0

    def empty(self, shape: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        self._made += 1
        key = self.shift, self._made, tuple(shape), dtype
        if key not in self._kept:
            self._kept[key] = torch.empty_strided(shape, strides, dtype=dtype)
        return self._kept[key]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> Memory:
    return Memory(monkeypatch)


def network(x, w, b, scale):
    y = F.gelu(F.linear(x, w, b))
    return torch.softmax(y, -1) * scale, y.sum(0)


def operands() -> list[torch.Tensor]:
    return [torch.randn(512, 260), torch.randn(520, 260) / 16, torch.randn(520), torch.randn(520)]


def test_the_third_call_with_the_same_addresses_records(gpu, executors, memory):
    run = compiled(network)
    x, w, b, scale = operands()
    for call in range(6):
        memory.start()
        x.normal_()  # other numbers in the same place
        exact = network(x.double(), w.double(), b.double(), scale.double())
        for found, reference in zip(run(x, w, b, scale), exact, strict=True):
            assert error(found, reference) < 1e-5
            found.zero_()
        assert (gpu.recorded, gpu.replayed) == (call >= 2, max(0, call - 2))
    assert gpu.library.calls  # a product with a bias is among what was replayed


@pytest.mark.parametrize("moved", ["input", "weight", "bias", "results"])
def test_what_moves_is_launched_where_it_is(gpu, executors, memory, moved):
    run = compiled(network)
    given = operands()
    places = {"input": 0, "weight": 1, "bias": 2}
    kept = []
    for call in range(12):
        memory.start()
        if call >= 4 and moved == "results":
            memory.shift = call
        elif call >= 4:
            kept.append(given[places[moved]])  # so that each has an address of its own
            given[places[moved]] = torch.randn_like(given[places[moved]])
        exact = network(*(t.double() for t in given))
        for found, reference in zip(run(*given), exact, strict=True):
            assert error(found, reference) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (1, 1)


def test_inputs_that_take_turns_have_a_recording_each(gpu, executors, memory):
    run = compiled(network)
    given = [operands() for _ in range(3)]
    for call in range(15):
        memory.start()
        exact = network(*(t.double() for t in given[call % 3]))
        for found, reference in zip(run(*given[call % 3]), exact, strict=True):
            assert error(found, reference) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (3, 6)


def test_sizes_have_recordings_of_their_own(gpu, executors, memory):
    run = torch.compile(lambda x: torch.softmax(x, -1).sum(0), backend=kiln.backend, dynamic=True)
    given = [torch.randn(40, 50), torch.randn(50, 40)]
    for call in range(10):
        memory.start()
        x = given[call % 2]
        assert error(run(x), torch.softmax(x.double(), -1).sum(0)) < 1e-5
    assert (gpu.recorded, gpu.replayed) == (2, 4)


def test_inputs_that_are_mutated(gpu, executors, memory):
    def step(x, y):
        x.add_(y)
        return x * 2

    run = compiled(step)
    x, y = torch.randn(64), torch.randn(64)
    expected = x.double()
    for _ in range(6):
        memory.start()
        expected = expected + y.double()
        assert error(run(x, y), 2 * expected) < 1e-6
        assert error(x, expected) < 1e-6
    assert gpu.replayed == 3


def test_segments_between_aten_calls(gpu, executors, memory):
    def function(x, y):
        return torch.sort(torch.relu(x) + y, -1).values * 2 + y

    run = compiled(function)
    x, y = torch.randn(8, 32), torch.randn(8, 32)
    for _ in range(8):
        memory.start()
        x.normal_()
        assert error(run(x, y), function(x.double(), y.double())) < 1e-6


def test_convolutions_of_a_library(gpu, executors, memory):
    def function(x, w):
        return torch.relu(F.conv2d(x, w, padding=1))

    run = compiled(function)
    x, w = (torch.randn(2, 64, 16, 16), torch.randn(64, 64, 3, 3) / 24)
    for _ in range(6):
        memory.start()
        x.normal_()
        found = run(x, w)
        assert error(found, function(x.double(), w.double())) < 1e-5
        found.zero_()
    assert gpu.dnn_library.calls and gpu.replayed == 3


def test_nothing_is_replayed_while_the_caller_records(gpu, executors, memory, monkeypatch):
    run = compiled(network)
    given = operands()
    for _ in range(4):
        memory.start()
        run(*given)
    launched = len(gpu.launched)
    monkeypatch.setattr(executors[-1].replays, "_is_recorded", lambda: True)
    memory.start()
    run(*given)
    assert gpu.replayed == 1 and len(gpu.launched) > launched


def test_it_can_be_turned_off(gpu, executors, memory):
    run = compiled(network, replays=False)
    given = operands()
    for _ in range(5):
        memory.start()
        run(*given)
    assert not gpu.recorded


def test_few_launches_are_not_recorded(gpu, memory):
    run = compiled(network)
    given = operands()
    for _ in range(5):
        memory.start()
        run(*given)
    assert not gpu.recorded


def test_what_cannot_be_recorded_is_launched(gpu, executors, memory):
    gpu.refuses_recordings = True
    run = compiled(network)
    given = operands()
    exact = network(*(t.double() for t in given))
    for call in range(14):
        assert bool(executors and executors[-1].replays.reason) == (call >= 12)
        memory.start()
        for found, reference in zip(run(*given), exact, strict=True):
            assert error(found, reference) < 1e-5
            found.zero_()
    assert "not permitted" in executors[-1].replays.reason


# -- recordings themselves ---------------------------------------------------------------------------


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
