# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Networks around embedding tables: an LSTM language model and a recommender."""

import torch
from torch import nn

from benchmarks.networks.common import Network, tokens

__all__ = ["DLRM", "LSTM", "dlrm", "lstm"]


class LSTM(nn.Module):
    """Language model of stacked LSTM cells, written out: Dynamo does not trace `nn.LSTM` in one graph."""

    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.inputs = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.hidden = nn.ModuleList(nn.Linear(width, 4 * width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for inputs, hidden in zip(self.inputs, self.hidden, strict=True):
            projected = inputs(x)  # of all steps at once
            state = cell = torch.zeros_like(x[:, 0])
            states = []
            for step in range(x.shape[1]):
                i, f, g, o = (projected[:, step] + hidden(state)).chunk(4, -1)
                cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
                state = torch.sigmoid(o) * torch.tanh(cell)
                states.append(state)
            x = torch.stack(states, 1)
        return self.head(x)


class DLRM(nn.Module):
    """Recommender (Naumov et al. 2019): bags of embeddings and dense features, and their pairwise products."""

    left: torch.Tensor
    right: torch.Tensor

    def __init__(self, rows: tuple[int, ...], width: int, dense: int, hidden: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(count, width, mode="sum") for count in rows)
        self.bottom = nn.Sequential(nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        fields = len(rows) + 1
        self.top = nn.Sequential(nn.Linear(width + fields * (fields - 1) // 2, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        pairs = torch.tril_indices(fields, fields, -1)
        self.register_buffer("left", pairs[0])
        self.register_buffer("right", pairs[1])

    def forward(self, features: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
        dense = self.bottom(features)
        found = [table(bag) for table, bag in zip(self.tables, bags, strict=True)]
        vectors = torch.stack([dense, *found], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.left, self.right]
        return torch.sigmoid(self.top(torch.cat((dense, products), 1)))


def lstm(*, layers: int = 2, width: int = 24, batch: int = 2, length: int = 6, vocabulary: int = 50) -> Network:
    """LSTM; tokens [batch, length] -> logits [batch, length, vocabulary]."""
    return LSTM(vocabulary, width, layers).eval(), tokens(vocabulary, batch, length)


def dlrm(
    *,
    rows: tuple[int, ...] = (50, 30, 20),
    width: int = 16,
    dense: int = 13,
    hidden: int = 40,
    bag: int = 5,
    batch: int = 6,
) -> Network:
    """DLRM; features [batch, dense] and one bag of rows [batch, bag] for each table -> probabilities [batch, 1]."""

    def make(g: torch.Generator) -> tuple[torch.Tensor, ...]:
        bags = (torch.randint(0, count, (batch, bag), generator=g) for count in rows)
        return (torch.randn(batch, dense, generator=g), *bags)

    return DLRM(rows, width, dense, hidden).eval(), make
