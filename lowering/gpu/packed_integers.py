# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PTX without packed 16-bit integer ops, for which ptxas makes wrong code.

LLVM narrows index arithmetic whose range it knows, and puts two such sums into one `add.s16x2`, the second of which may
be of a register that nothing has written. ptxas 12.8 and 12.9 (of Triton 3.6) then take the constant of the wrong half:
`add.s16x2 %d, {%x, undefined}, 252` becomes `VIADD.16x2 Rd, Rx, 0x0`. A convolution whose pipelined loads begin at
`x mod 18 - 4` reads elements of other columns. Each half as an op of its own costs an instruction of index arithmetic.
"""

import re

__all__ = ["unpacked"]

_PACKED = re.compile(r"^([ \t]*)(add|min|max)\.([su])16x2[ \t]+([^,;]+),[ \t]*([^,;]+),[ \t]*([^,;]+);", re.MULTILINE)


def unpacked(ptx: str) -> str:
    """The same program with an op for each half; the text itself if it has no such op."""
    return _PACKED.sub(_two_ops, ptx)


def _two_ops(match: re.Match[str]) -> str:
    indent, op, sign, result, lhs, rhs = match.groups()
    lines = [
        "{",
        ".reg .b16 kiln_a<2>, kiln_b<2>;",
        ".reg .b32 kiln_x<2>;",
        f"mov.b32 kiln_x0, {lhs};",
        f"mov.b32 kiln_x1, {rhs};",
        "mov.b32 {kiln_a0, kiln_a1}, kiln_x0;",
        "mov.b32 {kiln_b0, kiln_b1}, kiln_x1;",
        f"{op}.{sign}16 kiln_a0, kiln_a0, kiln_b0;",
        f"{op}.{sign}16 kiln_a1, kiln_a1, kiln_b1;",
        f"mov.b32 {result}, {{kiln_a0, kiln_a1}};",
        "}",
    ]
    return "\n".join(indent + line for line in lines)
