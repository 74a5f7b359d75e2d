# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands that the lanes stride over, transposed in registers: every element width, tail, ISA and number of threads."""

import pytest
import torch

from kiln.lowering import paths
from kiln.lowering.cpu.isa import LEVELS, host
from kiln.lowering.cpu.transpose import shuffle_squares

_LEVELS = [level for level, (_, _, features) in LEVELS.items() if all(host().has(f) for f in features)]
_DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.bool,
]


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    yield
    torch.set_num_threads(threads)


def _random(shape, dtype):
    x = torch.randn(shape) * 20
    return x > 0 if dtype == torch.bool else x.to(dtype)


def _same(function, *inputs, cpu="native", threads=1, dynamic=False):
    torch.set_num_threads(threads)
    options = {"cpu": cpu, "fallback": False, "cache": False}
    found = torch.compile(function, backend="kiln", fullgraph=True, dynamic=dynamic, options=options)(*inputs)
    expected = function(*inputs)
    steps = [[s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1] for x in (found, expected)]
    assert steps[0] == steps[1]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (17, 200), (130, 31), (65, 5), (100, 1)])
def test_copies(dtype, rows, columns):
    _same(lambda x: x.mT.contiguous(), _random((2, rows, columns), dtype), threads=2)


@pytest.mark.parametrize("cpu", _LEVELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_levels(cpu, dtype):
    _same(lambda x, y: torch.where(x.mT > y, x.mT, y), _random((75, 50), dtype), _random((50, 75), dtype), cpu=cpu)


@pytest.mark.parametrize("threads", [1, 2])
def test_two_orders_in_one_kernel(threads):
    """Both results have an operand that lies across; what lies along is not brought."""
    x, y = torch.randn(70, 90), torch.randn(90, 70)
    _same(lambda x, y: (x.mT * y - y.relu()).mT + x, x, y, threads=threads)


def test_integer_division_behind_the_last_lane():
    """Lanes that do not exist hold other lanes' numbers, never what nobody wrote: a quotient of zeros would trap."""
    x, y = torch.randint(1, 9, (33, 66)), torch.randint(-9, -1, (66, 33))
    _same(lambda x, y: torch.div(y, x.mT, rounding_mode="floor"), x, y)


@pytest.mark.parametrize("shape", [(3, 40, 50), (1, 17, 64), (2, 1, 100), (2, 129, 3)])
def test_dynamic_sizes(shape):
    _same(lambda x: x.mT.contiguous() + 1, torch.randn(shape), threads=2, dynamic=True)


PIECES = {
    "side by side": lambda x, y: torch.cat([x.mT, y.mT], -1) * 2,
    "one above the other": lambda x, y: torch.cat([x.mT, y[:, : x.shape[1]].mT], -2),
    "plain and transposed": lambda x, y: torch.cat([y[..., :20], x.mT[..., :20], y[..., :20] * 2], 1),
    "pads": lambda x, y: torch.nn.functional.pad(x.mT, (3, 2, 1, 5), value=3.0).contiguous(),
    "pads of pieces": lambda x, y: torch.nn.functional.pad(torch.cat([x.mT, y.mT], 2), (1, 0, 4, 0)) - 1,
    "pieces of pads": lambda x, y: torch.cat([torch.nn.functional.pad(x, (3, 2)).mT, x.mT], 1).contiguous(),
    "one for all": lambda x, y: torch.cat([x.mT[:1].expand(3, -1, -1), x[:2].mT]).contiguous(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int8])
@pytest.mark.parametrize("name", PIECES)
def test_pieces_and_pads(name, dtype):
    """Behind their edges there is no memory: what is brought ends there."""
    for rows, columns in ((64, 64), (40, 66), (33, 130), (129, 20)):
        torch._dynamo.reset()
        x, y = _random((3, rows, columns), dtype), _random((3, rows + 31, columns), dtype)
        paths.reset()
        _same(PIECES[name], x, y, threads=2)
        if name in ("side by side", "pads"):
            assert any(paths.taken().get(f"cpu transposed tiles: {kind}") for kind in ("loaded", "loaded in bounds"))


@pytest.mark.parametrize("name", ["side by side", "one above the other", "pads"])
def test_pieces_of_dynamic_sizes(name):
    for rows, columns in ((64, 64), (40, 66), (33, 130)):
        torch._dynamo.reset()
        _same(PIECES[name], torch.randn(3, rows, columns), torch.randn(3, rows + 31, columns), threads=2, dynamic=True)


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (17, 200), (130, 31), (65, 50)])
def test_results_in_two_orders(dtype, rows, columns):
    """A result that lanes stride over goes through scratch memory, too; no neighbour of it is written."""

    def both(x, y):
        largest = torch.where(x > y, x, y)
        return largest, largest.mT.contiguous(), largest.mT.contiguous() == y.mT

    x, y = _random((2, rows, columns), dtype), _random((2, rows, columns), dtype)
    paths.reset()
    for threads in (1, 2, 3):
        torch._dynamo.reset()
        torch.set_num_threads(threads)
        options = {"fallback": False, "cache": False}
        found = torch.compile(both, backend="kiln", fullgraph=True, options=options)(x, y)
        assert all(torch.equal(a, b) for a, b in zip(found, both(x, y), strict=True))
    assert paths.taken()["cpu transposed tiles: stored"]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_blocks_of_all_units_are_shared(threads):
    """Few units of few blocks: threads have parts of units."""
    x = torch.randn(5, 192, 49)
    _same(lambda x: (x.mT + 1).contiguous(), x, threads=threads)
    _same(lambda x: x * x[:, :1], torch.randn(5, 3, 300)[:, :, :290], threads=threads)


def test_channels_last():
    x = torch.randn(2, 48, 9, 11)
    _same(lambda x: (x * 2).contiguous(memory_format=torch.channels_last), x)
    _same(lambda x: x.contiguous() + 1, x.contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize(("lanes", "w"), [(2, 8), (4, 16), (4, 4), (8, 16), (8, 8), (16, 16), (16, 4)])
def test_transposition_of_registers(lanes, w):
    """Its shuffles, on lists."""
    rows = [[(row, column) for column in range(w)] for row in range(w)]
    turned = shuffle_squares(lambda x, y, picked: [[*x, *y][i] for i in picked], rows, lanes)
    assert turned == [[(row, column) for row in range(w)] for column in range(w)]
