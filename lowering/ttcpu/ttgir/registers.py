# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops of TTGIR on registers: numbers are Python's, blocks are torch's. Layouts say only where lanes are."""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kiln.errors import InvalidIRError
from kiln.lowering.ttcpu.ttgir.parse import Op

__all__ = ["REGISTER_OPS", "block_type", "same_bits"]

_DTYPES = {
    "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i1": torch.bool, "i32": torch.int32,
    "i64": torch.int64,
}  # fmt: skip


def block_type(text: str) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape and element type of a tensor, a memory descriptor or a tensor descriptor."""
    found = re.search(r"<((?:\d+x)+)([a-z]+\d+)", text)
    if found is None or found[2] not in _DTYPES:
        raise InvalidIRError(f"expected a type with a shape, found {text}")
    return tuple(int(n) for n in found[1].split("x")[:-1]), _DTYPES[found[2]]


def _constant(op: Op) -> Any:
    found = re.search(r"^ *(?:dense<([^>]*)>|(true|false)|(-?\d+)) : ", op.text) or re.search(
        r"^ *()(true|false)$", op.text
    )
    if found is None:
        raise InvalidIRError(f"unknown constant {op.text!r}", f"line {op.line}")
    if found[1]:
        shape, dtype = block_type(op.type)
        hexadecimal = found[1].startswith("0x")
        number = struct.unpack("f", struct.pack("I", int(found[1], 16)))[0] if hexadecimal else float(found[1])
        return torch.full(shape, number if dtype.is_floating_point else int(number), dtype=dtype)
    return found[2] == "true" if found[2] else int(found[3])


def _signed(x: int) -> int:
    """The number that 32 bits hold."""
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def _integers(compute: Callable[[int, int], int], on_blocks: Callable[[Any, Any], Any] | None = None) -> Any:
    def apply(op: Op, x: Any, y: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if on_blocks is None:
                raise InvalidIRError(f"{op.name} on blocks is not interpreted", f"line {op.line}")
            return on_blocks(x, y)
        return _signed(compute(int(x), int(y)))

    return apply


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "slt": lambda x, y: x < y,
    "sle": lambda x, y: x <= y,
    "sgt": lambda x, y: x > y,
    "sge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}


def _compare(op: Op, x: Any, y: Any) -> Any:
    predicate = op.text.split(",")[0].strip()
    return _COMPARISONS[predicate](x, y)


def _reduce(op: Op, x: torch.Tensor) -> torch.Tensor:
    combiner = op.regions[0].ops[0].name
    axis = op.integer("axis")
    if combiner == "arith.maxnumf":
        # The other one of a number and a NaN.
        return torch.where(x.isnan(), -torch.inf, x).amax(axis).masked_fill(x.isnan().all(axis), torch.nan)
    if combiner != "arith.addf" or len(op.regions[0].ops) != 2:
        raise InvalidIRError(f"a reduction by {combiner} is not interpreted", f"line {op.line}")
    return x.sum(axis)


def _range(op: Op) -> torch.Tensor:
    return torch.arange(op.integer("start"), op.integer("end"), dtype=torch.int32)


def _splat(op: Op, x: Any) -> torch.Tensor:
    shape, dtype = block_type(op.type)
    return torch.full(shape, x, dtype=dtype)


def _where(op: Op, condition: Any, x: Any, y: Any) -> Any:
    return torch.where(condition, x, y) if isinstance(condition, torch.Tensor) else x if condition else y


def _floats(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def computed(op: Op, *operands: torch.Tensor) -> torch.Tensor:
        return compute(*operands)

    return computed


def _narrowed(op: Op, x: torch.Tensor) -> torch.Tensor:
    return x.to(block_type(op.type)[1])


def _expanded(op: Op, x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(op.integer("axis"))


def _broadcast(op: Op, x: torch.Tensor) -> torch.Tensor:
    return x.expand(block_type(op.type)[0])


def _same(op: Op, x: torch.Tensor) -> torch.Tensor:
    return x


REGISTER_OPS: dict[str, Callable[..., Any]] = {
    "arith.constant": _constant,
    "arith.addi": _integers(lambda x, y: x + y, torch.add),
    "arith.subi": _integers(lambda x, y: x - y),
    "arith.muli": _integers(lambda x, y: x * y),
    "arith.divui": _integers(lambda x, y: (x & 0xFFFFFFFF) // (y & 0xFFFFFFFF)),
    "arith.remui": _integers(lambda x, y: (x & 0xFFFFFFFF) % (y & 0xFFFFFFFF)),
    "arith.minsi": _integers(min),
    "arith.andi": _integers(lambda x, y: x & y, torch.bitwise_and),
    "arith.xori": _integers(lambda x, y: x ^ y),
    "arith.cmpi": _compare,
    "arith.select": _where,
    "arith.addf": _floats(torch.add),
    "arith.subf": _floats(torch.sub),
    "arith.mulf": _floats(torch.mul),
    "arith.divf": _floats(torch.div),
    "arith.maxnumf": _floats(torch.fmax),
    "arith.truncf": _narrowed,
    "math.exp2": _floats(torch.exp2),
    "tt.make_range": _range,
    "tt.splat": _splat,
    "tt.expand_dims": _expanded,
    "tt.broadcast": _broadcast,
    "tt.reduce": _reduce,
    "ttg.convert_layout": _same,
}
"""Op -> `(op, *operands) -> result`."""


def same_bits(x: Sequence[torch.Tensor], y: Sequence[torch.Tensor]) -> bool:
    """Whether blocks of 16-bit elements hold the same, also where that is NaN."""
    return all(torch.equal(p.view(torch.int16), q.view(torch.int16)) for p, q in zip(x, y, strict=True))
