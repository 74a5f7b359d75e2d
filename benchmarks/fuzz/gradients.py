# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of random programs: of a weighted sum of all results, with respect to all float inputs."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.fuzz.device import computed_by_eager
from benchmarks.fuzz.judge import Reference, WrongResult, check, tail
from benchmarks.fuzz.program import Program
from benchmarks.fuzz.roundings import Runs

_Tensors = Sequence[torch.Tensor]
_DIFFERENCES = {"softmax": 2.0**-18, "attention": 2.0**-18, "gelu": 2.0**-20}
"""Of the largest gradient, by function: what is left of equal numbers that are subtracted, as `roundings` has it for
sums."""


def has_gradients(program: Program) -> bool:
    """Whether eager differentiates `program`: no input is written, nothing is NaN by its inputs, and a result depends
    on an input by ops that have derivatives."""
    if any(x.special for x in program.inputs):
        return False
    try:
        values = program.trace(leaves(program))
        return any(g is not None for g in derive(program, values, [values[i] for i in program.results]))
    except (RuntimeError, NotImplementedError):
        return False


def leaves(program: Program, device: str = "cpu", dtype: torch.dtype | None = None) -> list[torch.Tensor]:
    """The inputs, floats as leaves that ask for a gradient, in `dtype` if given."""
    made = program.make(device)
    return [(x if dtype is None else x.to(dtype)).requires_grad_() if x.is_floating_point() else x for x in made]


def derive(program: Program, values: _Tensors, results: _Tensors) -> list[torch.Tensor | None]:
    """Gradients with respect to the inputs, None where nothing depends on one.

    values: all of the program, or its inputs.
    """
    total = None
    for i, result in zip(program.results, results, strict=True):
        if not result.requires_grad:
            continue
        weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        # The same numbers in every precision: those of bf16.
        term = (result * weight.bfloat16().to(result)).sum(dtype=torch.float64)
        total = term if total is None else total + term
    wanted = values[: len(program.inputs)]
    if total is None:
        return [None] * len(wanted)
    asked = [v for v in wanted if v.requires_grad]
    found = iter(torch.autograd.grad(total, asked, allow_unused=True))
    return [next(found) if v.requires_grad else None for v in wanted]


def check_gradients(
    program: Program,
    compiled: Callable[..., _Tensors],
    given: list[torch.Tensor],
    device: str = "cpu",
    for_gpu: bool = False,
) -> None:
    """Results and gradients of `compiled`, a training graph, against eager's and float64's; `for_gpu`: see `Runs`."""
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in given]
    results = compiled(*inputs)
    ours = derive(program, inputs, results)
    runs, double = Runs(program, for_gpu), torch.float64

    def noisy(k: int, scale: float) -> list[torch.Tensor]:
        return runs.noisy(leaves(program, device, double), k, scale)

    with computed_by_eager(device):
        values, wide = runs.eager(leaves(program, device)), runs.wide(leaves(program, device, double))
    detached = [[x.detach() for x in group] for group in (values[: len(inputs)], values, wide)]
    found = Reference(program, *detached, lambda *k: [x.detach() for x in noisy(*k)], tail(program))
    check(found, [x.detach() for x in inputs], [x.detach() for x in results])

    def gradients(values: _Tensors) -> list[torch.Tensor | None]:
        return derive(program, values, [values[i] for i in program.results])

    with computed_by_eager(device):
        eager, exact = gradients(values), gradients(wide)
    sizes = [g.nan_to_num(0.0, 0.0, 0.0).abs().max().item() for g in exact if g is not None and g.numel()]
    # A softmax's backward pass subtracts a mean of gradients from each, a GELU's has 1 + erf(x): what is left of equal
    # numbers is rounding.
    share = max((size for name, size in _DIFFERENCES.items() if any(name in line for line in program.lines)), default=0)
    floor = share * max(sizes, default=0.0)
    found = Reference(program, inputs, eager, exact, lambda *k: gradients(noisy(*k)), floor)
    for i, (mine, theirs, right) in enumerate(zip(ours, found.eager, found.wide, strict=True)):
        if mine is None or theirs is None or right is None:
            # A graph's inputs all have gradients: zeros where eager has none.
            if theirs is not None or (mine is not None and mine.any()):
                raise WrongResult(f"gradient of v{i}: {mine}, eager's {theirs}")
            continue
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            raise WrongResult(f"gradient of v{i}: {mine.dtype} {mine.shape}, eager's {theirs.dtype} {theirs.shape}")
        found.compare(f"gradient of v{i}", mine, i)
