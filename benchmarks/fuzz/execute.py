# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiles a program in one of the ways that models are compiled, and judges what it returns."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

import kiln
from benchmarks.fuzz.device import EagerBreaksDevice, LikeOnGpu, computed_by_eager, works
from benchmarks.fuzz.gradients import check_gradients, derive, has_gradients, leaves
from benchmarks.fuzz.judge import WrongResult, check, reference
from benchmarks.fuzz.program import Program
from benchmarks.fuzz.roundings import ReferenceFailed
from kiln.frontend.calls.boxed_graph import LOST_ALIAS

if TYPE_CHECKING:
    from kiln.runtime.checked.serial_threads import SerialThreads


@dataclass(frozen=True)
class Setting:
    """How a program is compiled. `options`: the backend's; `freezing` makes all inputs but the first constants.

    dynamic: sizes are known at run time only, and it is called with others, too. partly: those of one number are, where
    eager takes another one in their place, as that of a batch; the others are constants.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    dynamic: bool = False
    partly: bool = False
    training: bool = False
    device: str = "cpu"
    threads: int = 1

    @property
    def for_gpu(self) -> bool:
        """Whether kernels and libraries are a GPU's, or stand for those."""
        return self.device == "cuda" or self.options.get("target") == "tt-cpu"


Marks = Sequence[Sequence[int]]
GROWTH = 2
PARTS = slice(1), slice(1, None)
"""Dimensions of tensors in whose sizes one is looked for that grows alone: a batch's first."""
STATIC, DYNAMIC = Setting("static"), Setting("dynamic", dynamic=True)


class Holder(torch.nn.Module):
    """A module of the function: inputs behind the first are buffers."""

    def __init__(self, function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.function, self.count = function, len(tensors)
        for i, tensor in enumerate(tensors):
            self.register_buffer(f"b{i}", tensor)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *(getattr(self, f"b{i}") for i in range(self.count)))


def run(program: Program, setting: Setting = STATIC) -> bool:
    """Compile `program`, run it, compare it with eager; a graph that is not compiled is a failure.

    False if it says nothing: PyTorch itself does not trace it, or traces it wrongly (`backend="aot_eager"` tells), or
    eager breaks the GPU.
    """
    return not why_skipped(program, setting)


def why_skipped(program: Program, setting: Setting) -> str:
    """`run`, and why that says nothing, if so; else an empty text."""
    if setting.training and not has_gradients(program):
        setting = replace(setting, training=False)
    try:
        attempt(program, setting, kiln.backend, {"fallback": False, "verify": "stages", **setting.options})
    except EagerBreaksDevice as error:
        return str(error)
    except ReferenceFailed:
        raise
    except Exception as error:
        if not works(setting.device):
            raise
        if LOST_ALIAS in str(error):  # ATen's: the only graphs for which that is right
            attempt(program, setting, kiln.backend, setting.options)
            return ""
        reason = fails_in_pytorch(program, setting)
        if not reason:
            raise
        return f"{reason}; Kiln: {type(error).__name__}: {error}"
    return ""


def fails_in_pytorch(program: Program, setting: Setting) -> str:
    """Why PyTorch itself does not trace `program`, or what it traces wrongly; an empty text if it does well.

    Three attempts, each behind memory of NaN: kernels of ATen that return other numbers at each call (oneDNN's gradient
    of a bf16 convolution over one pixel) are near eager's in some. The same kernel leaves elements unwritten, those of
    its weight that meet no pixel: eager's own gradients then show what was there before.
    """
    try:
        for _ in range(3):
            _leave(float("nan"))
            attempt(program, setting, "aot_eager", None)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if setting.training and has_gradients(program) and _shows_unwritten(program, setting):
        return "eager leaves elements of a gradient unwritten"
    return ""


def _shows_unwritten(program: Program, setting: Setting) -> bool:
    """Whether eager's gradients have NaN behind memory of NaN where they have none behind zeros."""
    torch.set_num_threads(setting.threads)

    def are_nan(left: float) -> list[torch.Tensor]:
        inputs = leaves(program, setting.device)
        values = program.trace(inputs)
        results = [values[i] for i in program.results]
        _leave(left)
        return [x.isnan() for x in derive(program, inputs, results) if x is not None]

    known = are_nan(0.0)
    return any(not torch.equal(x, y) for _ in range(3) for x, y in zip(are_nan(float("nan")), known, strict=True))


def _leave(number: float) -> None:
    """Fill memory of the CPU's allocator with a number and give it back, blocks of 256 bytes to 32 MiB."""
    for _ in [torch.full((2**size,), number) for size in range(6, 24)]:
        pass


def attempt(program: Program, setting: Setting, backend: Any, options: dict[str, Any] | None) -> None:
    """One compilation by `backend`, compared with eager; at two sizes if they are dynamic."""
    marks, grown = growth(program, setting)
    dynamic = None if marks else setting.dynamic
    inputs = made(program, setting, marks)
    torch._dynamo.reset()
    torch.set_num_threads(setting.threads)
    model, given = program.function(), inputs
    if options is not None and options.get("freezing"):
        model, given, grown = Holder(model, inputs[1:]), inputs[:1], None  # constants do not grow, numbers are some
    is_serial = options is not None and setting.device == "cpu" and not setting.for_gpu and setting.threads == 1
    with warnings.catch_warnings(), _serial_threads() if is_serial else nullcontext() as threads:
        warnings.simplefilter("ignore")
        compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic, options=options)
        call = compiled if isinstance(model, Holder) else program.with_numbers(compiled)
        judge_call(program, call, given, inputs, setting)
        if threads is not None:
            check_shares(program, call, setting, threads, marks)
        if grown is not None:
            inputs, call = made(grown, setting, marks), grown.with_numbers(compiled)
            judge_call(grown, call, inputs, inputs, setting)
            if threads is not None:
                check_shares(grown, call, setting, threads, marks)


def growth(program: Program, setting: Setting) -> tuple[Marks, Program | None]:
    """The dimensions of each input that alone are dynamic, if they are, and the program at other sizes, if eager takes
    that.
    """
    if not setting.dynamic:
        return [], None
    for_gpu = setting.device == "cuda"
    if setting.partly:
        first, other = ({n for x in program.inputs for n in x.shape[part] if n > 1} for part in PARTS)
        for size in [*sorted(first), *sorted(other - first)]:
            grown = larger(program, for_gpu, size)
            if grown is not None:
                return [[dim for dim, n in enumerate(x.shape) if n == size] for x in program.inputs], grown
    return [], larger(program, for_gpu)


def made(program: Program, setting: Setting, marks: Marks = ()) -> list[torch.Tensor]:
    """The inputs, with the dimensions of each marked as dynamic."""
    inputs = program.make(setting.device)
    for tensor, dims in zip(inputs, marks, strict=False):
        for dim in dims:
            torch._dynamo.maybe_mark_dynamic(tensor, dim)
    return inputs


def judge_call(
    program: Program,
    compiled: Callable[..., Any],
    given: list[torch.Tensor],
    inputs: list[torch.Tensor],
    setting: Setting,
) -> None:
    """Call `compiled`, and compare results and effects, or results and gradients, with eager's."""
    if setting.training:
        check_gradients(program, compiled, given, setting.device, setting.for_gpu)
        return
    with torch.no_grad():
        actual = compiled(*given)
        with computed_by_eager(setting.device):
            found = reference(program, setting.device, setting.for_gpu)
        check(found, inputs, actual)
        if not program.has_writes:  # further calls: memory that the first one left, a GPU's replays
            for _ in range(2 if setting.device == "cuda" else 1):
                check(found, inputs, compiled(*given))


def _serial_threads() -> "AbstractContextManager[SerialThreads]":
    # A process that was forked behind this import computes on one thread; the fuzzer's children would.
    from kiln.runtime.checked.serial_threads import serial_threads

    return serial_threads()


SHARES = (2, 3, 7)
"""Numbers of threads that share the kernels, one after the other."""


def check_shares(
    program: Program, compiled: Callable[..., Any], setting: Setting, threads: "SerialThreads", marks: Marks = ()
) -> None:
    """Compare what several threads make, one after the other, in both orders, and with what one thread makes.

    The order changes no bit. Blocks, and with them roundings, may depend on the number of threads: where bits differ
    from one thread's, float64 is the judge.
    """
    count = 1 if setting.options.get("freezing") else len(program.inputs)
    if program.has_writes and count < len(program.inputs):
        return  # what the module holds has changed

    def values() -> list[torch.Tensor | None]:
        given = made(program, setting, marks)[:count]
        if not setting.training:
            with torch.no_grad():
                return [*compiled(*given), *given]
        given = [x.requires_grad_() if x.is_floating_point() else x for x in given]
        results = compiled(*given)
        return [*(x.detach() for x in results), *derive(program, given, results)]

    def judged() -> None:
        inputs = made(program, setting, marks)
        judge_call(program, compiled, inputs[:count], inputs, setting)

    alone = threads.call(values)
    for number in SHARES:
        forward, backward = threads.call(values, number), threads.call(values, number, "reversed")
        _same_bits(f"{number} threads, the last one first", backward, forward)
        try:
            _same_bits(f"{number} threads", forward, alone)
        except WrongResult as error:
            try:
                threads.call(judged, number)
            except WrongResult as wrong:
                raise WrongResult(f"{wrong}; {error}") from wrong


def _same_bits(name: str, found: Sequence[torch.Tensor | None], other: Sequence[torch.Tensor | None]) -> None:
    for i, (x, y) in enumerate(zip(found, other, strict=True)):
        if x is None or y is None:
            continue
        wrong = (x != y) & ~((x != x) & (y != y))
        if bool(wrong.any()):
            raise WrongResult(
                f"{name}: {int(wrong.sum())} of {wrong.numel()} elements of value {i} change, one from {y[wrong][0]} "
                f"to {x[wrong][0]}"
            )


def larger(program: Program, for_gpu: bool = False, size: int | None = None) -> Program | None:
    """The same program at other sizes: `size`, or each above 1, is larger, if eager takes that (and breaks no GPU).

    With all sizes, integer arguments are farther from 0.
    """
    sizes = {n for x in program.inputs for n in x.shape if n > 1} if size is None else {size}
    indices = [x for x in program.inputs if not x.dtype.is_floating_point]
    if indices and (size is None or size in {x.high for x in indices}):
        return None  # indices may be out of bounds or in other relations to the sizes
    inputs = [replace(x, shape=tuple(n + GROWTH if n in sizes else n for n in x.shape)) for x in program.inputs]
    numbers = program.numbers if size else tuple(n + GROWTH if n > 0 else n - GROWTH for n in program.numbers)
    grown = Program(inputs, program.lines, program.results, numbers=numbers)
    try:
        with LikeOnGpu() if for_gpu else nullcontext():
            grown.trace(grown.make())
    except (RuntimeError, IndexError, ValueError, TypeError):
        return None
    return grown
