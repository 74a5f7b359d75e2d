# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiled functions of two tensors against float64: numbers relative to the largest, and strides."""

from typing import Any

import torch


def results(values: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return values if isinstance(values, tuple) else (values,)


def check(function: Any, x: torch.Tensor, y: torch.Tensor, tolerance: float, **options: Any) -> None:
    found = results(torch.compile(function, backend="kiln", options={"fallback": False, **options})(x, y))
    for mine, right in zip(found, results(function(x.double(), y.double())), strict=True):
        error = (mine.double() - right).abs().max() / right.abs().max()
        assert float(error) < tolerance, (x.shape, x.dtype, float(error))
        assert mine.stride() == right.stride()
