# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reference lowerings: each named op in `linalg.generic`, `kiln.view`, `kiln.pad`, `kiln.cat` and `kiln.empty`."""

from kiln.dialects.builder import Builder
from kiln.dialects.reference import attention, conv, index, matmul, norm, order, pool, random, softmax
from kiln.dialects.reference.expand import expand_all
from kiln.dialects.reference.registry import has_reference, reference, reference_names

__all__ = [
    "Builder",
    "attention",
    "conv",
    "expand_all",
    "has_reference",
    "index",
    "matmul",
    "norm",
    "order",
    "pool",
    "random",
    "reference",
    "reference_names",
    "softmax",
]
