# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Two networks that only training measures: a mixture of experts, and a state-space model."""

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.networks import Network
from benchmarks.networks.common import tokens

__all__ = ["mamba2", "mixture"]


class _Experts(nn.Module):
    """Each token goes through the two experts of the highest gates (Shazeer et al. 2017); one product for all."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        gates = self.gate(y).softmax(-1)
        best, which = gates.topk(2, -1)
        weights = torch.zeros_like(gates).scatter(-1, which, best / best.sum(-1, keepdim=True))
        flat = y.reshape(1, -1, y.shape[-1]).expand(self.up.shape[0], -1, -1)
        results = torch.bmm(F.silu(torch.bmm(flat, self.up)), self.down)
        chosen = weights.reshape(-1, weights.shape[-1]).t().unsqueeze(-1)
        return x + (results * chosen).sum(0).view_as(x)


class _Scan(nn.Module):
    """A layer of Mamba-2 (Dao and Gu 2024, listing 1): products within blocks, a running state from block to block."""

    def __init__(self, width: int, heads: int, state: int, block: int) -> None:
        super().__init__()
        self.heads, self.state, self.block = heads, state, block
        self.norm = nn.RMSNorm(width)
        self.inputs = nn.Linear(width, 2 * width + 2 * heads * state + heads)
        self.decay = nn.Parameter(torch.rand(heads))
        self.last = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        sizes = [width, width, self.heads * self.state, self.heads * self.state, self.heads]
        gate, values, keys, queries, steps = self.inputs(self.norm(x)).split(sizes, -1)

        def blocks(t: torch.Tensor) -> torch.Tensor:
            return t.reshape(batch, length // self.block, self.block, self.heads, -1).transpose(2, 3)

        v, k, q = blocks(values), blocks(keys), blocks(queries)
        step = F.softplus(blocks(steps).float())
        total = (-step.squeeze(-1) * self.decay.exp().unsqueeze(-1)).cumsum(-1)
        within = (total.unsqueeze(-1) - total.unsqueeze(-2)).tril().exp().tril()
        v = v * step.to(v.dtype)
        near = ((q @ k.transpose(-1, -2)) * within.to(v.dtype)) @ v
        kept = (k * (total[..., -1:] - total).exp().unsqueeze(-1).to(v.dtype)).transpose(-1, -2) @ v
        carried = total[..., -1].cumsum(1)
        before = (carried - total[..., -1]).unsqueeze(2) - carried.unsqueeze(1)
        older = torch.ones(before.shape[1], before.shape[1], device=x.device).tril(-1).bool()
        past = before.masked_fill(~older.unsqueeze(-1), float("-inf")).exp()
        state = torch.einsum("bijh,bjhkv->bihkv", past.to(v.dtype), kept)
        far = (q * total.exp().unsqueeze(-1).to(v.dtype)) @ state
        y = (near + far).transpose(2, 3).reshape(batch, length, width)
        return x + self.last(y * F.silu(gate))


def _language_model(layers: list[nn.Module], width: int, vocabulary: int) -> nn.Module:
    return nn.Sequential(nn.Embedding(vocabulary, width), *layers, nn.LayerNorm(width), nn.Linear(width, vocabulary))


def mixture(
    *,
    layers: int = 2,
    width: int = 64,
    hidden: int = 96,
    experts: int = 4,
    batch: int = 2,
    length: int = 16,
    vocabulary: int = 100,
) -> Network:
    """Layers of experts without attention; tokens [batch, length] -> logits [batch, length, vocabulary]."""
    experts_ = [_Experts(width, hidden, experts) for _ in range(layers)]
    return _language_model([*experts_], width, vocabulary), tokens(vocabulary, batch, length)


def mamba2(
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    state: int = 16,
    block: int = 8,
    batch: int = 2,
    length: int = 32,
    vocabulary: int = 100,
) -> Network:
    """Mamba-2; tokens [batch, length] -> logits [batch, length, vocabulary]; length is a multiple of block."""
    scans = [_Scan(width, heads, state, block) for _ in range(layers)]
    return _language_model([*scans], width, vocabulary), tokens(vocabulary, batch, length)
