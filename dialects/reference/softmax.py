# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Softmax: maximum, sum of exponentials, quotient."""

from typing import Any

from torch_mlir import ir

from kiln.dialects import scalar
from kiln.dialects.builder import Builder, dims


def softmax(op: Any, b: Builder) -> ir.Value:
    """Max-reduction, exp(x - m), sum-reduction, division; with `log`, x - m - log(sum)."""
    x, at = op.x, op.dim.value
    element = x.type.element_type
    compute = scalar.compute_type(element)
    sizes = b.sizes(x)
    rank = len(sizes)
    here = dims(rank)
    row = here[:at] + here[at + 1 :]
    row_sizes = sizes[:at] + sizes[at + 1 :]
    iterators = "".join("r" if i == at else "p" for i in range(rank))
    wide = b.cast(x, compute)

    low = scalar.lowest(compute)
    top = b.reduce([(wide, here)], row, row_sizes, iterators, compute, low, lambda v, m: scalar.maximum(m, v))
    shifted = b.map([(wide, here), (top, row)], sizes, compute, lambda v, m: scalar.exp(scalar.distance(v, m)))
    total = b.reduce([(shifted, here)], row, row_sizes, iterators, compute, 0, lambda v, t: scalar.add(t, v))
    if op.log.value:

        def finish(v: ir.Value, m: ir.Value, t: ir.Value) -> ir.Value:
            return scalar.cast(scalar.sub(scalar.distance(v, m), scalar.log(t)), element)

        return b.map([(wide, here), (top, row), (total, row)], sizes, element, finish)
    return b.map([(shifted, here), (total, row)], sizes, element, lambda v, t: scalar.cast(scalar.div(v, t), element))
