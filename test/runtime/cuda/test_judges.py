# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions and attention in kernels of their own or by a library, on the emulated GPU: both run, the faster stays."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_networks import error
from torch import nn

import kiln
import kiln.lowering.gpu.tune.tuner as tuner_module
from kiln.frontend.report import collect
from kiln.lowering.cpu.tune.measure import Timing
from kiln.lowering.gpu.tune.calls import AttentionJudge, ConvolutionJudge

BF16 = torch.bfloat16


@pytest.fixture
def contest(gpu, monkeypatch, tmp_path):
    """`run(fast, function, inputs)`: compiles under a measure that finds the last of two runs (`fast` "library") or the
    first one ("own") twice as fast, or three times ("hopeless"); returns the error, notes and kernels."""
    monkeypatch.setenv("KILN_CACHE", "1")
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuner_module, "MAX_CANDIDATES", 1)
    for judge in (AttentionJudge, ConvolutionJudge):
        monkeypatch.setattr(judge, "least", 1)
    contests = []

    def run(fast, function, *inputs):
        def measure(runs, seconds):
            for one in runs:
                one()
            contests.append(len(runs))
            times = {"library": [1.5, 1.0], "own": [1.0, 1.5], "hopeless": [3.0, 1.0]}[fast]
            return [Timing(t, t) for t in (times if len(runs) == 2 else [1.0] * len(runs))]  # noqa: PLR2004

        monkeypatch.setattr(tuner_module, "replay_times", measure)
        torch._dynamo.reset()
        contests.clear()
        exact = copy.deepcopy(function).double() if isinstance(function, nn.Module) else function
        with collect() as reports, torch.no_grad():
            run = torch.compile(function, backend=kiln.backend, mode="max-autotune-no-cudagraphs", fullgraph=True)
            found = run(*inputs)
            expected = exact(*(x.double() for x in inputs))
        (report,) = reports
        assert error(found, expected) < 1e-2
        notes = [n.reason for n in report.notes if n.pass_name == "choose-vendor"]
        return notes, report, list(contests)

    return run


class Block(nn.Module):
    """A convolution with a batch norm, a residual and ReLU behind it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)) + x)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("fast", ["library", "own"])
def test_convolutions(contest, gpu, fast, channels_last):
    order = torch.channels_last if channels_last else torch.contiguous_format
    block = Block(32).eval().to(BF16).to(memory_format=order)
    x = torch.randn(2, 32, 9, 7).to(BF16).contiguous(memory_format=order)
    notes, report, _ = contest(fast, block, x)
    times = "1500000.0 us with cuDNN, 1000000.0 us" if fast == "own" else "1000000.0 us with cuDNN, 1500000.0 us"
    prefix = "a kernel of its own: " if fast == "own" else "cuDNN: "
    assert notes == [f"{prefix}{times} in a kernel of its own"]
    kinds = [kernel.kind for kernel in report.kernels]
    assert kinds.count("conv") == (fast == "own") and kinds.count("library") == (fast == "library")


def attend(x: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values are slices of one projection."""
    q, k, v = x.unflatten(-1, (3, 2, 64)).permute(2, 0, 3, 1, 4).unbind(0)
    return torch.exp2(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("fast", ["library", "own"])
def test_attention(contest, fast):
    notes, report, _ = contest(fast, attend, torch.randn(1, 70, 384).to(BF16))
    calls = [call.op for call in report.aten_calls]
    assert calls == (["aten.scaled_dot_product_attention.default"] if fast == "library" else [])
    assert len(notes) == 1 and ("us with ATen" in notes[0])
    assert notes[0].startswith("ATen: " if fast == "library" else "a kernel of its own: ")


def test_verdicts_are_remembered(contest):
    x = torch.randn(1, 70, 384).to(BF16)
    notes, _, contests = contest("library", attend, x)
    assert 2 in contests  # noqa: PLR2004
    again, _, contests = contest("own", lambda x: torch.sort(attend(x)).values, x)
    assert again == notes and 2 not in contests  # noqa: PLR2004


def test_a_hopeless_kernel_is_not_tuned(contest):
    """The library is so much faster at once that no schedule is tried: after the judge's only those of the kernel
    behind the call."""
    notes, _, contests = contest("hopeless", attend, torch.randn(1, 70, 384).to(BF16))
    assert notes == ["ATen: 1000000.0 us with ATen, 3000000.0 us in a kernel of its own"]
    assert contests == [2, 2, 2]
