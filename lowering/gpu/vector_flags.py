# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""LLVM IR of kernels without `nuw` and `nsw` on vectors of integers, for which LLVM makes wrong PTX.

LLVM puts ops of two scalars into one of a vector. Where they differ it makes both ops for both lanes, of each of which
one lane is not read and may overflow: `shl nuw nsw <2 x i32> {%program, %lane}, {31, 3}` beside
`and <2 x i32> {%program, %lane}, {31, 3}`. Triton 3.6's LLVM has such a pair in a register of 64 bits, as
`zext(lane 0) | lane 1 << 32`. As the shift may not overflow, it takes `mul.wide.u32 %program, 2147483648` for
`zext(%program << 31)`, whose upper bits end up in the lane that is read. Without the flags both lanes are as written.
They tell LLVM about the range of an index, and few kernels have them on vectors: 3 of 124 of a transformer's training
step, of which the PTX of 2, both wrong, changed.
"""

import re

__all__ = ["without_vector_flags"]

_FLAGS = re.compile(r"(= (?:add|sub|mul|shl|trunc)) (?:nuw |nsw )+(?=<)")


def without_vector_flags(text: str) -> str:
    """The same program, which is defined where the given one is; the text itself if there is nothing to drop."""
    return _FLAGS.sub(r"\1 ", text)
