# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands that the lanes stride over, transposed in registers: every element width, tail, ISA and number of threads."""

import pytest
import torch

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


def test_pads_and_pieces_are_not_brought():
    """Behind their edges there is no memory."""
    x, y = torch.randn(1, 40, 66), torch.randn(1, 66, 40)
    _same(lambda x, y: torch.cat([torch.nn.functional.pad(x, (3, 2)).mT, y], 1).contiguous(), x, y)


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
