# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What attention and convolutions in a fusion read: sizes and strides over the fusion's symbols."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape
from kiln.lowering.gpu.dot.conv_schedule import ConvShape, rows_are_taps
from kiln.lowering.gpu.dot.problem import Operand, element_name, find_operand
from kiln.lowering.gpu.dot.schedule import known_product
from kiln.lowering.host.depthwise_weights import CHANNELS_INNERMOST
from kiln.lowering.tile.body import FusionBody


@dataclass(frozen=True)
class Attention:
    """A fusion's kiln.attention: query, key, value (and mask), each as a strided [*batch, heads, rows, columns]."""

    op: ir.OpView
    operands: tuple[Operand, ...]
    query_sizes: tuple[ir.AffineExpr, ...]
    key_sizes: tuple[ir.AffineExpr, ...]
    value_sizes: tuple[ir.AffineExpr, ...]
    qk_size: int
    v_size: int
    element: str
    mask_element: str | None

    @property
    def scale(self) -> float:
        """What scores are multiplied by."""
        return float(ir.FloatAttr(self.op.operation.attributes["scale"]).value)

    @property
    def fill(self) -> float | None:
        """What masked scores are replaced by; None where the mask is added."""
        attributes = self.op.operation.attributes
        return float(ir.FloatAttr(attributes["fill"]).value) if "fill" in attributes else None

    @property
    def causal(self) -> bool:
        """Whether a query sees no key behind its own position."""
        return bool(ir.IntegerAttr(self.op.operation.attributes["causal"]).value)

    def shape(self, tf32: bool) -> AttentionShape:
        """What a schedule is chosen by."""
        *heads, queries, _ = (affine.constant_of(x) for x in self.query_sizes)
        keys = affine.constant_of(self.key_sizes[-2])
        count = known_product(heads)
        masked = self.mask_element is not None
        return AttentionShape(count, queries, keys, self.qk_size, self.v_size, self.element, tf32, self.causal, masked)


def find_attention(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> Attention:
    """The kiln.attention of a fusion (or of one part of it) and where its operands lie.

    Raises UnsupportedError for f64, for head sizes known at run time only, and for operands that are computed in the
    fusion or are not strided.
    """
    op = next(op for op in body.operations if isinstance(op, kiln.AttentionOp))
    where = str(op.location)
    element = element_name(op.operands[0])
    if element not in ("f32", "bf16", "f16"):
        raise UnsupportedError("kiln.attention", where, f"element type {element} on a GPU")
    query, key, value = (body.dims(v) for v in list(op.operands)[:3])
    qk_size, v_size = affine.constant_of(query[-1]), affine.constant_of(value[-1])
    if qk_size is None or v_size is None:
        raise UnsupportedError("kiln.attention", where, "a head size known only at run time")
    operands = [find_operand(body, layouts, op, i, len(query)) for i in range(len(op.operands))]
    mask = None
    if len(operands) == 4:
        mask = element_name(op.operands[3])
        operands[3] = _broadcast(operands[3], body.dims(op.operands[3]))
    return Attention(op, tuple(operands), query, key, value, qk_size, v_size, element, mask)


def _broadcast(operand: Operand, sizes: Sequence[ir.AffineExpr]) -> Operand:
    """Dims of one element are read with stride 0."""
    zero = ir.AffineConstantExpr.get(0)
    missing = len(operand.strides) - len(sizes)
    single = [True] * missing + [affine.constant_of(x) == 1 for x in sizes]
    strides = tuple(zero if one else s for s, one in zip(operand.strides, single, strict=True))
    return Operand(operand.position, strides, operand.offset)


@dataclass(frozen=True)
class Convolution:
    """A fusion's kiln.conv; channels and out are those of one group, sizes those of x and of the result."""

    op: ir.OpView
    x: Operand
    weight: Operand
    sizes: tuple[ir.AffineExpr, ...]
    result_sizes: tuple[ir.AffineExpr, ...]
    kernel: tuple[int, ...]
    channels: int
    out: int
    groups: int
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    element: str

    def shape(self, tf32: bool, hint: Callable[[ir.AffineExpr], int | None]) -> ConvShape:
        """What a schedule is chosen by. hint: what a size is, or is likely to be."""
        positions = (self.result_sizes[0], *self.result_sizes[2:])
        rows = known_product([hint(x) for x in positions])
        known = [affine.constant_of(x) for x in positions]
        taps = known_product(self.kernel) or 1
        dtype = "tf32" if tf32 and self.element == "f32" else self.element
        sliding = tuple(n for n in known if n is not None) if self.slides() else ()
        images = (sliding[0], sliding[1], sliding[2]) if len(sliding) == 3 else None
        return ConvShape(rows, self.groups, self.channels, self.out, taps, dtype, images)

    def slides(self) -> bool:
        """Whether the kernel for windows that slide is for it: channels are neighbours in both operands."""
        is_marked = CHANNELS_INNERMOST in self.op.operation.attributes
        return is_marked and all(affine.constant_of(s) == 1 for s in (self.x.strides[1], self.weight.strides[0]))

    def with_rows(self) -> "Convolution":
        """The same convolution with the rows of its window as channels: fewer taps, whose elements lie next to each
        other in both operands. Itself where they do not, or where that is no gain.
        """
        next_to = all(
            affine.constant_of(x.strides[1]) == 1 and affine.constant_of(x.strides[-1]) == self.channels
            for x in (self.x, self.weight)
        )
        if not next_to or self.groups > 1 or self.padding[-1] or self.dilation[-1] != 1:
            return self
        if not rows_are_taps(self.channels, self.kernel[-1]):
            return self
        return replace(self, kernel=(*self.kernel[:-1], 1), channels=self.channels * self.kernel[-1])


def find_conv(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> Convolution:
    """The kiln.conv of a fusion and where its operands lie.

    Raises UnsupportedError for transposed convolutions, for integers, for weights whose sizes are known at run time
    only, and for operands that are computed in the fusion or are not strided.
    """
    op = next(op for op in body.operations if isinstance(op, kiln.ConvOp))
    where, attributes = str(op.location), op.operation.attributes
    if ir.IntegerAttr(attributes["transposed"]).value:
        raise UnsupportedError("kiln.conv", where, "a transposed convolution on a GPU")
    element = element_name(op.operands[0])
    if element not in ("f64", "f32", "bf16", "f16"):
        raise UnsupportedError("kiln.conv", where, f"element type {element} on a GPU")
    sizes, result = body.dims(op.operands[0]), body.dims(op.results[0])
    weight = [affine.constant_of(x) for x in body.dims(op.operands[1])]
    known = [x for x in weight if x is not None]
    if len(known) < len(weight):
        raise UnsupportedError("kiln.conv", where, "a weight whose sizes are known only at run time")
    groups = int(ir.IntegerAttr(attributes["groups"]).value)
    lists = (tuple(ir.DenseI64ArrayAttr(attributes[name])) for name in ("stride", "padding", "dilation"))
    stride, padding, dilation = lists
    rank = len(sizes)
    x, w = (find_operand(body, layouts, op, i, rank) for i in range(2))
    return Convolution(
        op, x, w, sizes, result, tuple(known[2:]), known[1], known[0] // groups, groups, stride, padding, dilation,
        element,
    ).with_rows()  # fmt: skip
