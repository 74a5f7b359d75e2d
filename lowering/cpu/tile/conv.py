# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions of kind "conv": the bridge from a fusion to `emit_conv`, and the epilogue on its sums."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.kiln import name_of
from kiln.dialects.schedules.cpu import AmxConvSchedule, ConvSchedule, VnniBf16ColumnsConvSchedule, VnniBf16ConvSchedule
from kiln.errors import UnsupportedError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.conv import (
    Axis,
    ConvBuffers,
    ConvProblem,
    choose_conv_schedule,
    conv_scratch_bytes,
    emit_conv,
    packed_layout,
)
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.tile.epilogue import rounded
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.product import static_size
from kiln.lowering.cpu.tile.scopes import Lane, Scope
from kiln.lowering.emitters import emits
from kiln.lowering.tile.access import Indices, index_among
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import offset_of, strides_of

Exprs = tuple[ir.AffineExpr, ...]

_OF_PAIRS = (VnniBf16ConvSchedule, VnniBf16ColumnsConvSchedule, AmxConvSchedule)
"""Kernels whose products are those of instructions for bf16."""


@dataclass(frozen=True)
class Conv:
    """A fusion's kiln.conv as sizes and strides over its symbols, with two or three spatial dims.

    x, weight: positions among the fusion's tensors. sizes: [n, rows, columns] that the kernel walks, or [n, planes,
    rows, columns]; where the window is one element, the pixels of an image (`merged` 1), or of all images (2), are one
    row.
    """

    op: ir.OpView
    x: int
    weight: int
    x_sizes: Exprs
    x_strides: Exprs
    weight_strides: Exprs
    sizes: Exprs
    merged: int
    planar: bool

    def problem(self, size: Callable[[ir.AffineExpr], Size]) -> ConvProblem:
        """The problem, with `size(expr)` turning sizes and strides into ints, Values or None."""
        weight = ir.RankedTensorType(self.op.operands[1].type)
        groups = ir.IntegerAttr(self.op.operation.attributes["groups"]).value
        transposed = bool(ir.IntegerAttr(self.op.operation.attributes["transposed"]).value)
        outer, inner, *kernel = weight.shape
        images, *results = (size(e) for e in self.sizes)
        inputs = [size(e) for e in self.x_sizes]
        xn, xc, *x_strides = (size(e) for e in self.x_strides)
        wo, wc, *weight_strides = (size(e) for e in self.weight_strides)
        if transposed:
            wo, wc = wc, wo
        stride, padding, dilation = (self._ints(name) for name in ("stride", "padding", "dilation"))
        windows = [
            _window(values, absent, len(results))
            for values, absent in ((kernel, 1), (stride, 1), (padding, 0), (dilation, 1))
        ]
        return ConvProblem(
            images=images,
            groups=groups,
            channels=outer // groups if transposed else inner,
            outputs=inner if transposed else outer // groups,
            axes=tuple(Axis(*axis) for axis in zip(inputs, results, *windows, x_strides, weight_strides, strict=True)),
            x_strides=(xn, xc),
            weight_strides=(wo, wc),
            dtype=str(weight.element_type),
            planar=self.planar,
            transposed=transposed,
        )

    def _ints(self, name: str) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.op.operation.attributes[name]))


def _window(values: Sequence[int], absent: int, dims: int) -> list[int]:
    """One entry per spatial dim that the kernel walks, some of which the convolution may not have, or have merged."""
    return [absent] * (dims - len(values)) + list(values[-dims:])


def find_conv(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> Conv:
    """The one kiln.conv of a fusion and the strides of its operands."""
    op = next(op for op in body.operations if name_of(op) == "kiln.conv")
    positions: list[int] = []
    for name, v in zip(("x", "weight"), op.operands, strict=False):
        position = body.argument_position(v)
        if position is None:
            raise UnsupportedError("kiln.conv", str(op.location), f"its {name} is computed inside of the kernel")
        positions.append(position)
    zero, one = ir.AffineConstantExpr.get(0), ir.AffineConstantExpr.get(1)

    def four(values: Sequence[ir.AffineExpr], absent: ir.AffineExpr) -> Exprs:
        """Of a convolution over one dim with the rows that it has not."""
        return (*values[:2], absent, values[2]) if len(values) == 3 else tuple(values)

    rank = len(body.dims(op.operands[0]))
    if rank > 5:
        raise UnsupportedError("kiln.conv", str(op.location), "more than three spatial dims")
    x_strides = four(strides_of(layouts[positions[0]], rank), zero)
    weight = layouts[positions[1]]
    # A packed weight has no strides.
    weight_strides = four(strides_of(weight, rank) if affine.is_linear(weight.results[0]) else [zero] * rank, zero)
    images, _, *inputs = four(body.dims(op.operands[0]), one)
    _, _, *results = four(body.dims(op.results[0]), one)
    outs = [four(strides_of(m, rank), zero) for m in layouts[len(body.tensors) :]]
    # Lanes go along channels unless some result would be scattered, and none along columns.
    planar = any(s[1] != one for s in outs) and all(s[-1] == one for s in outs)
    found = Conv(
        op, positions[0], positions[1], tuple(inputs), x_strides, weight_strides, (images, *results), 0, planar
    )
    p = found.problem(static_size)
    if not p.is_pointwise:
        return found
    pixels = inputs[-1]
    for i in reversed(range(len(inputs) - 1)):
        if not all(inputs[i] == one or _equal(s[2 + i], s[-1] * pixels) for s in (x_strides, *outs)):
            return found
        pixels = affine.simplify(inputs[i] * pixels)
    # As a convolution over two dims: one row.
    two = (zero, x_strides[-1])
    weight_strides = (*weight_strides[:2], zero, weight_strides[-1])
    merged = replace(
        found,
        x_sizes=(one, pixels),
        x_strides=(*x_strides[:2], *two),
        weight_strides=weight_strides,
        sizes=(images, one, pixels),
        merged=1,
    )
    if not all(images == one or _equal(s[0], s[-1] * pixels) for s in (x_strides, *outs)):
        return merged
    pixels = affine.simplify(images * pixels)
    return replace(merged, x_sizes=(one, pixels), sizes=(one, one, pixels), merged=2)


def _pixels(conv: Conv) -> ir.AffineExpr:
    """Positions of the result in all images."""
    total: ir.AffineExpr = conv.sizes[0]
    for size in conv.sizes[1:]:
        total = total * size
    return total


def _equal(x: ir.AffineExpr, y: ir.AffineExpr) -> bool:
    return affine.equal(x.maybe_downcast(), y.maybe_downcast())


def plan_conv(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> ConvSchedule:
    """The schedule of a conv fusion."""
    return choose_conv_schedule(find_conv(body, layouts).problem(static_size), isa.target())


def packed_weight_layout(
    body: FusionBody, layouts: Sequence[ir.AffineMap], schedule: ConvSchedule
) -> tuple[ir.AffineMap, int]:
    """The layout, and its number of elements, in which the kernel reads the weight without packing it first."""
    conv = find_conv(body, layouts)
    rank = ir.RankedTensorType(conv.op.operands[1].type).rank
    return packed_layout(conv.problem(static_size), schedule, rank)


def _is_packed(body: FusionBody, layouts: Sequence[ir.AffineMap], conv: Conv, schedule: ConvSchedule) -> bool:
    given = layouts[conv.weight].results[0]
    wanted = packed_weight_layout(body, layouts, schedule)[0].results[0]
    if affine.equal(given, wanted, body.dims(conv.op.operands[1])):
        return True
    if not affine.is_linear(given):
        raise UnsupportedError("kiln.conv", str(conv.op.location), f"a weight packed as {given}, not as {wanted}")
    return False


@emits(kiln.ConvOp, target="cpu", plan=plan_conv, schedules=ConvSchedule)
def emit_conv_fusion(kernel: Kernel) -> None:
    """Write the kernel of a fusion of kind "conv"."""
    e = kernel.evaluator()
    conv = find_conv(kernel.body, kernel.layouts)
    given = kernel.schedule
    schedule = given if isinstance(given, ConvSchedule) else plan_conv(kernel.body, kernel.layouts)
    packed = _is_packed(kernel.body, kernel.layouts, conv, schedule)
    operands = ConvBuffers(
        kernel.buffers[conv.x],
        kernel.buffers[conv.weight],
        e.index(offset_of(kernel.layouts[conv.x])),
        e.index(offset_of(kernel.layouts[conv.weight])) if not packed else 0,
    )
    known = replace(conv.problem(static_size), packed=packed)
    problem = replace(conv.problem(e.index), packed=packed)
    context = kernel.context
    epilogue = _Epilogue(e, conv, isinstance(schedule, _OF_PAIRS))
    emit_conv(kernel.b, problem, schedule, operands, epilogue, context)
    kernel.scratch.bytes = ir.AffineConstantExpr.get(conv_scratch_bytes(known, schedule))
    # Of a transposed convolution's window, a position of the result meets one part in as many as the strides make.
    apart = prod(axis.stride for axis in known.axes) if known.transposed else 1
    kernel.work = _pixels(conv) * max(1, known.groups * known.outputs * known.steps // apart)


class _Epilogue:
    """Evaluates the fusion's roots on vectors of sums (the `ConvEpilogue` protocol)."""

    def __init__(self, e: Evaluator, conv: Conv, pairs: bool):
        """pairs: sums are those of an instruction that takes subnormal numbers as zero, and so may results be."""
        self.e, self.result, self.pairs = e, conv.op.results[0], pairs
        images, *rows, columns = conv.sizes
        lines: ir.AffineExpr = rows[0]
        for size in rows[1:]:
            lines = lines * size
        self.image, self.row, self.column = (e.loops.new(x) for x in (images, lines.maybe_downcast(), columns))
        dims = e.body.dims(self.result)
        self.channel = e.loops.new(dims[1])
        spatial = dims[2:]
        index: list[ir.AffineExpr] = [self.image, self.channel, self.row, self.column]
        if len(spatial) == 1:
            del index[2]
        elif len(spatial) == 3:
            plane, row = (f(self.row, spatial[1]) for f in (ir.AffineExpr.get_floor_div, ir.AffineExpr.get_mod))
            index[2:3] = [plane, row]
        if conv.merged:
            rest: ir.AffineExpr = self.column
            for i in reversed(range(len(spatial))):
                last = conv.merged == 1 and i == 0
                index[2 + i] = rest if last else ir.AffineExpr.get_mod(rest, spatial[i])
                rest = ir.AffineExpr.get_floor_div(rest, spatial[i])
            if conv.merged == 2:
                index[0] = rest
        self.indices: Indices = tuple(e.loops.simplify(x.maybe_downcast()) for x in index)

    @contextmanager
    def channels(
        self, b: Builder, image: Index, row: Index, channel: Index, width: int, mask: ir.Value | None
    ) -> Generator[Callable[[Index, ir.Value], None], None, None]:
        """The evaluator at `width` channels of a row; gives the function that stores one column."""
        lane = Lane(self.channel.position, width, mask, aligned=False)
        with self._row(image, row, channel), self.e.lanes(lane):
            yield lambda column, sums: self._store(b, column, sums)

    @contextmanager
    def columns(
        self, b: Builder, image: Index, row: Index, channel: Index
    ) -> Generator[Callable[[Index, int, ir.Value, ir.Value | None], None], None, None]:
        """The evaluator at one channel of a row; gives the function that stores some columns."""

        def pixels(column: Index, width: int, sums: ir.Value, mask: ir.Value | None) -> None:
            with self.e.lanes(Lane(self.column.position, width, mask, aligned=False)):
                self._store(b, column, sums)

        with self._row(image, row, channel):
            yield pixels

    @contextmanager
    def _row(self, image: Index, row: Index, channel: Index) -> Generator[None, None, None]:
        e = self.e
        saved = e.scopes
        dims = {self.image.position: image, self.row.position: row, self.channel.position: channel}
        e.scopes = [Scope(set(dims), ir.InsertionPoint.current.block.owner.operation)]
        e.values.update(dims)
        yield
        e.scopes = saved

    def _store(self, b: Builder, column: Index, sums: ir.Value) -> None:
        e = self.e
        element = ir.RankedTensorType(self.result.type).element_type
        with e.inside({self.column.position: column}):
            e.bound = {(self.result, self.indices): b.cast_float(sums, element)}
            for i, root in enumerate(e.body.roots):
                indices = index_among(self.indices, e.body.dims(self.result), e.body.dims(root))
                value = e.eval(root, indices)
                e.store(len(e.body.tensors) + i, indices, rounded(b, value) if self.pairs else value)
