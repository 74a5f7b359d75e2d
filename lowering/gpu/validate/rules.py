# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What each op gives: arithmetic on integers and booleans, shapes of blocks, accesses to memory."""

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir

from kiln.dialects import tt
from kiln.dialects.kiln import name_of
from kiln.lowering.gpu.validate.interpret import Interpreter, rule
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, choose, const
from kiln.lowering.gpu.validate.slices import mask_operand
from kiln.lowering.gpu.validate.substitution import variables
from kiln.lowering.gpu.validate.values import (
    Descriptor,
    Pointer,
    Value,
    bits_of,
    chosen,
    lane,
    map_lanes,
    range_of,
    reshaped,
)

__all__: list[str] = []

_TRUE = Cond.of(True)
Given = list[Value]
Found = Sequence[Value] | None


# ------------------------------------------------------------------------------------------------------ integers


@rule("arith.constant")
def _constant(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    bits = bits_of(op.results[0].type)
    attribute = op.attributes["value"]
    if bits is None:
        return None
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    value = int(attribute.value)
    return [Cond.of(bool(value))] if bits == 1 else [const(value)]


def _exact(run: Interpreter, op: ir.Operation, *values: Poly) -> list[Poly]:
    """The operands, where an op needs to know what they are exactly: sums and products may wrap around, and are right
    again where the result fits, but not what other ops make of them. That they fit is recorded as a limit, if it isn't
    known; sums of a loaded integer may be anything if they do not.
    """
    bits = bits_of(op.operands[-1].type)
    if bits is None or bits == 1:
        return list(values)
    low, high = range_of(bits)
    found: list[Poly] = []
    for value in values:
        fits = low <= value.interval[0] and value.interval[1] <= high
        if not fits and any(a.kind == "loaded" for a in variables([value])):
            wrapped = run.loaded(op.operands[-1].type)
            assert isinstance(wrapped, Poly)
            value = wrapped
        elif not fits:
            run.limit(op, value, low, high)
        found.append(value)
    return found


@rule("arith.addi", "arith.subi", "arith.muli")
def _arithmetic(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    if not isinstance(x, Poly) or not isinstance(y, Poly):
        return None
    if name_of(op) == "arith.addi":
        return [x + y]
    if name_of(op) == "arith.subi":
        return [x - y]
    return [x * y] if len(x.terms) * len(y.terms) <= 64 else None


@rule("arith.divui", "arith.divsi", "arith.remui", "arith.remsi", "arith.floordivsi")
def _division(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    if not isinstance(x, Poly) or not isinstance(y, Poly):
        return None
    x, y = _exact(run, op, x, y)
    divisor = _divisor(run, y)
    if divisor is None:
        return None
    x = x if x.known is not None else run.facts().fixed(x) if divisor is not y else x
    name = name_of(op)
    quotient = "div" in name
    if (x // divisor).known is None and run.is_less(x, divisor):
        return [const(0) if quotient else x]
    if name == "arith.floordivsi" or x.interval[0] >= 0 or run.facts().lower(x, 0) >= 0:
        return [x // divisor if quotient else x % divisor]
    if name in ("arith.divui", "arith.remui"):
        run.limit(op, x, 0, range_of(64)[1])
        return [x // divisor if quotient else x % divisor]
    below = -((-x) // divisor)
    truncated = choose(Cond.compare("ge", x), x // divisor, below)
    return [truncated if quotient else x - divisor * truncated]


def _divisor(run: Interpreter, y: Poly) -> Poly | None:
    """A divisor that is a number or a product of sizes: minima in it are taken apart; None if it may be 0."""
    while y.known is None:
        if run.is_dry:
            return None
        y = run.facts().fixed(y)
        choice = next((a for a in sorted(y.atoms()) if a.kind in ("min", "max")), None)
        if choice is None:
            break
        first, second = choice.args
        is_first = run.decide(Cond.compare("ge", second - first if choice.kind == "min" else first - second))
        y = _replace(y, choice, first if is_first else second)
    if (y.known or 0) >= 1 or y.interval[0] >= 1 or run.facts().lower(y, 1) >= 1:
        return y
    return None


def _replace(poly: Poly, atom: Atom, value: Poly) -> Poly:
    found = const(0)
    for mono, c in poly.terms.items():
        term = const(c)
        for factor in mono:
            term = term * (value if factor == atom else Poly.of(factor))
        found = found + term
    return found


@rule("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui")
def _extreme(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    name = name_of(op)
    if not isinstance(y, Poly) or not isinstance(x, Poly):
        return [run.below(y)] if name == "arith.minui" and isinstance(y, Poly) and y.known is not None else None
    x, y = _exact(run, op, x, y)
    if name.endswith("ui") and min(run.facts().lower(x, 0), run.facts().lower(y, 0)) < 0:
        return [run.below(y)] if name == "arith.minui" and y.known is not None else None
    return [x.least(y) if "min" in name else x.largest(y)]


@rule("arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui")
def _wider(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    (x,) = given
    signed = name_of(op) in ("arith.extsi", "arith.index_cast")
    if isinstance(x, Cond):
        return [choose(x, const(-1 if signed else 1), const(0))]
    if not isinstance(x, Poly):
        return None
    (x,) = _exact(run, op, x)
    if signed or x.interval[0] >= 0 or run.facts().lower(x, 0) >= 0:
        return [x]
    bits = bits_of(op.operands[0].type)
    return None if bits is None else [x % const(1 << bits)]


@rule("arith.trunci")
def _narrower(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    (x,) = given
    bits = bits_of(op.results[0].type)
    if not isinstance(x, Poly) or bits is None or bits == 1:
        return None
    return [x]  # as sums and products: right where it fits, and looked at where it is used


@rule("arith.andi", "arith.ori", "arith.xori")
def _bitwise(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    name = name_of(op)
    if isinstance(x, Cond) and isinstance(y, Cond):
        if name == "arith.xori":
            return [~x] if y.kind == "true" else [x] if y.kind == "false" else None
        return [x & y if name == "arith.andi" else x | y]
    if not isinstance(x, Poly) or not isinstance(y, Poly) or name != "arith.andi":
        return None
    (x,) = _exact(run, op, x)
    mask = y.known
    if mask is None or mask < 0 or mask & (mask + 1) or run.facts().lower(x, 0) < 0:
        return None
    return [x % const(mask + 1)]


@rule("arith.shli", "arith.shrui", "arith.shrsi")
def _shift(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    if not isinstance(x, Poly) or not isinstance(y, Poly) or y.known is None or not 0 <= y.known < 63:
        return None
    if name_of(op) == "arith.shli":
        return [x * (1 << y.known)]
    (x,) = _exact(run, op, x)
    if name_of(op) == "arith.shrui" and run.facts().lower(x, 0) < 0:
        return None
    return [x // const(1 << y.known)]


# ---------------------------------------------------------------------------------------------------- conditions


@rule("arith.cmpi")
def _comparison(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    x, y = given
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if isinstance(x, Cond) and isinstance(y, Cond):
        if predicate not in (0, 1) or y.kind not in ("true", "false"):
            return None
        return [x if (predicate == 0) == (y.kind == "true") else ~x]
    if not isinstance(x, Poly) or not isinstance(y, Poly):
        return None
    x, y = _exact(run, op, x, y)
    if predicate < 2:
        return [Cond.compare("eq" if predicate == 0 else "ne", x - y)]
    if predicate >= 6:
        facts = run.facts()
        if facts.lower(x, 0) < 0 or facts.lower(y, 0) < 0:
            return None
        predicate -= 4
    strict = {2: (y, x), 4: (x, y)}
    if predicate in strict:
        large, small = strict[predicate]
        return [Cond.compare("ge", large - small - 1)]
    return [Cond.compare("ge", y - x if predicate == 3 else x - y)]


@rule("arith.select")
def _select(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    cond, x, y = given
    if not isinstance(cond, Cond):
        return None
    if cond.kind in ("true", "false"):
        return [x if cond.kind == "true" else y]
    value = chosen(cond, x, y)
    return None if value is None else [value]


# -------------------------------------------------------------------------------------------------------- blocks


@rule("tt.get_program_id")
def _program_id(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    return [run.program(ir.IntegerAttr(op.attributes["axis"]).value)]


@rule("tt.get_num_programs")
def _num_programs(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    return [run.programs[ir.IntegerAttr(op.attributes["axis"]).value]]


@rule("tt.make_range")
def _make_range(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    start, end = (ir.IntegerAttr(op.attributes[key]).value for key in ("start", "end"))
    return [const(start) + (Poly.of(lane(0, end - start)) if end - start > 1 else const(0))]


@rule("tt.splat", "tt.broadcast", "tt.bitcast")
def _same(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    return [given[0]] if bits_of(op.operands[0].type) == bits_of(op.results[0].type) else None


@rule("tt.expand_dims")
def _expand_dims(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    axis, shape = ir.IntegerAttr(op.attributes["axis"]).value, tt.shape_of(op.operands[0].type)
    table = {lane(d, n): Poly.of(lane(d + 1, n)) for d, n in enumerate(shape) if d >= axis and n > 1}
    return [map_lanes(given[0], table)]


@rule("tt.reshape")
def _reshape(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    return [reshaped(given[0], tt.shape_of(op.operands[0].type), tt.shape_of(op.results[0].type))]


@rule("tt.trans")
def _trans(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    shape = tt.shape_of(op.operands[0].type)
    order = list(ir.DenseI32ArrayAttr(op.attributes["order"]))
    table = {lane(d, shape[d]): Poly.of(lane(i, shape[d])) for i, d in enumerate(order) if shape[d] > 1}
    return [map_lanes(given[0], table)]


@rule("tt.join")
def _join(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    last = Poly.of(lane(len(tt.shape_of(op.operands[0].type)), 2))
    return [chosen(Cond.compare("eq", last), given[0], given[1])]


@rule("tt.split")
def _split(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    last = lane(len(tt.shape_of(op.operands[0].type)) - 1, 2)
    return [map_lanes(given[0], {last: const(i)}) for i in range(2)]


# -------------------------------------------------------------------------------------------------------- memory


@rule("tt.addptr")
def _addptr(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    pointers, offset = given
    if not isinstance(pointers, tuple):
        return None
    step = offset if isinstance(offset, Poly) else run.unknown(op.operands[1].type)
    bits = bits_of(op.operands[1].type)
    assert isinstance(step, Poly) and bits is not None
    return [tuple(replace(p, offset=p.offset + step, steps=(*p.steps, (step, bits, _TRUE))) for p in pointers)]


@rule("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", memory=True)
def _access(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    name = name_of(op)
    pointers = given[0]
    mask = mask_operand(op, name)
    cond = _TRUE if mask is None else run.values.get(mask)
    if not isinstance(cond, Cond):
        cond = Cond("opaque", ("mask", run.numbers[op]))
    shape = tt.shape_of(op.operands[0].type)
    kind = "atomic" if name.startswith("tt.atomic") else name.removeprefix("tt.")
    run.touch(op, kind, pointers if isinstance(pointers, tuple) else run.lost(op), cond, shape)
    return [run.loaded(result.type) for result in op.results]


@rule("tt.make_tensor_descriptor")
def _make_descriptor(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    pointers, *rest = given
    half = len(rest) // 2
    sizes = [x for x in rest if isinstance(x, Poly)]
    if not isinstance(pointers, tuple) or len(pointers) != 1 or len(sizes) != len(rest):
        return None
    return [Descriptor(pointers[0].base, pointers[0].offset, tuple(sizes[:half]), tuple(sizes[half:]))]


@rule("tt.descriptor_load", "tt.descriptor_store", memory=True)
def _described(run: Interpreter, op: ir.Operation, given: Given) -> Found:
    """Hardware moves what of the block lies in the descriptor's shape."""
    kind = name_of(op).removeprefix("tt.descriptor_")
    descriptor, *indices = given if kind == "load" else [given[0], *given[2:]]
    box = list(tt.block_of(op.operands[0].type).shape)
    if not isinstance(descriptor, Descriptor):
        run.touch(op, kind, run.lost(op), _TRUE, box)
        return None
    offset, cond = descriptor.start, _TRUE
    for axis, (index, size) in enumerate(zip(indices, box, strict=True)):
        start = index if isinstance(index, Poly) else run.unknown(op.operands[-1].type)
        assert isinstance(start, Poly)
        if any(a.kind == "loaded" for a in variables([start])):
            start = run.unknown(op.operands[-1].type)
            assert isinstance(start, Poly)
        run.limit(op, start, *range_of(32))
        at = start + (Poly.of(lane(axis, size)) if size > 1 else const(0))
        offset = offset + at * descriptor.strides[axis]
        cond = cond & Cond.compare("ge", at) & Cond.compare("ge", descriptor.shape[axis] - 1 - at)
    run.touch(op, kind, [Pointer(descriptor.base, offset, _TRUE)], cond, box)
    return [None for _ in op.results]
