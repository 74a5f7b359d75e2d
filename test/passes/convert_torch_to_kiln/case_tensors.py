# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the conversions are tried on: seeded tensors of each kind, and the values that go wrong first."""

import torch

INF, NAN = float("inf"), float("nan")

EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 6.0, 30.0, -30.0, 1e-6, NAN, INF, -INF]
)


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Seeded normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def ints(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64, seed: int = 0) -> torch.Tensor:
    """Seeded integers."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X = noise(4, 6)
UNIT = torch.linspace(-0.95, 0.95, 24).reshape(4, 6)
POSITIVE = X.abs() + 0.1
I64, I32, I8, U8 = (
    ints(4, 6),
    ints(4, 6, dtype=torch.int32),
    ints(4, 6, dtype=torch.int8),
    ints(4, 6, low=0, dtype=torch.uint8),
)
BOOLS = ints(4, 6, low=0, high=2).bool()
GRAD = noise(4, 6, seed=7)

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
)
