# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How fast a core of this CPU is, by kernels that Kiln compiles.

Each rate is the slope between two sizes of one compiled function, so that what a call costs by itself is left out, and
the best of several runs. Rates are those of one thread in its CPU time; a launch is wall time of two threads, for that
is what waking them takes: one thread goes from kernel to kernel in nanoseconds.
"""

import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.rates import CpuRates, generic
from kiln.tools.machine.facts import Fact, Facts, Tell, origin, write

__all__ = ["measure_cpu", "processor_name", "write_cpu"]

Clock = Callable[[], float]
Made = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]
"""A function, and what it is called with."""
_RUNS = 9
_LONGEST_LAUNCH = 20e3
"""Nanoseconds beyond which threads were not waited for, but for other work on the machine."""
_HIGHEST_RATE = 1000.0
"""Bytes a nanosecond that no core reads: two vectors of 64 bytes a cycle are fewer."""
_SAMPLE = 2e-3
"""Seconds that a run takes at least: shorter ones are called several times."""


def processor_name() -> str:
    """The product name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write_cpu(path: Path, facts: Facts) -> None:
    """The file of this CPU."""
    write(path, CpuRates, processor_name(), isa.host().name, facts)


def measure_cpu(tell: Tell = lambda _: None) -> Facts:
    """The facts by the names of `CpuRates`'s fields. Sets torch's threads while it runs; about a minute."""
    threads, by = torch.get_num_threads(), origin("llvmlite", "torch-mlir")
    try:
        with torch.no_grad():
            facts = {"launch_time": _launch_time(by, tell), "cache_bytes": Fact(isa.host().l2_bytes, "the system")}
            torch.set_num_threads(1)
            return facts | _copies(by, tell) | _reads(by, tell) | _operations(by, tell)
    finally:
        torch.set_num_threads(threads)


def _copies(by: str, tell: Tell) -> Facts:
    """Bytes a nanosecond that a kernel reads and writes; tensors of a quarter of the cache, and of 128 MiB."""
    near = isa.host().l2_bytes // 16
    sizes = {"cache_rate": (near // 4, near), "memory_rate": (1 << 24, 1 << 25)}
    found: Facts = {}
    for name, size in sizes.items():
        tell(name)
        found[name] = Fact(_positive(8 / _slope(_copied, size)), f"{by}: x + 1 of {4 * size[1] >> 10} KiB")
    return found


def _reads(by: str, tell: Tell) -> Facts:
    """Bytes a nanosecond that are read from each cache, by tensors of an eighth and half of it. A nearer cache is at
    least as fast as a farther one: what is measured to be slower was disturbed.
    """
    host = isa.host()
    found: Facts = {}
    least = 0.0
    for name, size in (("l3_rate", host.l3_bytes // 2), ("l2_rate", host.l2_bytes), ("l1_rate", 1 << 15)):
        if not size:
            found[name] = Fact(0.0, "there is no such cache, or the system does not tell")
            continue
        tell(name)
        rate = statistics.median(4 / _slope(_read, (size // 32, size // 8)) for _ in range(3))
        if rate > _HIGHEST_RATE:
            found[name] = Fact(0.0, "too short to tell")
            continue
        least = max(least, rate)
        found[name] = Fact(_positive(least), f"{by}: the largest of {size >> 11} KiB of f32")
    return found


def _operations(by: str, tell: Tell) -> Facts:
    found: Facts = {}
    tell("vector_rate")
    found["vector_rate"] = Fact(
        _positive(2 * (1 << 14) / _slope(_computed, (8, 40))), f"{by}: multiplications and additions of 64 KiB of f32"
    )
    products = {"product_rate": _multiplied, "bf16_rate": _multiplied_bf16, "int8_rate": _multiplied_int8}
    for name, make in products.items():
        tell(name)
        rate = 2 * 256 * 256 / _slope(make, (256, 1024))
        found[name] = Fact(_positive(rate), f"{by}: product of 256 x 256 and 256 x n")
    return found


def _launch_time(by: str, tell: Tell) -> Fact:
    """Nanoseconds that two threads take for a kernel beyond half of what one thread takes."""
    otherwise = generic().launch_time
    if isa.host().cores < 2:
        return Fact(otherwise, "as for other machines: there is one core")
    tell("launch_time")
    torch.set_num_threads(1)
    alone = _slope(_launches, (2, 8))
    torch.set_num_threads(2)
    found = min(_slope(_launches, (2, 8), clock=time.perf_counter) for _ in range(3)) - alone / 2
    if not 1.0 <= found <= _LONGEST_LAUNCH:
        return Fact(otherwise, "as for other machines: this one was too busy to tell")
    return Fact(_positive(found), f"{by}: two threads")


def _positive(rate: float) -> float:
    """Three digits, and more than 0."""
    return max(float(f"{rate:.3g}"), 1e-3)


def _slope(make: Callable[[int], Made], sizes: tuple[int, int], clock: Clock = time.process_time) -> float:
    """Nanoseconds that one more of what `sizes` count takes."""
    small, large = (_seconds(*make(size), clock=clock) for size in sizes)
    return 1e9 * max(large - small, 1e-12) / (sizes[1] - sizes[0])


def _seconds(call: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], clock: Callable[[], float]) -> float:
    """Seconds of one call, the best of several runs."""
    import kiln

    torch._dynamo.reset()
    options: dict[str, Any] = {"fallback": False, "cache": False}
    compiled = torch.compile(call, backend=kiln.backend, dynamic=False, options=options)
    compiled(*inputs)
    start = clock()
    compiled(*inputs)
    repeats = max(1, min(1000, round(_SAMPLE / max(clock() - start, 1e-7))))
    best = float("inf")
    for _ in range(_RUNS):
        start = clock()
        for _ in range(repeats):
            compiled(*inputs)
        best = min(best, (clock() - start) / repeats)
    return best


def _launches(count: int) -> Made:
    """`count` kernels that cannot be one: each reduces what the one before keeps, and is worth waking threads for."""

    def call(x: torch.Tensor) -> torch.Tensor:
        for k in range(count):
            x = x - x.amax(k % 2, keepdim=True)
        return x

    return call, (torch.randn(256, 256),)


def _copied(elements: int) -> Made:
    def call(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    return call, (torch.randn(elements),)


def _read(elements: int) -> Made:
    return torch.amax, (torch.randn(elements),)


def _computed(steps: int) -> Made:
    """Twice `steps` operations on each of 16384 elements."""

    def call(x: torch.Tensor) -> torch.Tensor:
        y = x
        for k in range(steps):
            y = y * x + (0.5 + k)
        return y

    return call, (torch.randn(1 << 14),)


def _multiplied(columns: int) -> Made:
    return torch.mm, (torch.randn(256, 256), torch.randn(256, columns))


def _multiplied_bf16(columns: int) -> Made:
    return torch.mm, (torch.randn(256, 256).bfloat16(), torch.randn(256, columns).bfloat16())


def _multiplied_int8(columns: int) -> Made:
    lhs, rhs = (torch.randint(-128, 128, (256, n), dtype=torch.int8) for n in (256, columns))
    return torch.ops.aten._int_mm.default, (lhs, rhs)
