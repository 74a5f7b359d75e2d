# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the kernels of all named ops are given: sizes, types of sums, a thread's share."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["KernelContext", "Size", "Summed", "element_type", "in_vectors", "known", "offset_of", "unflatten", "volume"]

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

    def share(self, b: Builder, sizes: Sequence[Size], body: Callable[..., None], *, in_turn: bool = False) -> None:
        """body(*index) for this thread's part of the units of work, whose index runs over `sizes`, row-major.

        A part is units in a row, or (`in_turn`) every `nt`-th: of units that take longer and longer.
        """
        total = volume(b, sizes)
        bounds = (self.tid, total, self.nt) if in_turn else (*b.split(self.tid, self.nt, total), 1)
        b.for_(*bounds, lambda i: body(*unflatten(b, i, sizes)))


def element_type(name: str) -> ir.Type:
    """The builtin type of a dtype name."""
    types = {"f32": ir.F32Type, "f64": ir.F64Type, "bf16": ir.BF16Type, "f16": ir.F16Type}
    return types[name].get() if name in types else ir.IntegerType.get_signless(int(name.removeprefix("i")))


def known(size: Size) -> Index:
    """The size as an Index; schedule-time None is a programming error here."""
    if size is None:
        raise ValueError("sizes must be given as ints or index values when code is emitted")
    return size


def volume(b: Builder, sizes: Iterable[Size]) -> Index:
    """The product of the sizes."""
    total: Index = 1
    for size in sizes:
        total = b.muli(total, known(size))
    return total


def unflatten(b: Builder, flat: Index, sizes: Sequence[Index | None]) -> list[Index]:
    """The multi-index of a row-major flat index."""
    index: list[Index] = []
    for size in reversed(sizes[1:]):
        index.append(b.remi(flat, known(size)))
        flat = b.divi(flat, known(size))
    first: Index = 0 if sizes and isinstance(sizes[0], int) and sizes[0] == 1 else flat
    return [first, *reversed(index)] if sizes else []


def in_vectors(b: Builder, low: Index, high: Index, width: int, body: Callable[[Index, ir.Value | None], None]) -> None:
    """body(start, mask) for vectors of `width` of the indices from `low` to `high`; the mask of whole ones is None."""
    rest = b.remi(b.subi(high, low), width)
    full = b.subi(high, rest)
    b.for_(low, full, width, lambda i: body(i, None))
    b.if_(b.cmpi("sgt", rest, 0), lambda: body(full, b.tail_mask(rest, width)))


def offset_of(b: Builder, base: Index, index: Sequence[Index], strides: Sequence[Index | None]) -> Index:
    """base + sum of index * stride."""
    return b.sum_(base, *(b.muli(i, known(s)) for i, s in zip(index, strides, strict=True)))
