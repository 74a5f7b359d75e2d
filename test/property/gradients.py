# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of random programs: of a weighted sum of all results, with respect to all float inputs."""

from collections.abc import Callable, Sequence

import torch
from oracle import check, judge, largest, tolerance
from programs import Program

_Tensors = Sequence[torch.Tensor]


def has_gradients(program: Program) -> bool:
    """Whether eager differentiates `program`: nothing is written (inputs may not be), nothing is NaN by its inputs,
    and a result depends on an input by ops that have derivatives."""
    if program.has_writes or any(x.special for x in program.inputs):
        return False
    try:
        values = program.trace(leaves(program))
        return any(g is not None for g in derive(program, values, [values[i] for i in program.results]))
    except (RuntimeError, NotImplementedError):
        return False


def leaves(program: Program, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """The inputs, floats as leaves that ask for a gradient, in `dtype` if given."""
    made = [x.make() for x in program.inputs]
    return [(x if dtype is None else x.to(dtype)).requires_grad_() if x.is_floating_point() else x for x in made]


def derive(program: Program, values: _Tensors, results: _Tensors, inner: bool = False) -> list[torch.Tensor | None]:
    """Gradients with respect to the inputs (with `inner`, to every value), None where nothing depends on one.

    values: all of the program, or its inputs.
    """
    total = None
    for i, result in zip(program.results, results, strict=True):
        if not result.requires_grad:
            continue
        weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        # The same numbers in every precision: those of bf16.
        term = (result * weight.bfloat16().to(result.dtype)).sum(dtype=torch.float64)
        total = term if total is None else total + term
    wanted = values if inner else values[: len(program.inputs)]
    if total is None:
        return [None] * len(wanted)
    asked = [v for v in wanted if v.requires_grad]
    found = iter(torch.autograd.grad(total, asked, allow_unused=True))
    return [next(found) if v.requires_grad else None for v in wanted]


def check_gradients(
    program: Program, compiled: Callable[..., Sequence[torch.Tensor]], given: list[torch.Tensor]
) -> None:
    """Results and gradients of `compiled`, a training graph, against eager's and float64's."""
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in given]
    results = compiled(*inputs)
    check(program, [x.detach() for x in inputs], tuple(x.detach() for x in results))
    ours = derive(program, inputs, results)
    values, wide = program.trace(leaves(program)), program.wide(leaves(program, torch.float64))
    eager = derive(program, values, [values[i] for i in program.results])
    exact = derive(program, wide, [wide[i] for i in program.results], inner=True)
    scale = largest([g for g in exact if g is not None])
    for i, (mine, theirs, right) in enumerate(zip(ours, eager, exact, strict=False)):
        if mine is None or theirs is None or right is None:
            # A graph's inputs all have gradients: zeros where eager has none.
            assert theirs is None and (mine is None or not mine.any()), f"gradient of v{i}: {mine}, eager's {theirs}"
            continue
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        judge(f"gradient of v{i}", mine, theirs, right, scale, tolerance(values))
