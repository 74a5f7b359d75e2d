# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compiled program's tensors have to be: eager's dtypes, strides and aliases; values judged by float64.

The model of an error: a program runs in float64 a few times with random errors of the size of roundings
(`roundings.py`). How far the results spread is what roundings can do to each element: sums, cancellation and steep
functions included. An element may be `_SPREAD` such distances from float64's, plus a few times what eager's own
elements of its row are. Where three runs do not explain an element, many are made, with larger errors: a sign that a
ReLU sees flips in few of them. One wrong element fails: nothing is averaged over a tensor.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from benchmarks.fuzz.layouts import Layouts, strides, traced
from benchmarks.fuzz.program import Program
from benchmarks.fuzz.roundings import HALF_ULP, Runs

_SPREAD, _EAGER = 16.0, 6.0
_SAMPLES, _MANY = 3, 48
_SCALE, _FARTHEST = 3.0, 8.0 / 3.0
"""Of the farthest of `_MANY` noisy runs, whose errors are `_SCALE` times as large: of 100,000 elements near a kink some
lie where four deviations of an error are needed to pass it, which few runs have.
"""
_REFERENCE = 2.0**-40
"""Relative error of the reference, whose sums are float64's in some order."""
_ROW = 64
"""Elements of a row at least: rows of results are put together until they have as many."""
_TAIL = 2.0**-20
"""What is left of a GELU where one and `tanh` or `erf` cancel: its operand, up to 6 there, times their units."""
_FLUSHED = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-126, torch.float32: 2.0**-126}
"""What may be zero: numbers that are denormal where they are computed."""


Values = torch.Tensor | None


class WrongResult(AssertionError):
    """A compiled program's tensor is not what it has to be."""


@dataclass
class Reference:
    """What a program has to give: values of `eager`, of float64 (`wide`) and of noisy runs (`sample(k, scale)`)."""

    program: Program
    inputs: list[torch.Tensor]
    eager: Sequence[Values]
    wide: Sequence[Values]
    sample: Callable[[int, float], Sequence[Values]]
    floor: float = 0.0
    """An error that any element may have: of differences inside of a call, which noise around calls does not show."""

    @functools.cached_property
    def noisy(self) -> list[Sequence[Values]]:
        """Values of noisy runs, which are made when something is not as near to float64 as eager is."""
        return [self.sample(k, 1.0) for k in range(_SAMPLES)]

    @functools.cached_property
    def farthest(self) -> dict[int, torch.Tensor]:
        """How far many more noisy runs come from float64 at most, by number of the value."""
        far: dict[int, torch.Tensor] = {}
        for k in range(_SAMPLES, _SAMPLES + _MANY):
            for i, (noisy, wide) in enumerate(zip(self.sample(k, _SCALE), self.wide, strict=True)):
                if noisy is not None and wide is not None and wide.is_floating_point():
                    distance = _clean(noisy - wide).abs()
                    far[i] = torch.maximum(far[i], distance) if i in far else distance
        return far

    @functools.cached_property
    def traced(self) -> list[Layouts]:
        """Strides as PyTorch traces the program."""
        return traced(self.program, self.inputs[0].device.type)

    def compare(self, name: str, ours: torch.Tensor, number: int) -> None:
        """One value against eager's and float64's."""
        eager, wide = self.eager[number], self.wide[number]
        assert eager is not None and wide is not None
        try:
            judge(name, ours, eager, wide, allowance(eager, wide) + self.floor)
        except WrongResult:
            if not eager.dtype.is_floating_point:
                raise
            runs = [_clean(x - wide) for run in self.noisy if (x := run[number]) is not None]
            spread = _SPREAD * torch.stack(runs).square().mean(0).sqrt()
            try:
                judge(name, ours, eager, wide, allowance(eager, wide, spread) + self.floor)
            except WrongResult:
                far = torch.maximum(spread, _FARTHEST * self.farthest[number])
                judge(name, ours, eager, wide, allowance(eager, wide, far) + self.floor)


def reference(program: Program, device: str, for_gpu: bool = False) -> Reference:
    """What eager and float64 make of the inputs. for_gpu: roundings are those of a GPU's libraries."""
    runs = Runs(program, for_gpu)
    inputs = program.make(device)
    eager, wide = runs.eager(inputs), runs.wide(widened(program.make(device)))

    def sample(k: int, scale: float) -> Sequence[Values]:
        return runs.noisy(widened(program.make(device)), k, scale)

    return Reference(program, inputs, eager, wide, sample, tail(program))


def tail(program: Program) -> float:
    """What any result may be off by where a GELU's terms cancel."""
    return _TAIL if any("gelu" in line for line in program.lines) else 0.0


def widened(inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Floats in float64."""
    return [x.double() if x.is_floating_point() else x for x in inputs]


def allowance(eager: torch.Tensor, wide: torch.Tensor, spread: torch.Tensor | None = None) -> torch.Tensor:
    """How far each element may be from float64's; `spread`: how far roundings can take each."""
    if not eager.dtype.is_floating_point:
        return torch.zeros(())
    own = _clean(eager.double() - wide)
    half = HALF_ULP.get(eager.dtype, 2.0**-53)
    exact = _clean(wide)
    # Where one number is ill-conditioned among many that are not, eager's tells.
    allowed = (
        torch.maximum(_EAGER * _by_rows(own), 2 * own.abs()) + 2 * half * exact.abs() + _FLUSHED.get(eager.dtype, 0.0)
    )
    allowed += _REFERENCE * torch.maximum(exact.abs(), _by_rows(exact))
    if spread is not None:
        allowed += torch.maximum(spread, _by_rows(spread))
    return allowed


def judge(name: str, ours: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, allowed: torch.Tensor) -> None:
    """One tensor: integers are eager's; floats are as near to float64's as allowed.

    What is NaN or infinite is so in eager or in float64: they disagree where a number is too large for a dtype.
    """
    if not eager.dtype.is_floating_point:
        wrong = ours != eager
        if bool(wrong.any()):
            raise WrongResult(f"{name}: {_where(wrong)}: {ours[wrong][0]}, eager's {eager[wrong][0]}")
        return
    x, y = ours.double(), eager.double()
    rounded = wide.to(eager.dtype).double()  # to infinity, where it is too large
    odd = ~torch.stack([_kind(x) == _kind(right) for right in (y, wide, rounded)]).any(0)
    odd &= ~_is_near_largest(wide, eager.dtype)
    if bool(odd.any()):
        raise WrongResult(
            f"{name}: {_where(odd)}: {x[odd][0]}, eager's {y[odd][0]}, float64's {wide[odd][0]}: not finite elsewhere"
        )
    exact = torch.where(torch.isfinite(wide), wide, y)  # finite in eager alone: eager's is all there is
    both = torch.isfinite(x) & torch.isfinite(exact)
    wrong = both & ((x - exact).abs() > allowed)
    if bool(wrong.any()):
        at = int(torch.where(wrong, (x - exact).abs() / allowed, 0).argmax())
        found, right, limit, theirs = (t.reshape(-1)[at].item() for t in (x, exact, allowed, y))
        raise WrongResult(
            f"{name}: {_where(wrong)}; worst [{at} of {x.numel()}]: {found:.6g}, float64's {right:.6g}, eager's "
            f"{theirs:.6g}, allowed {limit:.3g}"
        )


def check(found: Reference, inputs: list[torch.Tensor], actual: Sequence[torch.Tensor]) -> None:
    """`actual` and what became of `inputs` against eager on the same inputs, and on float64 inputs."""
    program = found.program
    numbers = [*written(program), *program.results]
    actual = (*(inputs[i] for i in written(program)), *actual)
    for ours, i in zip(actual, numbers, strict=True):
        eager = found.eager[i]
        assert eager is not None
        _same(f"v{i}: dtype", ours.dtype, eager.dtype)
        _same(f"v{i}: shape", ours.shape, eager.shape)
        if strides(ours) != strides(eager) and strides(ours) not in [layouts.get(i) for layouts in found.traced]:
            raise WrongResult(f"v{i}: strides {ours.stride()}, eager's {eager.stride()}")
        _same(f"v{i}: inputs that share its memory", _shared(ours, inputs), _shared(eager, found.inputs))
        found.compare(f"v{i}", ours, i)


def written(program: Program) -> range:
    """The inputs that are compared, too: all of them where a line writes in place."""
    return range(len(program.inputs)) if program.has_writes else range(0)


def _same(what: str, ours: object, eager: object) -> None:
    if ours != eager:
        raise WrongResult(f"{what} {ours}, eager's {eager}")


def _clean(x: torch.Tensor) -> torch.Tensor:
    """Zeros where it is not finite."""
    return x.nan_to_num(0.0, 0.0, 0.0)


def _by_rows(x: torch.Tensor) -> torch.Tensor:
    """Of each element the root mean square of its row: the last dims that together have `_ROW` elements."""
    dims, count = 0, 1
    while dims < x.dim() and count < _ROW:
        dims += 1
        count *= x.shape[-dims]
    if not dims or not x.numel():
        return x.abs()
    return x.square().mean(tuple(range(-dims, 0)), keepdim=True).sqrt().expand(x.shape)


def _kind(x: torch.Tensor) -> torch.Tensor:
    """0: finite, 1: NaN, 2: infinite, 3: minus infinite."""
    return torch.isnan(x).int() + 2 * torch.isposinf(x).int() + 3 * torch.isneginf(x).int()


def _is_near_largest(wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a rounding decides whether a number is infinite."""
    largest = torch.finfo(dtype).max
    return (wide.abs() > 0.9 * largest) & (wide.abs() < 1.1 * largest)


def _where(wrong: torch.Tensor) -> str:
    count = int(wrong.sum())
    first = wrong.nonzero()[0].tolist()
    last = wrong.nonzero()[-1].tolist()
    return f"{count} of {wrong.numel()} elements of {list(wrong.shape)} wrong, from {first} to {last}"


def _shared(x: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[int]:
    """The inputs in whose memory `x` lies."""
    memory = x.untyped_storage().data_ptr()
    return [i for i, y in enumerate(inputs) if x.numel() and y.untyped_storage().data_ptr() == memory]
