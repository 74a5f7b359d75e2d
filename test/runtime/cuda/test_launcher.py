# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The launcher of GPU plans, with functions in place of the driver's: what it would launch, and in which order."""

import array
import ctypes

import pytest

from kiln.lowering.host.cuda_launcher import CUDA_LAUNCHER_SYMBOL, cuda_launcher_object
from kiln.runtime.binding import segments
from kiln.runtime.cuda.binding import BY_REFERENCE, IN_PLACE, CudaBinder, CudaLayout, Entries
from kiln.runtime.cuda.driver import CudaError, Driver
from kiln.runtime.loader import load
from kiln.runtime.plan import Buffer, Descriptor, Kernel, Launch, Plan, Pointer, Symbol, TensorMap

_U = ctypes.c_uint
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, _U, _U, _U, _U, _U, _U, _U, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_CLEAR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_uint8, ctypes.c_size_t, ctypes.c_void_p)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 16)


class Recorder:
    """Stands for the driver: keeps what it is asked to do. `params`: how many parameters each function takes."""

    def __init__(self, params: dict[int, int], fails_at: int = -1) -> None:
        self.calls: list[tuple] = []
        self.params, self.fails_at = params, fails_at
        self._keep = (_LAUNCH(self._launch), _CLEAR(self._clear), _SET(self._set))
        self.addresses = [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in self._keep]

    def _result(self) -> int:
        return 700 if len(self.calls) - 1 == self.fails_at else 0

    def _launch(self, function, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
        pointers = (ctypes.c_void_p * self.params[function]).from_address(params)
        values = [ctypes.c_int64.from_address(p).value for p in pointers]
        self.calls.append((function, (gx, gy, gz), (bx, by, bz), shared, stream, values))
        return self._result()

    def _clear(self, address, value, size, stream):
        self.calls.append(("clear", address, value, size, stream))
        return self._result()

    def _set(self, context):
        self.calls.append(("context", context))
        return self._result()


def run(state: list[int], table: list[int]) -> int:
    code = load([cuda_launcher_object()], [CUDA_LAUNCHER_SYMBOL])
    run_table = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code[CUDA_LAUNCHER_SYMBOL])
    words = array.array("q", table)
    memory = array.array("q", [0, words.buffer_info()[0], *state])
    return run_table(memory.buffer_info()[0], 77)


def test_launches_and_clears_in_order():
    driver = Recorder({1000: 2, 2000: 1})
    table = [2, *driver.addresses, 42, 0]
    table += [1000, 12, 3, 2, 1, 128, 4096, 2, 2, 16, 0, 5]
    table += [1, 5, 3, 8, 100]
    table += [2000, 10, 7, 1, 1, 32, 0, 1, 3, 0, 0]
    assert run([1600, 3200], table) == 0
    assert driver.calls == [
        ("context", 42),
        (1000, (3, 2, 1), (128, 1, 1), 4096, 77, [1616, 5]),
        ("clear", 3208, 0, 100, 77),
        (2000, (7, 1, 1), (32, 1, 1), 0, 77, [3200]),
    ]


def test_a_parameter_in_place():
    """A kernel gets what lies in the state, whatever its size."""
    driver = Recorder({1000: 1})
    table = [16, *driver.addresses, 42, 0, 1000, 10, 1, 1, 1, 32, 0, 1, 3 | IN_PLACE, 0, 0]
    assert run([7, 11, 22], table) == 0
    assert driver.calls[1][-1] == [11]


def test_a_call_gets_its_arguments_and_the_stream():
    """Numbers, the address of a word of the state, the address of a sum, and the stream behind the last one."""
    driver, seen = Recorder({}), []

    def called(*arguments: int) -> int:
        seen.append((*arguments[:3], ctypes.c_int64.from_address(arguments[3]).value, arguments[15]))
        assert ctypes.c_int64.from_address(arguments[4]).value == 9
        return 0

    keep = _CALL(called)
    address = ctypes.cast(keep, ctypes.c_void_p).value
    given = [(0, 5), (2, 1), (0, 1 << 40), (2 | BY_REFERENCE, 2), (3 | IN_PLACE, 0), *((0, i) for i in range(10))]
    words = [2, 4 + 2 * len(given), address, len(given), *(x for pair in given for x in pair)]
    assert run([100, 9], [16, *driver.addresses, 42, 0, *words, 0]) == 0
    assert seen == [(5, 101, 1 << 40, 102, 77)]


def test_a_call_is_made_again_only_after_a_change():
    """By the address and by what else it was made for; what follows runs either way, and is counted alike."""
    driver, made = Recorder({1000: 0}, fails_at=-1), []
    keep = _CALL(lambda *arguments: made.append(arguments[0]) or 0)
    address = ctypes.cast(keep, ctypes.c_void_p).value

    def table(serial: int) -> list[int]:
        words = [3, 6, 2, 16, 3, serial, 2, 6, address, 1, 2, 16, 1000, 8, 1, 1, 1, 32, 0, 0]
        return [16, *driver.addresses, 42, 0, *words, 0]

    code = load([cuda_launcher_object()], [CUDA_LAUNCHER_SYMBOL])
    run_table = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code[CUDA_LAUNCHER_SYMBOL])
    memory = array.array("q", [0, 0, 4096, 0, 0])
    for base, serial in ((4096, 1), (4096, 1), (8192, 1), (8192, 2), (8192, 2)):
        words = array.array("q", table(serial))
        memory[1], memory[2] = words.buffer_info()[0], base
        assert run_table(memory.buffer_info()[0], 77) == 0
    assert made == [4112, 8208, 8208]
    driver.fails_at = len(driver.calls) + 1  # the context comes first
    assert run_table(memory.buffer_info()[0], 77) >> 32 == 2


@pytest.mark.parametrize("at", [1, 2])
def test_the_entry_that_fails_is_told_and_nothing_follows(at):
    driver = Recorder({1000: 0}, fails_at=at)
    table = [1, *driver.addresses, 42, 0, *[1000, 8, 1, 1, 1, 32, 0, 0] * 3, 0]
    status = run([], table)
    assert (status & 0xFFFFFFFF, status >> 32) == (700, at - 1)
    assert len(driver.calls) == at + 1


@pytest.mark.parametrize(("address", "expected"), [(4096, 0), (4112, 0), (4104, -1)])
def test_addresses_are_checked_before_anything_is_launched(address, expected):
    driver = Recorder({1000: 0})
    table = [1, *driver.addresses, 42, 2, 2, 3, 1000, 8, 1, 1, 1, 32, 0, 0, 0]
    assert run([1024, address], table) == expected
    assert len(driver.calls) == (0 if expected else 2)


def plan_with(launch: Launch, kernel: Kernel, shape: tuple) -> Plan:
    """A plan of one launch: input 0 to an output, with one symbol."""
    plan = Plan(
        "g", 1, device="cuda:0", symbols=[Symbol("n", "size", input=0, dim=0)], kernels=[kernel], steps=[launch]
    )
    plan.buffers = [
        Buffer("input", "float32", shape, (1,), "s0 * 4", index=0, first=0, last=0),
        Buffer("tensor", "float32", shape, (1,), "s0 * 4", first=0, last=0),
    ]
    return plan


def bound(plan: Plan, n: int, driver: Recorder):
    parts = segments(plan)
    layout = CudaLayout(plan, parts)
    run_kernel, clear, set_context = driver.addresses
    entries = Entries(run_kernel, clear, set_context, context=42, encode=5000)
    binder = CudaBinder(plan, parts, layout, [1000], entries)
    return binder.bind(0, [n], 1), layout


def test_a_table_from_a_plan():
    """Grid over the size, a result to clear, scratch memory behind the workspace, and Triton's two extra pointers."""
    kernel = Kernel("k", "k", 0, "pointwise", 2, 1, threads=128, shared=64, program_scratch=16)
    launch = Launch(
        0, (Pointer(0), Pointer(1, 8)), ("s0",), scratch="s0 * 2", has_scratch=True, name="k",
        grid=("s0 ceildiv 64", 2, 1), clear=((1, "s0 * 4"),),
    )  # fmt: skip
    driver = Recorder({1000: 6})
    binding, layout = bound(plan_with(launch, kernel, ("s0",)), 100, driver)
    words = list(binding.keep[0])
    state = [0] * layout.words
    state[layout.WORKSPACE] = 1 << 20
    state[layout.slots[0]], state[layout.slots[1]] = 4096, 8192
    assert run(state[2:], words) == 0
    assert driver.calls[1] == ("clear", 8200, 0, 400, 77)
    assert driver.calls[2] == (1000, (2, 2, 1), (128, 1, 1), 64, 77, [4096, 8200, 100, 1 << 20, (1 << 20) + 256, 0])
    assert binding.workspace == 256 + 4 * 16


def test_an_empty_grid_is_not_launched():
    kernel = Kernel("k", "k", 0, "pointwise", 2, 1, threads=128)
    launch = Launch(0, (Pointer(0), Pointer(1)), ("s0",), grid=("s0 ceildiv 64", 1, 1), clear=((1, "s0 * 4"),))
    driver = Recorder({1000: 5})
    binding, layout = bound(plan_with(launch, kernel, ("s0",)), 0, driver)
    assert run([0] * layout.words, list(binding.keep[0])) == 0
    assert driver.calls == [("context", 42)]


def test_a_descriptor_is_encoded_into_the_state():
    map_ = TensorMap((64, 32), 9, 2, 3)
    kernel = Kernel("k", "k", 0, "matmul", 2, 1, threads=128, tensor_maps=(map_,))
    launch = Launch(
        0, (Pointer(0, 32), Pointer(1)), ("s0",), grid=(1, 1, 1), descriptors=(Descriptor(0, ("s0", 40), (48, 1)),)
    )
    binding, layout = bound(plan_with(launch, kernel, ("s0",)), 100, Recorder({}))
    place, record = layout.maps[0, 0, 0], layout.records[0, 0, 0]
    assert place * 8 % layout.alignment == 0 and place + 16 <= record and record + 2 == layout.words
    entries = list(binding.keep[-1])[7:]
    assert entries[:2] == [3, 6] and entries[2:5] == [layout.slots[0], 32, record]
    function, count, *pairs = entries[8:10] + entries[10 : 10 + 24]
    given = list(zip(pairs[::2], pairs[1::2], strict=True))
    assert (function, count) == (5000, 12)
    assert given[:4] == [(place | IN_PLACE, 0), (0, 9), (0, 2), (layout.slots[0], 32)]
    sizes, strides = ((ctypes.c_uint64 * n).from_address(given[i][1]) for n, i in ((2, 4), (1, 5)))
    block, ones = ((ctypes.c_uint32 * 2).from_address(given[i][1]) for i in (6, 7))
    assert (list(sizes), list(strides), list(block), list(ones)) == ([40, 100], [96], [32, 64], [1, 1])
    assert given[8:] == [(0, 0), (0, 3), (0, 2), (0, 0)]
    kernel_entry = entries[6 + 28 :]
    assert kernel_entry[8:10] == [place | IN_PLACE, 0]


def test_no_driver_is_a_clear_error():
    with pytest.raises(CudaError, match="NVIDIA's driver"):
        Driver("libcuda-that-is-not-there.so.1")
