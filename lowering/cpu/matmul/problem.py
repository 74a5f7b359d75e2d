# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a matmul kernel is asked to do: the problem, its buffers, the epilogue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.problem import Size, Summed


@dataclass(frozen=True)
class MatmulProblem(Summed):
    """result[*batch, m, n] = sum over k of lhs[*batch, m, k] * rhs[*batch, k, n].

    Sizes are ints or `index` Values (None at schedule time). Strides are in elements, one per dimension
    of the operand's logical shape [*batch, m, k] resp. [*batch, k, n]; 0 broadcasts; a transposed operand
    is one with its last two strides exchanged. Unit strides must be ints. `dtype` is the operands'
    element type: "f32", "f64", "bf16" or "f16", the sum being taken in f32 (f64 for f64), or "i8", with sums of 32-bit
    integers. `rhs_dtype`: "i8" where the rhs holds such numbers instead.
    """

    batch: tuple[Size, ...]
    m: Size
    n: Size
    k: Size
    lhs_strides: tuple[Size, ...]
    rhs_strides: tuple[Size, ...]
    dtype: str = "f32"
    rhs_dtype: str | None = None


@dataclass(frozen=True)
class Buffers:
    """The operands' 1-D memrefs; element [0, ..., 0] sits at the offset."""

    lhs: ir.Value
    rhs: ir.Value
    lhs_offset: Index = 0
    rhs_offset: Index = 0


class Epilogue(Protocol):
    """The fused ops after the matmul, evaluated on one row of sums at a time.

    `apply` gets the sums of columns [column, column + width) of one row (`index` = [*batch, m]) as a
    vector of the sum dtype, must evaluate the fused ops and store the results; lanes off in `mask` are
    outside of the matrix: neither load nor store them.
    """

    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        """Emit what follows the sums `acc` at `index`: `width` columns from `column` on, those of `mask` alone."""

    def destination(self, b: Builder, batch: Sequence[Index]) -> Place | None:
        """A matrix [m, n] of the sum dtype with unit column stride that `apply` will overwrite anyway and does not
        read otherwise (so a kernel may keep sums there), or None.
        """
        return None

    @property
    def is_plain_store(self) -> bool:
        """True when `apply` only stores the sums to `destination`: a kernel that put them there is done."""
        return False
