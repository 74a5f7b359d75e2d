# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions of images with few channels: pixels as channels compute the same."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect
from kiln.lowering.gpu.dot import conv_choice


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Also small ones, which the rule would leave."""
    monkeypatch.setenv("KILN_TARGET", "tt-cpu")
    monkeypatch.setenv("KILN_CACHE", "0")
    rules = replace(conv_choice.rules_for(conv_choice.ConvolutionRules), copy_work=0)
    monkeypatch.setattr(conv_choice, "rules_for", lambda _: rules)


def check(x, w, stride, padding, dynamic=False):
    def model(x, w, b):
        return F.relu(F.conv2d(x, w, b, stride, padding))

    torch._dynamo.reset()
    b = torch.randn(w.shape[0]).to(x.dtype)
    last = torch.channels_last
    x, w = x.contiguous(memory_format=last), w.contiguous(memory_format=last)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    with collect() as reports:
        out = torch.compile(model, backend=kiln.backend, fullgraph=True)(x, w, b)
    expected = model(x.double(), w.double(), b.double())
    assert out.shape == expected.shape and out.is_contiguous(memory_format=last)
    assert (out.double() - expected).norm() / expected.norm() < 1e-2
    notes = [note.reason for report in reports for note in report.notes if note.pass_name == "space-to-depth"]
    assert notes == ["pixels of a stride's step are channels"]
    assert not any(report.aten_calls for report in reports)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "size"),
    [
        (3, (7, 7), (2, 2), (3, 3), (22, 27)),
        (2, (9, 9), (2, 2), (0, 0), (20, 21)),
        (4, (5, 5), (3, 3), (1, 0), (17, 16)),  # the last column of the image is in no window
        (3, (11, 11), (4, 4), (2, 2), (31, 33)),
        (3, (5, 7), (1, 2), (2, 3), (9, 14)),
        (2, (8, 8), (4, 2), (0, 4), (19, 15)),
    ],
)
def test_the_same_as_eager(channels, kernel, stride, padding, size, dtype):
    check(torch.randn(2, channels, *size).to(dtype), torch.randn(5, channels, *kernel).to(dtype), stride, padding)


def test_any_number_of_images():
    check(torch.randn(3, 3, 20, 20).bfloat16(), torch.randn(8, 3, 7, 7).bfloat16(), 2, 3, dynamic=True)


def test_one_image():
    check(torch.randn(1, 3, 20, 20).bfloat16(), torch.randn(8, 3, 7, 7).bfloat16(), 2, 3)
