# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the kernels of all named ops are given: sizes, types of sums, a thread's share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["KernelContext", "Size", "Summed", "element_type", "known", "offset_of", "unflatten"]

Size = int | ir.Value | None  # None: known to be dynamic, value not at hand (schedule time)


class Summed:
    """A problem whose operands have the element type `dtype`."""

    dtype: str

    @property
    def sum_dtype(self) -> str:
        """The dtype that products are summed in: f64, i32 for i8, f32 else."""
        return {"f64": "f64", "i8": "i32"}.get(self.dtype, "f32")

    @property
    def sum_bytes(self) -> int:
        """Bytes of one sum."""
        return 8 if self.dtype == "f64" else 4


@dataclass(frozen=True)
class KernelContext:
    """One thread of the kernel: its number, the number of threads, and its private memref<?xi8>, 64-byte aligned."""

    tid: Index
    nt: Index
    scratch: ir.Value

    def share(self, b: Builder, total: Index, body: Callable[[Index], None]) -> None:
        """body(i) for this thread's part of `total` units of work."""
        low, high = b.split(self.tid, self.nt, total)
        b.for_(low, high, 1, body)


def element_type(name: str) -> ir.Type:
    """The builtin type of a dtype name."""
    types = {"f32": ir.F32Type, "f64": ir.F64Type, "bf16": ir.BF16Type, "f16": ir.F16Type}
    return types[name].get()


def known(size: Size) -> Index:
    """The size as an Index; schedule-time None is a programming error here."""
    if size is None:
        raise ValueError("sizes must be given as ints or index values when code is emitted")
    return size


def unflatten(b: Builder, flat: Index, sizes: Sequence[Index | None]) -> list[Index]:
    """The multi-index of a row-major flat index."""
    index: list[Index] = []
    for size in reversed(sizes[1:]):
        index.append(b.remi(flat, known(size)))
        flat = b.divi(flat, known(size))
    return [flat, *reversed(index)] if sizes else []


def offset_of(b: Builder, base: Index, index: Sequence[Index], strides: Sequence[Index | None]) -> Index:
    """base + sum of index * stride."""
    return b.sum_(base, *(b.muli(i, known(s)) for i, s in zip(index, strides, strict=True)))
