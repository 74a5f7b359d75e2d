# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Vector math next to torch eager: ``python -m benchmarks.vector_math [--markdown] [op ...]``.

Picoseconds of thread CPU time per element on one thread, load and store included, on arrays that fit L2; rounds of
both sides interleave, medians are shown.  `move` (absf) is what load and store alone cost.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from kiln.lowering.cpu.isa import host
from kiln.lowering.cpu.vector_math.evaluate import compile_op

ROUNDS, REPEATS = 15, 10
BYTES = 64 << 10  # of each array

# op -> (torch function or None, interval of the operands)
CASES: dict[str, tuple[Callable | None, tuple[float, float]]] = {
    "absf": (torch.abs, (-9, 9)),
    "exp": (torch.exp, (-9, 9)),
    "exp2": (torch.exp2, (-9, 9)),
    "expm1": (torch.expm1, (-9, 9)),
    "sinh": (torch.sinh, (-9, 9)),
    "cosh": (torch.cosh, (-9, 9)),
    "tanh": (torch.tanh, (-9, 9)),
    "log": (torch.log, (1e-3, 20)),
    "log2": (torch.log2, (1e-3, 20)),
    "log10": (torch.log10, (1e-3, 20)),
    "log1p": (torch.log1p, (-0.99, 20)),
    "asinh": (torch.asinh, (-9, 9)),
    "acosh": (torch.acosh, (1, 20)),
    "atanh": (torch.atanh, (-1, 1)),
    "sin": (torch.sin, (-9, 9)),
    "cos": (torch.cos, (-9, 9)),
    "tan": (torch.tan, (-9, 9)),
    "asin": (torch.asin, (-1, 1)),
    "acos": (torch.acos, (-1, 1)),
    "atan": (torch.atan, (-9, 9)),
    "atan2": (torch.atan2, (-9, 9)),
    "erf": (torch.erf, (-4, 4)),
    "erfc": (torch.erfc, (-4, 4)),
    "powf": (torch.pow, (0.1, 9)),
    "rsqrt": (torch.rsqrt, (1e-3, 20)),
    "cbrt": (None, (-9, 9)),
    "remf": (torch.fmod, (-9, 9)),
}


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call, from a run of REPEATS."""
    start = time.thread_time()
    for _ in range(REPEATS):
        call()
    return (time.thread_time() - start) / REPEATS


def compare(name: str, element: str, width: int) -> tuple[float, float]:
    """(Kiln, torch) in ps per element; NaN where torch has no such op."""
    function, (low, high) = CASES[name]
    dtype = np.float32 if element == "f32" else np.float64
    size = BYTES // np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(low, high, size).astype(dtype) for _ in range(2 if name in ("powf", "atan2", "remf") else 1)]
    op = "arith.remf" if name == "remf" else f"math.{name}"
    kiln = compile_op(op, [element] * len(arrays), element, width).bind(*arrays, np.empty(size, dtype))
    tensors, out = [torch.from_numpy(a) for a in arrays], torch.empty(size, dtype=torch.from_numpy(arrays[0]).dtype)
    calls = [kiln] if function is None else [kiln, lambda: function(*tensors, out=out)]
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(ROUNDS):
        for call, found in zip(calls, times, strict=True):
            found.append(seconds(call))
    medians = [float(np.median(t)) / size * 1e12 for t in times]
    return medians[0], medians[1] if len(medians) > 1 else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ops", nargs="*", metavar="op", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/vector-math.md")
    options = parser.parse_args()
    for name in options.ops:
        if name not in CASES:
            parser.error(f"unknown op {name!r}; known: {', '.join(CASES)}")
    torch.set_num_threads(1)
    isa = host()
    f32, f64 = isa.vector_bytes // 4, isa.vector_bytes // 8
    print(f"{isa.name}, {isa.vector_bytes * 8}-bit vectors, torch {torch.__version__}; ps per element\n")
    row = "| {:8} | {:>8} | {:>8} | {:>5} | {:>8} | {:>8} | {:>5} |" if options.markdown else "{:8}" + "{:>10}" * 6
    print(row.format("op", "f32", "torch", "ratio", "f64", "torch", "ratio"))
    if options.markdown:
        print("|---" * 7 + "|")
    for name in options.ops or CASES:
        cells = []
        for element, width in (("f32", f32), ("f64", f64)):
            ours, theirs = compare(name, element, width)
            known = theirs == theirs
            cells += [f"{ours:.0f}", f"{theirs:.0f}" if known else "", f"{theirs / ours:.1f}" if known else ""]
        print(row.format(name, *cells), flush=True)


if __name__ == "__main__":
    main()
