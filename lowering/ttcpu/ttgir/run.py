# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs what `to_ttir` ships for a kernel whose body in Triton IR is not what runs on a GPU."""

from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import AccessError
from kiln.lowering.gpu.ttir import Spelling, to_ttir
from kiln.lowering.ttcpu.ttgir.interpret import run_ttgir

__all__ = ["run_specialized"]


def run_specialized(function: ir.OpView, tensors: Sequence[torch.Tensor], seed: int = 0) -> None:
    """Interprets the TTGIR of a kernel with the attribute `kiln.specialized` on tensors, one per argument; results are
    written in place. seed: as in `run_ttgir`.

    Raises AccessError for a descriptor that goes past its tensor, and what `run_ttgir` raises.
    """
    attributes = function.operation.attributes
    found = [ir.DictAttr(entry) for entry in ir.ArrayAttr(attributes["kiln.descriptors"])]
    described = {ir.IntegerAttr(d["arg"]).value: d for d in found}
    views = [_view(i, tensor, described[i]) for i, tensor in enumerate(tensors)]
    programs = 1
    for expr in ir.AffineMapAttr(attributes["kiln.grid"]).value.results:
        programs *= affine.evaluate(expr, (), ())
    run_ttgir(to_ttir(function, Spelling(nested_descriptors=True)), views, programs, seed)


def _view(number: int, tensor: torch.Tensor, described: ir.DictAttr) -> torch.Tensor:
    """The tensor as its descriptor says."""
    sizes, strides = (
        [affine.evaluate(e, (), ()) for e in ir.AffineMapAttr(described[key]).value.results]
        for key in ("shape", "strides")
    )
    last = sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    end = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if last > end:
        raise AccessError(f"the tensor map of argument {number} reaches element {last}; it has {end + 1}")
    return tensor.as_strided(sizes, strides)
