# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Convolutions whose windows have rows that lie next to each other in memory: a row is a tap with more channels."""

import pytest
import torch
import torch.nn.functional as F
from fusion_support import TYPES, close, emit_fusion, run_fusion

from kiln.dialects import kiln

# x and the result are channels last; {w0}, {w1}, {w2}, {w3}: the weight's strides.
CONV = """
func.func @main(%x: tensor<{n}x{c}x{h}x{w}x{t}>, %w: tensor<{o}x{c}x{kh}x{kw}x{t}>) -> tensor<{n}x{o}x{rh}x{rw}x{t}> {{
  %0 = "kiln.fusion"(%x, %w) ({{
  ^bb0(%x_: tensor<{n}x{c}x{h}x{w}x{t}>, %w_: tensor<{o}x{c}x{kh}x{kw}x{t}>):
    %1 = "kiln.conv"(%x_, %w_) {{stride = array<i64: {s}, {s}>, padding = array<i64: {p}, {q}>,
      dilation = array<i64: 1, {d}>, groups = 1, transposed = false, output_padding = array<i64: 0, 0>}}
      : (tensor<{n}x{c}x{h}x{w}x{t}>, tensor<{o}x{c}x{kh}x{kw}x{t}>) -> tensor<{n}x{o}x{rh}x{rw}x{t}>
    "kiln.yield"(%1) : (tensor<{n}x{o}x{rh}x{rw}x{t}>) -> ()
  }}) {{kind = "conv", name = "conv", layouts = [
      affine_map<(d0, d1, d2, d3) -> (d0 * {h} * {w} * {c} + d2 * {w} * {c} + d3 * {c} + d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0 * {w0} + d1 * {w1} + d2 * {w2} + d3 * {w3})>,
      affine_map<(d0, d1, d2, d3) -> (d0 * {rh} * {rw} * {o} + d2 * {rw} * {o} + d3 * {o} + d1)>]}}
    : (tensor<{n}x{c}x{h}x{w}x{t}>, tensor<{o}x{c}x{kh}x{kw}x{t}>) -> tensor<{n}x{o}x{rh}x{rw}x{t}>
  return %0 : tensor<{n}x{o}x{rh}x{rw}x{t}>
}}
"""


def text(x, w, stride, padding, dilation, t):
    (n, c, height, width), (o, _, kh, kw) = x.shape, w.shape
    rh = (height + 2 * padding[0] - kh) // stride + 1
    rw = (width + 2 * padding[1] - dilation * (kw - 1) - 1) // stride + 1
    strides = dict(zip(("w0", "w1", "w2", "w3"), w.stride(), strict=True))
    sizes = dict(n=n, c=c, o=o, h=height, w=width, kh=kh, kw=kw, rh=rh, rw=rw)
    return CONV.format(**sizes, **strides, s=stride, p=padding[0], q=padding[1], d=dilation, t=t), (n, o, rh, rw)


def check(x, w, stride, padding, dilation, t):
    """The kernel's numbers; returns its text."""
    mlir, shape = text(x, w, stride, padding, dilation, t)
    expected = F.conv2d(x.double(), w.double(), None, stride, padding, (1, dilation))
    out = torch.full(shape, 7.0, dtype=x.dtype).contiguous(memory_format=torch.channels_last)
    run_fusion(mlir, [x, w], [out])
    close(out, expected, TYPES[t][1])
    return kiln.to_text(emit_fusion(mlir))


def operands(c, kernel, t, size=(9, 11), last=True):
    form = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(2, c, *size, dtype=TYPES[t][0]).contiguous(memory_format=torch.channels_last)
    w = torch.randn(24, c, *kernel, dtype=TYPES[t][0]).contiguous(memory_format=form)
    return x, w


def trips(kernel: str) -> int:
    """Of the loop over the sums."""
    loop = next(line for line in kernel.splitlines() if "scf.for" in line)
    bound = loop.split(" to ")[1].split(" ")[0]
    made = next(line for line in kernel.splitlines() if line.strip().startswith(f"{bound} = arith.constant"))
    return int(made.split("constant ")[1].split(" ")[0])


@pytest.mark.parametrize("t", ["bf16", "f16"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_row_is_a_tap(stride, t):
    x, w = operands(16, (4, 4), t)
    assert trips(check(x, w, stride, (0, 0), 1, t)) == 4  # of 64 terms


def test_rows_of_images_that_are_padded_above():
    x, w = operands(8, (3, 4), "bf16")
    assert trips(check(x, w, 1, (1, 0), 1, "bf16")) == 3


@pytest.mark.parametrize(
    ("c", "kernel", "padding", "dilation", "last"),
    [(16, (4, 4), (0, 1), 1, True), (16, (4, 4), (0, 0), 2, True), (3, (4, 4), (0, 0), 1, True), (16, (2, 4), (0, 0), 1, False)],
)  # fmt: skip
def test_rows_that_are_none(c, kernel, padding, dilation, last):
    """Padded, with gaps, of no whole steps, and a weight whose channels are apart."""
    x, w = operands(c, kernel, "bf16", last=last)
    check(x, w, 1, padding, dilation, "bf16")
