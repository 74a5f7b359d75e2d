# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of bf16 by tiles, emulated: windows, strides, padding, dilation, groups, orders of dims, threads, models
with frozen weights and sizes known at run time."""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, emulated_amx
from conv_support import conv_kernel, conv_problem
from matmul_support import Machine
from test_conv_pairs import relative

from kiln.frontend.report import collect

pytestmark = pytest.mark.skipif(not EMULATED, reason="a CPU that does not run the other instructions of such kernels")

LAST, ROWS = torch.channels_last, torch.contiguous_format


@pytest.fixture(autouse=True)
def _amx(monkeypatch: pytest.MonkeyPatch):
    with emulated_amx(monkeypatch):
        yield


def run(case, x_format, weight_format, out_format, threads: int = 2, **changed) -> dict:
    """Computes a case with NaN where nothing may be read, compares it, and returns the schedule."""
    torch.manual_seed(0)
    size, (o, *window), stride, padding, dilation, groups = case
    x = torch.randn(size).bfloat16().contiguous(memory_format=x_format)
    memory = torch.full((x.numel() + 128,), torch.nan, dtype=torch.bfloat16)
    memory[64:-64] = x.as_strided((x.numel(),), (1,))
    x = memory[64:-64].as_strided(x.shape, x.stride())
    weight = torch.randn(o, size[1] // groups, *window).bfloat16().contiguous(memory_format=weight_format)
    bias = torch.randn(o)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), stride, padding, dilation, groups).relu()
    out = torch.full(exact.shape, torch.nan, dtype=torch.bfloat16).contiguous(memory_format=out_format)
    problem = conv_problem(x, weight, out, stride, padding, dilation, groups)
    _, schedule = conv_kernel(x, weight, bias, out, problem, Machine(64, 32))
    call, schedule = conv_kernel(x, weight, bias, out, problem, Machine(64, 32), threads, replace(schedule, **changed))
    call()
    assert schedule.kernel == "cpu.conv.amx_bf16"
    assert relative(out, exact) <= 1.02 * max(relative(exact.bfloat16(), exact), 1e-3)
    return schedule


# (n, c, h, w), (o, kh, kw), stride, padding, dilation, groups
CASES = [
    ((1, 64, 9, 10), (40, 3, 1), (1, 1), (1, 0), (1, 1), 1),
    ((2, 35, 11, 9), (33, 2, 2), (2, 2), (0, 1), (1, 1), 1),
    ((2, 20, 9, 11), (37, 2, 2), (2, 1), (1, 2), (2, 3), 1),
    ((3, 48, 7, 5), (40, 1, 2), (1, 1), (0, 0), (1, 1), 2),
    ((2, 33, 7, 7), (50, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 8, 3, 3), (16, 2, 2), (1, 1), (4, 4), (1, 1), 1),
    ((1, 24, 6, 7), (24, 3, 3), (1, 1), (1, 1), (1, 1), 3),
]


@pytest.mark.parametrize("out_format", [LAST, ROWS], ids=str)
@pytest.mark.parametrize("x_format", [LAST, ROWS], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows(case, x_format, out_format) -> None:
    weight_format = LAST if x_format == out_format else ROWS
    schedule = run(case, x_format, weight_format, out_format)
    assert schedule.order == "channels" and not schedule.in_place


def test_window_of_nine() -> None:
    run(((1, 32, 9, 10), (16, 3, 3), (1, 1), (1, 1), (1, 1), 1), LAST, ROWS, LAST)


@pytest.mark.parametrize(
    ("case", "in_place"),
    [
        (((2, 64, 9, 9), (48, 1, 1), (1, 1), (0, 0), (1, 1), 1), True),
        (((1, 96, 17, 31), (24, 1, 1), (1, 1), (0, 0), (1, 1), 1), True),
        (((1, 40, 17, 17), (33, 1, 1), (1, 1), (0, 0), (1, 1), 1), False),
    ],
    ids=str,
)
def test_single_elements_are_read_where_they_are(case, in_place: bool) -> None:
    assert run(case, LAST, ROWS, LAST).in_place == in_place


def test_single_elements_of_a_planar_image() -> None:
    assert not run(((2, 40, 17, 17), (33, 1, 1), (1, 1), (0, 0), (1, 1), 1), ROWS, LAST, ROWS, 1).in_place


@pytest.mark.parametrize("x_format", [LAST, ROWS], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        ((2, 3, 13, 15), (20, 3, 7), (2, 2), (3, 3), (1, 1), 1),
        ((1, 3, 32, 33), (32, 4, 16), (16, 16), (0, 0), (1, 1), 1),
        ((1, 4, 9, 4), (9, 2, 3), (1, 3), (1, 2), (2, 1), 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("weight_format", [LAST, ROWS], ids=str)
def test_few_channels(case, x_format, weight_format) -> None:
    order = run(case, x_format, weight_format, LAST).order
    assert order == ("windows" if x_format == LAST else "columns")


@pytest.mark.parametrize(("share", "units"), [("units", 1), ("units", 4), ("blocks", 2)])
def test_shares(share: str, units: int) -> None:
    case = ((3, 32, 7, 6), (80, 2, 1), (1, 1), (0, 0), (1, 1), 1)
    run(case, LAST, ROWS, LAST, 4, share=share, units=units, rows=2, chunk=1)


class Net(nn.Module):
    """A window of few channels, a window, one element, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 24, (2, 4), stride=2, padding=1), nn.BatchNorm2d(24)
        self.middle = nn.Conv2d(24, 32, (2, 1))
        self.last = nn.Conv2d(32, 24, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        return F.silu(self.last(F.relu(self.middle(y)))) + y[:, :, 1:]


@pytest.mark.parametrize(("freezing", "dynamic"), [(False, False), (True, False), (False, True)])
def test_models(freezing: bool, dynamic: bool) -> None:
    torch.manual_seed(0)
    model, exact = Net().eval().bfloat16(), Net().eval().double()
    exact.load_state_dict({k: v.double() if v.is_floating_point() else v for k, v in model.state_dict().items()})
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="kiln", options={"freezing": freezing, "fallback": False})
    for batch, height in ((2, 21), (3, 34)) if dynamic else ((2, 21),):
        x = torch.randn(batch, 3, height, 22).bfloat16()
        if dynamic:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 2)
        with torch.no_grad():
            found, eager, wanted = compiled(x), model(x), exact(x.double())
        assert relative(found, wanted) <= 1.1 * relative(eager, wanted)


@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("memory_format", [LAST, ROWS], ids=str)
def test_tuned(memory_format, freezing: bool) -> None:
    """Lines whose half is no multiple of a tile, weights packed before and when called, and a window."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 40, 1), nn.ReLU(), nn.Conv2d(40, 24, (2, 1))).eval().bfloat16()
    x = torch.randn(2, 32, 20, 19).bfloat16().contiguous(memory_format=memory_format)
    exact = copy.deepcopy(model).double()(x.double())
    torch._dynamo.reset()
    options = {"mode": "max-autotune", "freezing": freezing, "fallback": False}
    with torch.no_grad(), collect() as reports:
        compiled = torch.compile(model, backend="kiln", options=options)
        assert relative(compiled(x), exact) <= 1.1 * relative(model(x), exact)
    notes = [note.reason for report in reports for note in report.notes if note.pass_name == "autotune-cpu"]
    assert any("rows=" in reason for reason in notes) and not any("beyond" in reason for reason in notes)
