# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small programs that planted bugs are looked for in: functions without arguments that return (model, inputs)."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def randn(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers from the generator that the caller has seeded."""
    return (torch.randn(shape) * scale).to(dtype)


def relu_linear(rows: int = 8192, terms: int = 64, columns: int = 192) -> Made:
    """A large bf16 product with a pointwise epilogue."""
    x, w = randn(rows, terms, dtype=torch.bfloat16), randn(columns, terms, dtype=torch.bfloat16, scale=terms**-0.5)
    return lambda x, w: F.relu(F.linear(x, w)), (x, w)


def ragged_linear() -> Made:
    """A bf16 product whose rows, columns and sums end inside of tiles."""
    return relu_linear(200, 104, 136)


def long_sums() -> Made:
    """A bf16 product with sums of several steps; its rows and columns of tiles are different numbers."""
    return relu_linear(1024, 512, 320)


def many_tiles() -> Made:
    """A bf16 product of more tiles than a GPU has multiprocessors: a program computes several, one after the other."""
    return relu_linear(4352, 64, 1024)


def odd_linear() -> Made:
    """An f32 product of no round size."""
    x, w = randn(77, 45), randn(45, 51)
    return lambda x, w: torch.tanh(x @ w), (x, w)


def few_rows() -> Made:
    """A few f32 rows times a matrix whose sums run along memory."""
    x, w = randn(4, 333), randn(8, 333, scale=333**-0.5)
    return lambda x, w: torch.tanh(F.linear(x, w)), (x, w)


def one_row() -> Made:
    """A vector times a matrix, with sums that end inside of a step."""
    x, w = randn(1, 1000, dtype=torch.bfloat16), randn(96, 1000, dtype=torch.bfloat16, scale=1000**-0.5)
    return lambda x, w: F.relu(F.linear(x, w)), (x, w)


def batched_product() -> Made:
    """A product of each pair of matrices of two batches, large enough that hardware moves its blocks."""
    x, w = randn(3, 1024, 512, dtype=torch.bfloat16), randn(3, 512, 320, dtype=torch.bfloat16, scale=512**-0.5)
    return lambda x, w: F.relu(x @ w), (x, w)


def small_sums() -> Made:
    """Few tiles with long sums, which are computed in parts."""
    x, w = randn(64, 8192, dtype=torch.bfloat16), randn(64, 8192, dtype=torch.bfloat16, scale=8192**-0.5)
    return lambda x, w: F.relu(F.linear(x, w)), (x, w)


def attention(causal: bool = True, keys: int = 100, groups: int = 1) -> Made:
    """Attention whose keys end inside of a block."""
    q = randn(1, 4, keys, 32, dtype=torch.bfloat16)
    k, v = (randn(1, 4 // groups, keys, 32, dtype=torch.bfloat16) for _ in range(2))

    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=groups > 1)

    return model, (q, k, v)


def full_attention() -> Made:
    """The same without a causal mask."""
    return attention(causal=False)


def grouped_attention() -> Made:
    """Two queries' heads for each head of keys."""
    return attention(causal=False, groups=2)


def large_attention() -> Made:
    """Attention of many heads of 128 elements: on Hopper by warps with different jobs."""
    q, k, v = (randn(1, 34, 256, 128, dtype=torch.bfloat16) for _ in range(3))
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (q, k, v)


def float_attention() -> Made:
    """Causal attention in f32 over several blocks of keys."""
    q, k, v = (randn(1, 2, 300, 32) for _ in range(3))
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)


def sink_attention() -> Made:
    """The scores of the first keys are far above those of all others."""
    q, k, v = (randn(1, 2, 300, 32) for _ in range(3))
    k = torch.where(torch.arange(300)[:, None] < 16, k + 4.2, k - 4.2)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (q + 4.2, k, v)


def conv(channels: int = 40, out: int = 72, groups: int = 1, dtype: torch.dtype = torch.bfloat16) -> Made:
    """A 3x3 convolution with padding, channels last."""
    x = randn(2, channels, 14, 14, dtype=dtype).to(memory_format=torch.channels_last)
    w = randn(out, channels // groups, 3, 3, dtype=dtype, scale=(9 * channels / groups) ** -0.5)
    return lambda x, w: F.relu(F.conv2d(x, w, padding=1, groups=groups)), (x, w)


def depthwise_conv() -> Made:
    """Two outputs of each channel."""
    return conv(32, 64, 32)


def float_conv() -> Made:
    """A strided 3x3 convolution of planar f32 images, with padding."""
    x, w = randn(2, 24, 15, 17), randn(40, 24, 3, 3, scale=0.07)
    return lambda x, w: F.conv2d(x, w, stride=2, padding=1).relu(), (x, w)


def row_max() -> Made:
    """The largest of rows of negative numbers that end inside of a block."""
    x = -randn(33, 200, dtype=torch.float32).abs() - 1
    return lambda x: x.amax(1), (x,)


def row_sum() -> Made:
    """Sums of rows that end inside of a block; what is added is not zero at zero."""
    return lambda x: torch.cos(x).sum(1), (randn(33, 200),)


def long_rows() -> Made:
    """Sums of rows that no program holds as a whole, and that are so many that none is reduced in parts."""
    return lambda x: torch.cos(x).sum(1), (randn(150, 20_011),)


def softmax() -> Made:
    """A softmax of large numbers over rows of no round size."""
    return lambda x: torch.softmax(x, -1), (randn(37, 333, scale=30.0),)


def layer_norm() -> Made:
    """A layer norm whose variance is as small as its epsilon."""
    x, w, b = randn(50, 100, scale=0.003), randn(100), randn(100)
    return lambda x, w, b: F.layer_norm(x, (100,), w, b), (x, w, b)


def cumulative() -> Made:
    """Running sums of rows longer than a block."""
    return lambda x: torch.cumsum(x, 1), (randn(3, 9000),)


def scatter() -> Made:
    """Sums at places that repeat."""
    x, at = randn(5000), torch.randint(0, 100, (5000,))
    return lambda x, at: torch.zeros(100, dtype=x.dtype).index_add(0, at, x), (x, at)


def pointwise() -> Made:
    """Pointwise ops on a size that no block divides, with a broadcast and a transposed operand."""
    return lambda x, y, z: torch.sigmoid(x) * y + z.t(), (randn(101, 67), randn(67), randn(67, 101))


def scaled_planes() -> Made:
    """Planes, each with a factor of its own: two of three loops are one."""
    return lambda x, s: F.relu(x) * s[:, None, None], (randn(6, 10, 8), randn(6))


def max_pool() -> Made:
    """Max pooling of negative numbers, with padding."""
    return lambda x: F.max_pool2d(x, 3, 2, 1), (-randn(2, 5, 17, 17).abs() - 1,)


def avg_pool() -> Made:
    """Average pooling that counts no padding."""
    return lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (randn(2, 5, 17, 17),)


def gather() -> Made:
    """Indices from the end."""
    x = randn(40, 7)
    return lambda x, at: x[at] * 2, (x, torch.randint(-40, 40, (30,)))


def concatenate() -> Made:
    """Three tensors behind each other, with something computed of them."""
    return lambda x, y, z: torch.cat([x, y * 2, z], 1).exp(), (randn(9, 5), randn(9, 8), randn(9, 3))


def reflect_pad() -> Made:
    """Reflected borders."""
    return lambda x: F.pad(x, (2, 3, 1, 2), mode="reflect") + 1, (randn(2, 3, 9, 11),)


def transposes() -> Made:
    """Products of transposed and flattened operands."""
    x, w = randn(6, 20, 24), randn(24, 24)
    return lambda x, w: (x.transpose(1, 2).reshape(144, 20).t() @ x.reshape(144, 20)) @ (w @ w.t())[:20, :20], (x, w)


def slices() -> Made:
    """Steps and offsets of slices."""
    return lambda x: x[1::3, 4:] - x[:33, :-4], (randn(100, 20),)


def split() -> Made:
    """Pieces of one projection."""

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b, c = F.linear(x, w).split([8, 16, 24], -1)
        return torch.cat([torch.tanh(c), b.exp(), a], -1)

    return model, (randn(30, 16), randn(48, 16, scale=0.2))


def whole_sum() -> Made:
    """One sum of many numbers, which is computed in parts; neighbours differ."""
    return lambda x: (x * torch.arange(1 << 17, dtype=torch.float32).sin()).sum(), (randn(1 << 17),)


def variance() -> Made:
    """Unbiased variance."""
    return lambda x: x.var(1), (randn(12, 5),)


def softmax_gradient() -> Made:
    """A gradient of softmax."""
    x, t = randn(20, 50), randn(20, 50)

    def model(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, -1)
        return y * (t - (t * y).sum(-1, keepdim=True))

    return model, (x, t)


def clamp() -> Made:
    """Both bounds of a clamp."""
    return lambda x: torch.clamp(x, -0.5, 0.25), (randn(77),)


def exponential() -> Made:
    """exp over its range, as a gate."""
    return lambda x: torch.exp(x) * torch.exp(-x / 3), (randn(1000, scale=8.0),)


def chain() -> Made:
    """Two kernels' buffers at once: results that are read much later than they are made."""

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a = torch.softmax(x @ w, -1)
        b = torch.softmax(a @ w, -1)
        c = torch.softmax(b @ w, -1)
        return torch.softmax((a * c) @ w, -1) + b

    return model, (randn(64, 64), randn(64, 64))


def to_bf16() -> Made:
    """A rounding that the program asks for."""
    return lambda x: x.to(torch.bfloat16).float() * math.pi, (randn(5000),)


def rounded_chain() -> Made:
    """Pointwise ops in bf16, each of which eager rounds: what is left of the difference shows each rounding."""
    x, y = randn(5000, dtype=torch.bfloat16), randn(5000, dtype=torch.bfloat16)
    return lambda x, y: (x * y + x) - x, (x, y)


def in_place_rows() -> Made:
    """A reversed copy of an intermediate: it must not be written over what it reads."""
    return lambda x, w: torch.flip(torch.softmax(x @ w, -1), [0]) * 2, (randn(64, 64), randn(64, 64))


def gate() -> Made:
    """A broadcast gate in front of a 1x1 convolution."""
    x = randn(4, 48, 7, 7, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    g, w = randn(4, 48, 1, 1, dtype=torch.bfloat16), randn(24, 48, 1, 1, dtype=torch.bfloat16, scale=0.14)
    return lambda x, g, w: F.conv2d(x * torch.sigmoid(g), w), (x, g, w)


def add_neg() -> Made:
    """A sum with a negated operand."""
    return lambda x, y: x + (-y), (randn(40), randn(40))


def quotient() -> Made:
    """One tensor over another."""
    return lambda x, y: x / y, (randn(20, 50), randn(20, 50).abs() + 1)
