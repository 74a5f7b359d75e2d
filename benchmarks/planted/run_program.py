# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiles and runs one program of `programs.py`, in a process of its own: it may die.

python -m benchmarks.planted.run_program PROGRAM TARGET [OPTION...]: prints "right", or what is wrong, as its last line.
An option is the name of one of Kiln's that is to be True.
"""

import sys

import torch

import kiln  # noqa: F401 - it registers the backend
from benchmarks.planted import programs

_TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-5}
"""Of the largest difference from float64, relative to the largest element: some roundings of the stored type."""

_ROUNDED_OTHERWISE = 0.02
"""The share of elements that may round to the other side."""


def main(program: str, target: str, *options: str) -> str:
    """What came out: "right", "wrong: ...", or "error: ..."."""
    torch.manual_seed(0)
    model, inputs = getattr(programs, program)()
    rounded = "emulate_precision_casts" in options
    expected = model(*(x if rounded or not x.is_floating_point() else x.double() for x in inputs))
    given = {"target": target, "fallback": False, "cache": False} | dict.fromkeys(options, True)
    try:
        found = torch.compile(model, backend="kiln", options=given)(*inputs)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"error: {type(error).__name__}: {' | '.join(lines)[:600]}"
    if rounded:  # eager's numbers are right, to the last bit but where the arithmetic before a rounding is another
        share = (found != expected).float().mean().item()
        return "right" if share <= _ROUNDED_OTHERWISE else f"wrong: {share:.1%} of the elements are other than eager's"
    scale = expected.abs().max().item()
    error = (found.double() - expected).abs().max().item() / scale
    return "right" if error <= _TOLERANCE[found.dtype] else f"wrong: the largest error is {error:.2g} of the result"


if __name__ == "__main__":
    print(main(*sys.argv[1:]), flush=True)
