# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions and attention in kernels of their own or by a library, on the emulated GPU: both run, the faster stays."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from test_networks import error
from torch import nn

import kiln
import kiln.lowering.gpu.tune.calls as calls
import kiln.lowering.gpu.tune.judge as judge_module
import kiln.lowering.gpu.tune.plan_trial as plan_trial
import kiln.lowering.gpu.tune.tuner as tuner_module
from kiln.frontend.report import collect
from kiln.lowering.gpu.tune.calls import AttentionJudge, ConvolutionJudge
from kiln.lowering.tune.measure import Timing

BF16 = torch.bfloat16


@pytest.fixture
def contest(gpu, monkeypatch, tmp_path):
    """`run(times, function, inputs)`: compiles under a measure that gives the two ways, the own one first, these times
    one after the other, and checks the result. Of a kernel's schedules the default is not the fastest. Returns notes of the
    choice, the report, and the times that were asked for."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner_module, "MAX_CANDIDATES", 1)
    for judge in (AttentionJudge, ConvolutionJudge):
        monkeypatch.setattr(judge, "least", 1)
    found = []

    def run(times, function, *inputs):
        left = list(times)

        def measure(runs, seconds):
            for one in runs:
                one()
            if runs[0].__module__ != plan_trial.__name__:
                return [Timing(1.0, 1.0)] + [Timing(0.5, 0.5)] * (len(runs) - 1)
            found.append(left.pop(0))
            return [Timing(t, t) for t in found[-1]]

        monkeypatch.setattr(tuner_module, "replay_times", measure)
        torch._dynamo.reset()
        found.clear()
        exact = copy.deepcopy(function).double() if isinstance(function, nn.Module) else function
        with collect() as reports, torch.no_grad():
            run = torch.compile(function, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)
            result = run(*inputs)
            expected = exact(*(x.double() for x in inputs))
        (report,) = reports
        assert error(result, expected) < 1e-2
        notes = [n.reason for n in report.notes if n.pass_name == "choose-vendor"]
        return notes, report, list(found)

    return run


class Block(nn.Module):
    """A convolution with a batch norm, a residual and ReLU behind it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)) + x)


OWN, LIBRARY = [(1.0, 1.5)], [(1.5, 1.0)]
"""Clear at once: nothing is tuned."""


def told(own: float, library: float) -> str:
    return f"{1e6 * library:.1f} us with {{}}, {1e6 * own:.1f} us in a kernel of its own"


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("times", [OWN, LIBRARY])
def test_convolutions(contest, times, channels_last):
    order = torch.channels_last if channels_last else torch.contiguous_format
    block = Block(32).eval().to(BF16).to(memory_format=order)
    x = torch.randn(2, 32, 9, 7).to(BF16).contiguous(memory_format=order)
    notes, report, _ = contest(times, block, x)
    start = "a kernel of its own: " if times == OWN else "cuDNN: "
    assert notes == [start + told(*times[0]).format("cuDNN")]
    kinds = [kernel.kind for kernel in report.kernels]
    assert kinds.count("conv") == (times == OWN) and kinds.count("library") == (times == LIBRARY)


def attend(x: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values are slices of one projection."""
    q, k, v = x.unflatten(-1, (3, 2, 64)).permute(2, 0, 3, 1, 4).unbind(0)
    return torch.exp2(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def projection() -> torch.Tensor:
    return torch.randn(1, 70, 384).to(BF16)


@pytest.mark.parametrize("times", [OWN, LIBRARY])
def test_attention(contest, times):
    notes, report, _ = contest(times, attend, projection())
    called = [call.op for call in report.aten_calls]
    assert called == (["aten.scaled_dot_product_attention.default"] if times == LIBRARY else [])
    start = "a kernel of its own: " if times == OWN else "ATen: "
    assert notes == [start + told(*times[0]).format("ATen")]


def test_a_close_call_is_tuned(contest):
    """The own kernel is a little slower with the schedule of the rules, and faster with the one that is found."""
    notes, report, asked = contest([(1.1, 1.0), (0.9, 1.0)], attend, projection())
    assert notes == ["a kernel of its own: " + told(0.9, 1.0).format("ATen")]
    assert len(asked) == 2 and not report.aten_calls
    tuned = [n.reason for n in report.notes if n.pass_name == "autotune-gpu"]
    # The kernels that won are the graph's: attention, and powers behind a view.
    assert len(tuned) == 2 and all(note.endswith(", found before") for note in tuned)


def test_verdicts_are_remembered(contest):
    x = projection()
    notes, _, asked = contest(LIBRARY, attend, x)
    assert asked == LIBRARY
    again, _, asked = contest([], lambda x: torch.sort(attend(x)).values, x)
    assert again == notes and not asked


def test_without_time_the_rules_decide(contest, monkeypatch):
    monkeypatch.setattr(judge_module.time, "perf_counter", itertools.count(0, 1000).__next__)
    notes, report, asked = contest([], attend, projection())
    assert not asked and notes == ["a kernel of its own is as fast"] and not report.aten_calls


class Twice(nn.Module):
    """Two convolutions that are equal but for what is in them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(32), Block(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_what_fails_is_tried_once(contest, monkeypatch):
    """Results that differ: the rules decide, for all that is equal."""
    compared = []

    def differs(mine, expected):
        compared.append(mine.shape)
        return False

    monkeypatch.setattr(calls, "is_close", differs)
    x = torch.randn(2, 32, 9, 7).to(BF16).contiguous(memory_format=torch.channels_last)
    notes, _, asked = contest([], Twice().eval().to(BF16).to(memory_format=torch.channels_last), x)
    assert notes == ["a kernel of its own is as fast"] * 2 and not asked
    assert len(compared) == 1
