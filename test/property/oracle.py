# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compiled program's tensors have to be: eager's dtypes, strides and aliases; values judged by float64."""

import math
from collections.abc import Sequence

import torch
from programs import Program
from torch._subclasses.fake_tensor import FakeTensorMode

EPSILON = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Error allowed, relative to the largest value of the program; chains of ten ops, some of them long sums."""


def check(program: Program, inputs: list[torch.Tensor], actual: tuple[torch.Tensor, ...]) -> None:
    """`actual` and what became of `inputs` against eager on the same inputs, and on float64 inputs."""
    copies = [x.make() for x in program.inputs]
    wide = program.wide([x.double().clone() if x.is_floating_point() else x.clone() for x in copies])
    values = program.trace(copies)
    written = range(len(inputs)) if program.has_writes else range(0)
    actual = (*(inputs[i] for i in written), *actual)
    numbers = [*written, *program.results]
    scale, lowest = largest(wide), tolerance(values)
    for ours, i in zip(actual, numbers, strict=True):
        eager = values[i]
        assert ours.dtype == eager.dtype, f"v{i}: {ours.dtype}, eager's {eager.dtype}"
        assert ours.shape == eager.shape, f"v{i}: shape {ours.shape}, eager's {eager.shape}"
        # Where ATen's rules for FakeTensors name other strides than its kernels return (batch_norm), a compiler may
        # follow either: the graph was traced with those.
        has_strides = _strides(ours) == _strides(eager) or _strides(ours) == _strides(traced(program)[i])
        assert has_strides, f"v{i}: strides {ours.stride()}, eager's {eager.stride()}"
        assert _shared(ours, inputs) == _shared(eager, copies), f"v{i} shares memory with other inputs than eager's"
        judge(f"v{i}", ours, eager, wide[i], scale, lowest)


def judge(name: str, ours: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, scale: float, lowest: float) -> None:
    """One tensor: integers are eager's; floats are as near to float64 as eager's are, or `lowest` of `scale`.

    What is NaN or infinite is so in eager. Where eager and float64 disagree about that (a sum that overflows in f16
    only, GELU of an infinity, whose NaN depends on the instructions that eager has), ours has to agree with one.
    """
    if not eager.dtype.is_floating_point:
        assert torch.equal(ours, eager), f"{name}: {ours} is not {eager}"
        return
    x, y, z = ours.double(), eager.double(), wide.double()
    as_eager, as_wide = _kind(x) == _kind(y), _kind(x) == _kind(z)
    assert bool((as_eager | as_wide).all()), (
        f"{name}: {ours} is NaN or infinite elsewhere than {eager}, float64's {wide}"
    )
    exact = torch.where(torch.isfinite(z), z, y)  # finite in eager alone: eager's is all there is
    both = torch.isfinite(x) & torch.isfinite(y) & torch.isfinite(z)
    reference = _distance(y[both], z[both])
    error = _distance(x[torch.isfinite(x)], exact[torch.isfinite(x)])
    assert error <= max(3 * reference, lowest * scale), f"{name}: error {error}, eager's {reference}, scale {scale}"


def tolerance(values: Sequence[torch.Tensor]) -> float:
    """The error allowed for a program with such values, relative to its scale: that of its narrowest type."""
    return max((EPSILON[v.dtype] for v in values if v.dtype in EPSILON), default=0.0)


def largest(values: Sequence[torch.Tensor]) -> float:
    """The largest finite number among floats, at least 1."""
    numbers = [v[torch.isfinite(v)].abs() for v in values if v.dtype.is_floating_point]
    return max([1.0, *(float(v.max()) for v in numbers if v.numel())])


def traced(program: Program) -> list[torch.Tensor]:
    """All values as FakeTensors."""
    inputs = [x.make() for x in program.inputs]
    with FakeTensorMode() as mode:
        return program.trace([mode.from_tensor(x) for x in inputs])


def _kind(x: torch.Tensor) -> torch.Tensor:
    """0: finite, 1: NaN, 2: infinite, 3: minus infinite."""
    return torch.isnan(x).int() + 2 * torch.isposinf(x).int() + 3 * torch.isneginf(x).int()


def _shared(x: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[int]:
    """The inputs in whose memory `x` lies."""
    memory = x.untyped_storage().data_ptr()
    return [i for i, y in enumerate(inputs) if x.numel() and y.untyped_storage().data_ptr() == memory]


def _strides(x: torch.Tensor) -> list[int]:
    """Strides that matter: of empty tensors and sizes of 1 eager's own FakeTensors give others (flip, full_like)."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()]


def _distance(x: torch.Tensor, y: torch.Tensor) -> float:
    if not x.numel():
        return 0.0
    worst = float((x - y).abs().max())
    return math.inf if math.isnan(worst) else worst
