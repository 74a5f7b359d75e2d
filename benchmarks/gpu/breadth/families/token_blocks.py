# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks over tokens: products with epilogues, attention of many kinds, recurrences."""

import math

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor


class Activated(nn.Module):
    """`activation(x @ w)`, without a bias."""

    def __init__(self, inputs: int, outputs: int, activation: nn.Module) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(inputs, outputs, bias=False), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x))


class SoftCapped(nn.Module):
    """Logits that tanh keeps below a cap."""

    def __init__(self, width: int, words: int, cap: float) -> None:
        super().__init__()
        self.head, self.cap = nn.Linear(width, words, bias=False), cap

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.head(x) / self.cap) * self.cap


class ExpOfProduct(nn.Module):
    """What a rounding of the product, or of the exponential, costs most."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.003))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.exp((x * self.scale) @ y) - 1


def mlp(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


class GatedMlp(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def windows(x: Tensor, side: int, window: int, shift: int = 0) -> Tensor:
    """[batch, side * side, width] -> [batch * windows, window * window, width]."""
    batch, _, width = x.shape
    x = x.view(batch, side, side, width)
    if shift:
        x = torch.roll(x, (-shift, -shift), (1, 2))
    count = side // window
    x = x.view(batch, count, window, count, window, width).transpose(2, 3)
    return x.reshape(-1, window * window, width)


def unwindowed(x: Tensor, side: int, window: int, shift: int = 0) -> Tensor:
    count, width = side // window, x.shape[-1]
    x = x.view(-1, count, count, window, window, width).transpose(2, 3).reshape(-1, side, side, width)
    if shift:
        x = torch.roll(x, (shift, shift), (1, 2))
    return x.flatten(1, 2)


class WindowMlp(nn.Module):
    """Swin-MLP: a product over the places of each window, separate for each head."""

    def __init__(self, width: int, side: int, window: int, heads: int) -> None:
        super().__init__()
        self.side, self.window, self.heads = side, window, heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix = nn.Conv1d(heads * window * window, heads * window * window, 1, groups=heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        y = windows(self.norm1(x), self.side, self.window)
        places, width = y.shape[1:]
        y = y.view(-1, places, self.heads, width // self.heads).transpose(1, 2)
        y = self.mix(y.reshape(-1, self.heads * places, width // self.heads))
        y = y.view(-1, self.heads, places, width // self.heads).transpose(1, 2).reshape(-1, places, width)
        x = x + unwindowed(y, self.side, self.window)
        return x + self.mlp(self.norm2(x))


class CosineWindowAttention(nn.Module):
    """Swin-V2: cosines times a learned scale, a bias by position, shifted windows."""

    def __init__(self, width: int, side: int, window: int, heads: int) -> None:
        super().__init__()
        self.side, self.window, self.heads = side, window, heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = nn.Parameter(torch.full((heads, 1, 1), math.log(10.0)))
        self.bias = nn.Parameter(torch.randn(heads, window * window, window * window))

    def forward(self, x: Tensor) -> Tensor:
        shift = self.window // 2
        y = windows(x, self.side, self.window, shift)
        count, places, width = y.shape
        q, k, v = self.qkv(y).view(count, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        scores = scores * torch.clamp(self.scale, max=math.log(100.0)).exp() + 16 * torch.sigmoid(self.bias)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(count, places, width)
        return x + self.norm(unwindowed(self.project(y), self.side, self.window, shift))


def heads_of(x: Tensor, heads: int) -> Tensor:
    """[batch, tokens, width] -> [batch, heads, tokens, width / heads]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class RotaryAttention(nn.Module):
    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads
        size = width // heads
        self.query, self.rest = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * key_heads * size, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.register_buffer("steps", 10000.0 ** (-torch.arange(0, size, 2) / size))

    def turned(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[2], device=x.device)[:, None] * self.steps
        cosine, sine = angles.cos().repeat(1, 2).to(x.dtype), angles.sin().repeat(1, 2).to(x.dtype)
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat((-right, left), -1) * sine

    def forward(self, x: Tensor) -> Tensor:
        q = self.turned(heads_of(self.query(x), self.heads))
        k, v = (heads_of(part, self.key_heads) for part in self.rest(x).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, self.turned(k), v, is_causal=True, enable_gqa=True)
        return self.project(y.transpose(1, 2).flatten(2))


class CappedAttention(nn.Module):
    """Gemma 2: scores that tanh keeps below a cap, causal."""

    def __init__(self, width: int, heads: int, cap: float) -> None:
        super().__init__()
        self.heads, self.cap = heads, cap
        self.qkv, self.project = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        scores = torch.tanh(q @ k.transpose(-2, -1) / (q.shape[-1] ** 0.5 * self.cap)) * self.cap
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.project((weights @ v).transpose(1, 2).flatten(2))


class AlibiAttention(nn.Module):
    """A bias that falls with the distance, in place of positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        places = torch.arange(x.shape[1], device=x.device)
        bias = -(places[:, None] - places).abs() * self.slopes[:, None, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        return self.project(y.transpose(1, 2).flatten(2))


class LinearAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        y = q @ (k.transpose(-2, -1) @ v) / (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        return self.project(y.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """A diffusion model's: places ask a text; gated GELU behind it."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.rest = nn.Linear(width, width, bias=False), nn.Linear(context, 2 * width, bias=False)
        self.project, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q = heads_of(self.query(self.norm(x)), self.heads)
        k, v = (heads_of(part, self.heads) for part in self.rest(context).chunk(2, -1))
        x = x + self.project(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        value, gate = self.up(x).chunk(2, -1)
        return x + self.down(value * F.gelu(gate))


class Experts(nn.Module):
    """A mixture with all experts computed, weighted by the two largest of the router."""

    def __init__(self, width: int, hidden: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(count, hidden, width) / hidden**0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights = torch.softmax(self.router(tokens), -1)
        least = weights.topk(2, -1).values[:, -1:]
        weights = torch.where(weights >= least, weights, 0)
        weights = weights / weights.sum(-1, keepdim=True)
        found = F.silu(torch.einsum("td,edh->eth", tokens, self.up)).bmm(self.down)
        return torch.einsum("te,etd->td", weights, found).view_as(x)


class SelectiveScan(nn.Module):
    """Mamba's recurrence, step by step."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.select, self.states = nn.Linear(width, width + 2 * states), states
        self.log_rates = nn.Parameter(torch.log(torch.arange(1.0, states + 1).expand(width, states)).clone())
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = F.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
        step, into, out = self.select(x).split((x.shape[-1], self.states, self.states), -1)
        step = F.softplus(step)
        decay = torch.exp(-step.unsqueeze(-1) * torch.exp(self.log_rates))
        gain = (step * x).unsqueeze(-1) * into.unsqueeze(2)
        state, found = torch.zeros_like(gain[:, 0]), []
        for t in range(length):
            state = decay[:, t] * state + gain[:, t]
            found.append((state * out[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(found, 1) + self.skip * x


class TimeMix(nn.Module):
    """RWKV's: exponentials that decay over the tokens, kept in range by a running maximum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.rand(3, width))
        self.key, self.value = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.project = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.decay, self.first = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, -1))
        k, v, r = (
            layer(x * mix + before * (1 - mix))
            for layer, mix in zip((self.key, self.value, self.gate), self.mix, strict=True)
        )
        top = torch.full_like(k[:, 0], -1e4)
        sums = weights = torch.zeros_like(top)
        decay, found = -torch.exp(self.decay), []
        for t in range(x.shape[1]):
            peak = torch.maximum(top, self.first + k[:, t])
            old, new = torch.exp(top - peak), torch.exp(self.first + k[:, t] - peak)
            found.append((old * sums + new * v[:, t]) / (old * weights + new))
            peak = torch.maximum(top + decay, k[:, t])
            old, new = torch.exp(top + decay - peak), torch.exp(k[:, t] - peak)
            sums, weights, top = old * sums + new * v[:, t], old * weights + new, peak
        return self.project(torch.sigmoid(r) * torch.stack(found, 1))


class Recurrent(nn.Module):
    """A cell over the steps of a sequence."""

    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.cell, self.head = cell, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        state, found = None, []
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
            found.append(state[0] if isinstance(state, tuple) else state)
        return self.head(torch.stack(found, 1))


class GraphAttention(nn.Module):
    """Attention among neighbours: pairs whose number in the second argument is above 1."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear, self.ends = nn.Linear(width, width), nn.Parameter(torch.randn(2, heads, width // heads))

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        y = heads_of(self.linear(x), self.heads)
        source, target = (y * self.ends[:, None, :, None, :]).sum(-1)
        scores = F.leaky_relu(source.unsqueeze(-1) + target.unsqueeze(-2), 0.2)
        hidden = (pairs <= 1).logical_and(~torch.eye(x.shape[1], dtype=torch.bool, device=x.device))
        weights = scores.masked_fill(hidden[:, None], float("-inf")).softmax(-1)
        return F.elu(weights @ y).transpose(1, 2).flatten(2)


class AdaptiveNormBlock(nn.Module):
    """A diffusion transformer's: the condition shifts, scales and gates."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False, eps=1e-6)
        self.condition = nn.Linear(width, 6 * width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        parts = self.condition(F.silu(condition)).unsqueeze(1).chunk(6, -1)
        y = self.norm(x) * (1 + parts[0]) + parts[1]
        q, k, v = (heads_of(part, self.heads) for part in self.qkv(y).chunk(3, -1))
        x = x + parts[2] * self.project(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        y = self.norm(x) * (1 + parts[3]) + parts[4]
        return x + parts[5] * self.down(F.gelu(self.up(y), approximate="tanh"))


class Latents(nn.Module):
    """Perceiver: a few learned queries over many inputs."""

    def __init__(self, count: int, width: int, inputs: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(count, width))
        self.keys, self.values, self.norm = nn.Linear(inputs, width), nn.Linear(inputs, width), nn.LayerNorm(inputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        queries = self.latents.expand(x.shape[0], -1, -1)
        return queries + F.scaled_dot_product_attention(queries, self.keys(x), self.values(x))
