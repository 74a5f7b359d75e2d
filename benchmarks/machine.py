# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks.machine``: the figures of fusion's cost model (`fusion.cost.Machine`) here.

Each is the slope between two sizes of one compiled function, so that what a call costs by itself is left out, and the
best of several runs. Rates are those of one thread in its CPU time; a launch is wall time of two threads, for that is
what waking them takes: one thread goes from kernel to kernel in nanoseconds. The ratios of the figures count.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable

import torch

__all__ = ["measure"]


def _compile(call: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    import kiln

    torch._dynamo.reset()
    return torch.compile(call, backend=kiln.backend, options={"fallback": False})


def _seconds(
    call: Callable[..., torch.Tensor], *inputs: torch.Tensor, repeats: int, clock: Callable[[], float], runs: int = 9
) -> float:
    """Seconds of one call, the best of `runs`."""
    call(*inputs)
    best = float("inf")
    for _ in range(runs):
        start = clock()
        for _ in range(repeats):
            call(*inputs)
        best = min(best, (clock() - start) / repeats)
    return best


def _slope(
    make: Callable[[int], tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]],
    sizes: tuple[int, int],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Seconds that one more of what `sizes` count takes."""
    small, large = (
        _seconds(_compile(call), *inputs, repeats=repeats, clock=clock) for call, inputs in map(make, sizes)
    )
    return max(large - small, 1e-12) / (sizes[1] - sizes[0])


def _launches(count: int) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """`count` kernels that cannot be one: each reduces what the one before keeps, and is worth waking threads for."""

    def call(x: torch.Tensor) -> torch.Tensor:
        for k in range(count):
            x = x - x.amax(k % 2, keepdim=True)
        return x

    return call, (torch.randn(256, 256),)


def _copied(elements: int) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    return lambda x: x + 1, (torch.randn(elements),)


def _computed(steps: int) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    """Twice `steps` operations on each of 16384 elements."""

    def call(x: torch.Tensor) -> torch.Tensor:
        y = x
        for k in range(steps):
            y = y * x + (0.5 + k)
        return y

    return call, (torch.randn(1 << 14),)


def _multiplied(columns: int) -> tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]:
    return torch.mm, (torch.randn(256, 256), torch.randn(256, columns))


def _launch() -> float:
    """Seconds that two threads take for a kernel beyond half of what one thread takes."""
    sizes = (2, 8)
    torch.set_num_threads(1)
    alone = _slope(_launches, sizes, repeats=50)
    torch.set_num_threads(2)
    return max(0.0, _slope(_launches, sizes, repeats=50, clock=time.perf_counter) - alone / 2)


def measure() -> dict[str, float]:
    """Figures by the names of `Machine`'s fields, rates per second. Sets torch's threads while it runs."""
    threads = torch.get_num_threads()
    try:
        with torch.no_grad():
            found = {"launch": _launch()}
            torch.set_num_threads(1)
            return found | {
                "cache_rate": 8 / _slope(_copied, (1 << 14, 1 << 16), repeats=200),
                "memory_rate": 8 / _slope(_copied, (1 << 24, 1 << 25), repeats=2),
                "vector_rate": 2 * (1 << 14) / _slope(_computed, (8, 40), repeats=100),
                "product_rate": 2 * 256 * 256 / _slope(_multiplied, (256, 1024), repeats=20),
            }
    finally:
        torch.set_num_threads(threads)


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    from kiln.passes.fusion.cost import Machine

    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine", description="Figures of the cost model.")
    parser.parse_args(argv)
    used = dataclasses.asdict(Machine())
    print("| figure | here | in the model |\n|---|---|---|")
    for name, value in measure().items():
        print(f"| {name} | {value:.3g} | {used[name]:.3g} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
