# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random programs compiled by Kiln against eager: dtypes and strides exactly, values against float64.

`pytest test/property` runs a fixed sample; `--slow` runs two thousand programs that differ each time.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from families import programs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from programs import Program
from torch._subclasses.fake_tensor import FakeTensorMode

import kiln

EPSILON = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Error allowed, relative to the largest value of the program; chains of ten ops, some of them long sums."""


SETTINGS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"freezing": True}, {"cpu": "x86-64-v3"}, {"freezing": True, "cpu": "x86-64-v3"},
)  # fmt: skip
"""Options of the backend that programs run with; `freezing` makes all inputs but the first constants."""


class Holder(torch.nn.Module):
    """A module of the function: inputs behind the first are buffers."""

    def __init__(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function, self.count = function, len(tensors)
        for i, tensor in enumerate(tensors):
            self.register_buffer(f"b{i}", tensor)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *(getattr(self, f"b{i}") for i in range(self.count)))


def run(program: Program, dynamic: bool = False, **options: Any) -> None:
    """Compile `program`, run it, compare it with eager.

    What PyTorch itself does not trace, or traces wrongly (`backend="aot_eager"` tells), is no failure.
    """
    try:
        attempt(program, dynamic, kiln.backend, {"fallback": False, **options})
    except Exception as error:
        # The scale of attention over a dynamic head size, computed by the graph itself: such graphs run with ATen.
        if "(SymFloat)" in str(error):
            return
        if not fails_in_pytorch(program, dynamic):
            raise


def fails_in_pytorch(program: Program, dynamic: bool) -> bool:
    """Whether PyTorch itself does not trace `program`, or traces it wrongly."""
    try:
        attempt(program, dynamic, "aot_eager", None)
    except Exception:
        return True
    return False


def attempt(program: Program, dynamic: bool, backend: Any, options: dict[str, Any] | None) -> None:
    """One compilation by `backend`, compared with eager; at two sizes if `dynamic`."""
    inputs = [x.make() for x in program.inputs]
    torch._dynamo.reset()
    model, given = program.function(), inputs
    if options is not None and options.get("freezing"):
        model, given = Holder(model, inputs[1:]), inputs[:1]
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic, options=options)
    with torch.no_grad():
        actual = compiled(*given)
    check(program, inputs, actual)
    if dynamic and given is inputs:
        again(program, compiled)


def again(program: Program, compiled: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    """The same code at other sizes: each size above 1 is larger by 2, if eager takes that."""
    sizes = {n for x in program.inputs for n in x.shape if n > 1}
    if any(not x.dtype.is_floating_point for x in program.inputs):
        return  # indices may be out of bounds or in other relations to the sizes
    other = [replace(x, shape=tuple(n + 2 if n in sizes else n for n in x.shape)) for x in program.inputs]
    grown = Program(other, program.lines, program.results)
    try:
        grown.trace([x.make() for x in other])
    except (RuntimeError, IndexError, ValueError, TypeError):
        return
    inputs = [x.make() for x in other]
    with torch.no_grad():
        actual = compiled(*inputs)
    check(grown, inputs, actual)


def check(program: Program, inputs: list[torch.Tensor], actual: tuple[torch.Tensor, ...]) -> None:
    """`actual` and what became of `inputs` against eager on the same inputs, and on float64 inputs."""
    copies = [x.make() for x in program.inputs]
    wide = program.wide([x.double().clone() if x.is_floating_point() else x.clone() for x in copies])
    values = program.trace(copies)
    written = range(len(inputs)) if program.has_writes else range(0)
    actual = (*(inputs[i] for i in written), *actual)
    numbers = [*written, *program.results]
    expected = [values[i] for i in numbers]
    scale = max([1.0, *(_largest(v) for v in wide if v.dtype.is_floating_point)])
    lowest = max((EPSILON[v.dtype] for v in values if v.dtype in EPSILON), default=0.0)
    for ours, eager, i in zip(actual, expected, numbers, strict=True):
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        # What ATen's own rules for FakeTensors say is as good (of batch_norm they say other strides than its kernels).
        has_strides = _strides(ours) == _strides(eager) or _strides(ours) == _strides(traced(program)[i])
        assert has_strides, f"v{i}: strides {ours.stride()}, eager's {eager.stride()}"
        assert _shared(ours, inputs) == _shared(eager, copies), f"v{i} shares memory with other inputs than eager's"
        if not eager.dtype.is_floating_point:
            assert torch.equal(ours, eager), f"v{i}: {ours} is not {eager}"
            continue
        x, y, z = ours.double(), eager.double(), wide[i].double()
        # Where eager and float64 disagree about what is finite (overflow) or NaN (gelu of infinity), either is right.
        settled = (torch.isfinite(y) == torch.isfinite(z)) & (torch.isnan(y) == torch.isnan(z))
        assert torch.equal(torch.isnan(x) & settled, torch.isnan(y) & settled), f"v{i}: NaNs differ"
        infinite = torch.isinf(y) & settled
        assert torch.equal(x[infinite], y[infinite]), f"v{i}: infinities differ"
        finite = torch.isfinite(y) & settled
        error, reference = _distance(x[finite], z[finite]), _distance(y[finite], z[finite])
        assert error <= max(3 * reference, lowest * scale), f"v{i}: error {error}, eager's {reference}, scale {scale}"


def traced(program: Program) -> list[torch.Tensor]:
    """All values as FakeTensors."""
    inputs = [x.make() for x in program.inputs]
    with FakeTensorMode() as mode:
        return program.trace([mode.from_tensor(x) for x in inputs])


def _shared(x: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[int]:
    """The inputs in whose memory `x` lies."""
    memory = x.untyped_storage().data_ptr()
    return [i for i, y in enumerate(inputs) if x.numel() and y.untyped_storage().data_ptr() == memory]


def _strides(x: torch.Tensor) -> list[int]:
    """Strides that matter: of empty tensors and sizes of 1 eager's own FakeTensors give others (flip, full_like)."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()]


def _largest(x: torch.Tensor) -> float:
    finite = x[torch.isfinite(x)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _distance(x: torch.Tensor, y: torch.Tensor) -> float:
    if not x.numel():
        return 0.0
    worst = float((x - y).abs().max())
    return math.inf if math.isnan(worst) else worst


COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": False}


@settings(max_examples=24, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs(), st.sampled_from(SETTINGS))
def test_static(program: Program, options: dict[str, Any]) -> None:
    run(program, **options)


@settings(max_examples=10, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs(6))
def test_dynamic(program: Program) -> None:
    run(program, dynamic=True)


@pytest.mark.slow
@settings(max_examples=2000, database=None, **COMMON)
@given(programs(14), st.booleans(), st.sampled_from(SETTINGS))
def test_many(program: Program, dynamic: bool, options: dict[str, Any]) -> None:
    run(program, dynamic, **options)
