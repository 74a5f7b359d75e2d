# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Channels next to each other in memory (`[N, *spatial, C]`) for convolutions and what lies between them.

Which convolutions write so is decided before (`propagate-layouts`, in their attribute `strides`); here the kernels and
calls around them follow, as far as nobody has to copy for it.
"""

from collections.abc import Iterator

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.host.layout import Exprs, HostGraph, constant, is_constant, mul

CONVOLUTION = "aten.convolution.default"
IMAGE = "channels_last_image"
"""Attribute of a `kiln.conv`: channels of its image have to be neighbours; `assign-layouts` copies it if need be."""


def channels_last(shape: Exprs) -> Exprs:
    """Strides of a dense tensor with dim 1 innermost."""
    strides = [constant(1)] * len(shape)
    step = shape[1]
    for d in [*reversed(range(2, len(shape))), 0]:
        strides[d] = step
        step = mul(step, shape[d])
    return tuple(strides)


def is_channels_last(shape: Exprs, strides: Exprs) -> bool:
    """Whether consecutive channels are neighbours, and consecutive columns are not; False where both hold."""
    if len(shape) < 3 or is_constant(shape[1], 1) or all(is_constant(n, 1) for n in shape[2:]):
        return False
    inner = next(s for n, s in zip(reversed(shape), reversed(strides), strict=True) if not is_constant(n, 1))
    return is_constant(strides[1], 1) and not is_constant(inner, 1)


def follow_channels_last(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Strides for the results of fusions that are written channels-last; the strides of convolution calls are set.

    A fusion with a `kiln.conv` has that op's order, or that which a convolution behind it needs, one with a
    `kiln.matmul` is row-major. Any other is channels-last if a convolution that needs it, or a call of one that should
    be, reads its result, else it has the order that most bytes of its operands of the same rank have, with their dims
    where they are in the result, or where none has one that of the convolution that reads it. Left row-major: what the
    function returns (it has its own strides), what a call other than a convolution reads, and what a view reads that
    would need a copy. A result whose channels are in groups (a group norm's) follows the convolution that reads them
    as one dim.
    """
    found: dict[ir.Value, Exprs] = {}
    returned = set(graph.returned)
    groups = _in_groups(graph)
    for op in graph.operations:
        if name_of(op) == "kiln.aten":
            _follow_input(graph, op.operation)
        if name_of(op) != "kiln.fusion":
            continue
        for value in op.operation.results:
            views = list(views_of(value))
            if any(v in returned for v in (value, *(view.results[0] for view in views))):
                continue
            strides = groups.get(value)
            if strides is None and _wants_channels_last(graph, op.operation, value):
                strides = channels_last(graph.shape(value))
            if strides is None:
                continue
            views = [view for view in views if graph.layout(view.results[0]) is not None]
            graph.assign(value, strides)
            if any(graph.layout(v.results[0]) is None for v in views) or _read_by_call(value):
                graph.forget(value)
            else:
                found[value] = strides
    return found


def _in_groups(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Strides for the results that `_of_groups` gives some, and for those of pointwise kernels, of the same sizes, that
    these are made of (a group norm of 1 x 64 x 56 x 56 in several kernels: 520 -> 300 us).
    """
    found: dict[ir.Value, Exprs] = {}
    for op in reversed(graph.operations):
        if name_of(op) != "kiln.fusion":
            continue
        for value in op.operation.results:
            strides = _of_groups(graph, value)
            if strides is not None:
                found[value] = strides
                continue
            if ir.StringAttr(op.operation.attributes["kind"]).value != "pointwise":
                continue
            made = [result for use in value.uses for result in use.owner.operation.results if result in found]
            if made and graph.shape(made[0]) == graph.shape(value):
                found[value] = found[made[0]]
    return found


def _of_groups(graph: HostGraph, value: ir.Value) -> Exprs | None:
    """Strides for a result `[N, G, C / G, *spatial]` of which a convolution that is channels-last reads the view
    `[N, C, *spatial]`; None for any other.

    Of 16 bits: kernels multiply those in pairs of neighbouring channels (a diffusion model's U-Net 20.8 -> 13.3 ms);
    with f32 it made no difference.
    """
    if item_bytes(value.type) != 2:
        return None
    for use in value.uses:
        view = use.owner.operation
        if name_of(view) != "kiln.view" or not any(_reads_image(graph, reader) for reader in view.results[0].uses):
            continue
        dims = [ir.AffineExpr.get_dim(d) for d in range(ir.RankedTensorType(view.results[0].type).rank)]
        size = graph.shape(value)
        if len(size) != len(dims) + 1:
            continue
        first, *rest = ir.AffineMapAttr(view.attributes["map"]).value.results
        if first != dims[0] and not is_constant(size[0], 1):
            continue
        group = ir.AffineExpr.get_floor_div(dims[1], size[2]), ir.AffineExpr.get_mod(dims[1], size[2])
        if [str(e) for e in rest] != [str(e) for e in (*group, *dims[2:])]:
            continue
        batch, channel, *spatial = channels_last(graph.shape(view.results[0]))
        return batch, mul(channel, size[2]), channel, *spatial
    return None


def _reads_image(graph: HostGraph, use: ir.OpOperand) -> bool:
    """Whether a use is that of a kernel whose convolution, a channels-last one, has the value as its image."""
    conv = _convolution_of(graph, use)
    if conv is None:
        return False
    strides = conv.attributes["strides"] if "strides" in conv.attributes else None
    last = strides is not None and is_constant(ir.AffineMapAttr(strides).value.results[1], 1)
    return last or IMAGE in conv.attributes


def needs_channels_last(graph: HostGraph, use: ir.OpOperand) -> bool:
    """Whether a use is that of a kernel whose convolution has to have the value, its image, channels-last."""
    conv = _convolution_of(graph, use)
    return conv is not None and IMAGE in conv.attributes


def _is_walked_along_channels(value: ir.Value) -> bool:
    """Whether a tensor of bytes is read by kernels that walk its channels innermost, as the windows of a quantised
    convolution are gathered.

    The kernel that makes it writes it so: of wider elements it turns squares in registers, where single bytes behind
    padding would be fetched one by one (1 x 64 x 56 x 56: 250 us, against 15).
    """
    return item_bytes(value.type) == 1 and bool(list(value.uses)) and all(map(_walks_channels, value.uses))


def _walks_channels(use: ir.OpOperand) -> bool:
    """Whether a use is that of a kernel that reads the value through views whose last dim walks the channels alone."""
    fusion = use.owner.operation
    if name_of(fusion) != "kiln.fusion":
        return False
    readers = list(fusion.regions[0].blocks[0].arguments[use.operand_number].uses)
    for reader in readers:
        view = reader.owner.operation
        if name_of(view) != "kiln.view":
            return False
        _, channel, *others = ir.AffineMapAttr(view.attributes["map"]).value.results
        last = ir.RankedTensorType(view.results[0].type).rank - 1
        joined = isinstance(channel, ir.AffineModExpr)  # with the window's places: those step between pixels
        walked = ir.AffineModExpr(channel).lhs if joined else channel
        if not isinstance(walked, ir.AffineDimExpr) or walked.position != last:
            return False
        if not joined and any(last in affine.dims_in(e) for e in others):
            return False
    return bool(readers)


def _convolution_of(graph: HostGraph, use: ir.OpOperand) -> ir.Operation | None:
    """The convolution, in the kernel of a use, that has the value as its image."""
    fusion = use.owner.operation
    return graph.kernel(fusion).image_of(use.operand_number) if name_of(fusion) == "kiln.fusion" else None


def _wants_channels_last(graph: HostGraph, fusion: ir.Operation, value: ir.Value) -> bool:
    type_ = ir.RankedTensorType(value.type)
    result = graph.shape(value)
    if type_.rank < 3 or not is_channels_last(result, channels_last(result)):
        return False
    needed = any(needs_channels_last(graph, use) for use in value.uses) or _is_walked_along_channels(value)
    kernel = graph.kernel(fusion)
    if kernel.named:
        op = kernel.named[0]
        if name_of(op) == "kiln.matmul" or kernel.places(op.results[0], value)[1] != 1:
            return False
        if needed or "strides" not in op.attributes:
            return needed
        return is_constant(ir.AffineMapAttr(op.attributes["strides"]).value.results[1], 1)
    if needed or any(_is_marked(use.owner.operation) for use in value.uses if use.operand_number == 0):
        return True
    votes = 0
    arguments = fusion.regions[0].blocks[0].arguments
    for operand, argument in zip(fusion.operands, arguments, strict=True):
        if not isinstance(operand.type, ir.RankedTensorType) or ir.RankedTensorType(operand.type).rank != type_.rank:
            continue
        layout = graph.layout(operand)
        if layout is None:
            continue
        # A permuted operand has the order that it is read in; one whose channels do not get to the result has none.
        places = kernel.places(argument, value)
        if places[1] is None or all(p is None or is_constant(layout.shape[p], 1) for p in places[2:]):
            continue
        dims = [p for p in places if p is not None]
        shape, strides = ([values[p] for p in dims] for values in (layout.shape, layout.strides))
        if places[0] is None:
            shape, strides = [constant(1), *shape], [constant(1), *strides]
        size = item_bytes(operand.type)
        for n in layout.shape:
            known = affine.constant_of(n)
            size *= 1 if known is None else known
        votes += size if is_channels_last(tuple(shape), tuple(strides)) else -size
    return votes > 0 or votes == 0 and any(_reads_image(graph, use) for use in value.uses)


def views_of(value: ir.Value) -> Iterator[ir.Operation]:
    """The views on top of a value, and on top of those."""
    for use in value.uses:
        if name_of(use.owner) == "kiln.view":
            view = use.owner.operation
            yield view
            yield from views_of(view.results[0])


def _read_by_call(value: ir.Value) -> bool:
    """Whether a call that is no convolution of the tensor itself reads a value: what it returns depends on strides."""
    for reader in (value, *(view.results[0] for view in views_of(value))):
        for use in reader.uses:
            if name_of(use.owner) == "kiln.aten" and not (reader == value and _is_convolution(use.owner.operation)):
                return True
    return False


def _is_convolution(call: ir.Operation) -> bool:
    """Whether a call convolves images, so that its result has the order of dims that its input has."""
    is_conv = ir.StringAttr(call.attributes["op"]).value == CONVOLUTION
    return is_conv and ir.RankedTensorType(call.results[0].type).rank == 4


def _is_marked(op: ir.Operation) -> bool:
    """Whether an op is a convolution call whose result should be channels-last."""
    if name_of(op) != "kiln.aten" or not _is_convolution(op):
        return False
    attribute = ir.ArrayAttr(op.attributes["strides"])[0]
    if not isinstance(attribute, ir.AffineMapAttr):
        return False
    shape = ir.AffineMapAttr(ir.ArrayAttr(op.attributes["shapes"])[0]).value
    return is_channels_last(tuple(shape.results), tuple(attribute.value.results))


def _follow_input(graph: HostGraph, call: ir.Operation) -> None:
    """Sets the strides of a convolution call: channels-last if the input or the weight is, else row-major."""
    if not _is_convolution(call):
        return
    layouts = [graph.layout(v) for v in list(call.operands)[:2]]
    attribute: ir.Attribute = ir.UnitAttr.get()
    if any(layout is not None and is_channels_last(layout.shape, layout.strides) for layout in layouts):
        shape = ir.AffineMapAttr(ir.ArrayAttr(call.attributes["shapes"])[0]).value
        strides = channels_last(tuple(shape.results))
        attribute = ir.AffineMapAttr.get(ir.AffineMap.get(0, shape.n_symbols, list(strides)))
    call.attributes["strides"] = ir.ArrayAttr.get([attribute])
    graph.forget(call.results[0])
