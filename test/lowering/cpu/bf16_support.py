# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the tests of bf16 products share: problems with sizes of run time, packed right matrices, and the check."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from matmul_support import Kernel, bf16_operand

from kiln.lowering.cpu.matmul import MatmulProblem


def dynamic_problem(left: str, right: str) -> Callable[..., MatmulProblem]:
    """Makes a problem of m, n, k and the strides of the rows (or columns), values or None for those of run time.

    left, right: layouts of the operands, as `bf16_operand` has them.
    """

    def problem(m: Any, n: Any, k: Any, lhs_stride: Any, rhs_stride: Any) -> MatmulProblem:
        lhs = {"n": (lhs_stride, 1), "t": (1, lhs_stride), "s": (lhs_stride, 3)}[left]
        rhs = {"n": (rhs_stride, 1), "t": (1, rhs_stride), "s": (rhs_stride, 3)}[right]
        return MatmulProblem((), m, n, k, lhs, rhs, "bf16")

    return problem


def packed_rhs(rhs: torch.Tensor, lanes: int, rows: int) -> torch.Tensor:
    """[k, n] in panels of `lanes` columns and `rows` rows, with zeros behind k and n; pairs of rows lie together."""
    k, n = rhs.shape
    panels = -(-n // lanes)
    padded = torch.zeros(rows, panels * lanes, dtype=rhs.dtype)
    padded[:k, :n] = rhs
    return padded.view(rows // 2, 2, panels, lanes).permute(2, 0, 3, 1).contiguous()


def check(out: torch.Tensor, lhs: torch.Tensor, rhs: torch.Tensor) -> None:
    """`out` is off from lhs @ rhs by no more than the rounding of its largest element."""
    exact = lhs.double() @ rhs.double()
    if exact.numel():
        error = (out.double() - exact).abs().max().item()
        scale = exact.abs().max().item()
        assert error <= 2**-8 * scale, f"error {error:.3e}, scale {scale:.3e}"


def check_sizes(kernel: Kernel, left: str, right: str, sizes: Sequence[tuple[int, int, int]]) -> None:
    """A kernel of `dynamic_problem(left, right)` with one thread and with two, for each (m, n, k)."""
    for threads in (1, 2):
        for m, n, k in sizes:
            lhs, rhs = bf16_operand(m, k, left), bf16_operand(k, n, right)
            out = torch.full((m, n), torch.nan, dtype=torch.bfloat16)
            strides = [x.stride(-1 if layout == "t" else -2) for x, layout in ((lhs, left), (rhs, right))]
            kernel(lhs, rhs, out, symbols=(m, n, k, *strides), threads=threads)
            check(out, lhs, rhs)
