# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides that PyTorch gives a program's values where it traces it.

ATen's rules for FakeTensors name other strides than its kernels return for some ops (batch_norm), and a graph without
writes (AOTAutograd's) has others again: of one channel nobody can tell where it lies. A compiler may follow each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from benchmarks.fuzz.program import Program

Layouts = dict[int, list[int]]
"""Strides by number of the value."""


def strides(x: torch.Tensor) -> list[int]:
    """Strides that matter: of empty tensors and sizes of 1 eager's own FakeTensors give others (flip, full_like)."""
    return [int(stride) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()]


def traced(program: Program, device: str) -> list[Layouts]:
    """All values' strides with known sizes, and with symbols for them, as in a graph of dynamic sizes, where a size of
    1 decides nothing (channels_last); the results' in AOTAutograd's graphs of both kinds."""
    found: list[Layouts] = []
    for trace in (_of_values, _of_graph):
        for is_dynamic in (False, True):
            FakeTensorMode.cache_clear()  # which has other traces' strides for the same ops
            try:
                found.append(trace(program, device, is_dynamic))
            # Padding by less than nothing takes no symbolic sizes in PyTorch 2.11, and a symbol for a scale that only
            # PyTorch's own pass looks up is none that it knows (interpolate, 2.11 to 2.13).
            except (RuntimeError, KeyError):
                continue
    return found


def _of_values(program: Program, device: str, is_dynamic: bool) -> Layouts:
    inputs = program.make(device)
    with FakeTensorMode(shape_env=ShapeEnv() if is_dynamic else None) as mode:
        known = [StatelessSymbolicContext([DimDynamic.DYNAMIC] * x.dim()) if is_dynamic else None for x in inputs]
        fakes = [mode.from_tensor(x, symbolic_context=c) for x, c in zip(inputs, known, strict=True)]
        return {i: strides(x) for i, x in enumerate(program.trace(fakes))}


def _of_graph(program: Program, device: str, is_dynamic: bool) -> Layouts:
    def as_traced(module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        (outputs,) = module.graph.output_node().args
        assert isinstance(outputs, Sequence)
        values = [o.meta["val"] if isinstance(o, torch.fx.Node) else o for o in outputs]
        sizes = [([*map(int, x.shape)], [*map(int, x.stride())]) if _is_tensor(x) else None for x in values]

        def call(*given: Any) -> list[Any]:
            found = zip(module(*given), sizes, strict=True)
            return [x if known is None else x.new_empty_strided(*known) for x, known in found]

        return make_boxed_func(call)

    with torch.no_grad():
        results = aot_function(program.function(), as_traced, dynamic=is_dynamic)(*program.make(device))
    return {i: strides(x) for i, x in zip(program.results, results, strict=True)}


def _is_tensor(x: object) -> bool:
    return isinstance(x, torch.Tensor)
