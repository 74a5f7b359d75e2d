# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Channels next to each other in memory (`[N, *spatial, C]`) for convolutions and what lies between them.

Which convolutions write so is decided before (`propagate-layouts`, in their attribute `strides`); here the kernels and
calls around them follow, as far as nobody has to copy for it.
"""

from collections.abc import Iterator, Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.host.layout import Exprs, HostGraph, Layout, constant, is_constant, mul

CONVOLUTION = "aten.convolution.default"
_CONVOLUTION_BACKWARD = "aten.convolution_backward.default"
_IMAGES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    CONVOLUTION: ((0,), (0, 1)),
    _CONVOLUTION_BACKWARD: ((0, 1), (1, 2)),
    "aten.max_pool2d_with_indices.default": ((0,), (0,)),
    "aten.max_pool2d_with_indices_backward.default": ((0, 1, 2), (1,)),
}
"""Calls of ATen that take images in either order: which operands are images, and of which one has to be channels last
for results of four dims to be so (of convolutions an image or the weight: `cudnn_conv_suggest_memory_format`)."""
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


def is_made_channels_last(value: ir.Value) -> bool:
    """Whether an image, before there are kernels, will be channels-last: as arguments and convolutions say, as loops,
    calls and slices have it that read such images, and as a view of a tensor with the channels as its last dim is.
    """
    pending, seen = [value], set[ir.Value]()
    while pending:
        image = pending.pop()
        type_ = ir.RankedTensorType(image.type)
        if image in seen or type_.rank < 3:
            continue
        seen.add(image)
        strides = _strides_before_kernels(image)
        if strides is not None and _are_of_channels(type_.shape, strides):
            return True
        if isinstance(image.owner, ir.Block):
            continue
        op = image.owner.operation
        if name_of(op) == "kiln.aten":
            pending += [op.operands[k] for k in _images(op)[1]]
        elif name_of(op) == "kiln.view" and _keeps_dims(op):
            pending.append(op.operands[0])
        elif name_of(op) == "kiln.view" and _moves_channels_forward(op) and not is_made_channels_last(op.operands[0]):
            return True
        elif op.name == "linalg.generic":
            tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
            pending += [v for v in tensors if ir.RankedTensorType(v.type).shape == type_.shape]
    return False


def _keeps_dims(view: ir.Operation) -> bool:
    """Whether each dim of a view walks the same dim of its operand, as that of a slice does."""
    walked = enumerate(ir.AffineMapAttr(view.attributes["map"]).value.results)
    rank = ir.RankedTensorType(view.results[0].type).rank
    return ir.RankedTensorType(view.operands[0].type).rank == rank and all(affine.dims_in(e) <= {d} for d, e in walked)


def _moves_channels_forward(view: ir.Operation) -> bool:
    """Whether a view `[N, C, *spatial]` is of a tensor `[N, *spatial, C]`, as `permute(0, 3, 1, 2)` makes it.

    The view has three dims or more; its operand may have any number, as that of a number that is expanded has none.
    """
    walked = ir.AffineMapAttr(view.attributes["map"]).value
    first, channels, *spatial = (ir.AffineExpr.get_dim(d) for d in range(walked.n_dims))
    return list(walked.results) == [first, *spatial, channels]


def _strides_before_kernels(value: ir.Value) -> Sequence[ir.AffineExpr] | None:
    """The strides of an argument, or those that a convolution or a call says of its first result."""
    if isinstance(value.owner, ir.Block):
        group, number, name = value.owner.owner.attributes, ir.BlockArgument(value).arg_number, "kiln.strides"
        entry = ir.DictAttr(ir.ArrayAttr(group["arg_attrs"])[number]) if "arg_attrs" in group else None
        found = entry[name] if entry is not None and name in entry else None
    else:
        op = value.owner.operation
        found = op.attributes["strides"] if "strides" in op.attributes else None
        if isinstance(found, ir.ArrayAttr):
            found = found[ir.OpResult(value).result_number]
    return list(found.value.results) if isinstance(found, ir.AffineMapAttr) else None


def _are_of_channels(sizes: Sequence[int], strides: Sequence[ir.AffineExpr]) -> bool:
    """As `is_channels_last`, of sizes in a type."""
    return is_channels_last(tuple(constant(max(n, 2)) if n != 1 else constant(1) for n in sizes), tuple(strides))


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
    asked_for = _returned_so(graph)
    placed: list[ir.Value] = []
    groups = _in_groups(graph)
    for op in graph.operations:
        if name_of(op) == "kiln.aten":
            _follow_input(graph, op.operation)
        if name_of(op) != "kiln.fusion":
            continue
        for value in op.operation.results:
            views = list(views_of(value))
            if value in asked_for:
                graph.assign(value, asked_for[value])  # for those who read it; `assign-layouts` places results
                placed.append(value)
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
    for value in placed:
        graph.forget(value)
    return found


def _returned_so(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Values that the function returns channels-last, with their strides."""
    found: dict[ir.Value, Exprs] = {}
    for number, value in enumerate(graph.returned):
        attribute = graph.result_attribute(number, "kiln.strides")
        strides = graph.function_map(attribute) if isinstance(attribute, ir.AffineMapAttr) else None
        if strides is not None and is_channels_last(graph.shape(value), strides):
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


def mixed_image(graph: HostGraph, call: ir.Operation) -> list[int]:
    """The image that a call for a convolution's gradients reads, where the gradient is channels-last and the image is
    not: the library would turn the gradient, and work on planar tensors.
    """
    is_gradient = name_of(call) == "kiln.aten" and ir.StringAttr(call.attributes["op"]).value == _CONVOLUTION_BACKWARD
    if not is_gradient or not _images(call)[1]:
        return []
    gradient, *others = (_lies_so(graph.layout(v)) for v in list(call.operands)[:3])
    return [1] if gradient and not any(others) else []


def follow_images(graph: HostGraph) -> None:
    """Sets the strides of the results of all calls that take images in either order."""
    for op in graph.operations:
        if name_of(op) == "kiln.aten":
            _follow_input(graph, op.operation)


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
    if needed or any(_is_marked(graph, use) for use in value.uses):
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
    """Whether a call that takes no images in either order reads a value: what it returns depends on strides."""
    for reader in (value, *(view.results[0] for view in views_of(value))):
        for use in reader.uses:
            call = use.owner.operation
            if name_of(call) == "kiln.aten" and not (reader == value and takes_image(call, use.operand_number)):
                return True
    return False


def takes_image(call: ir.Operation, number: int) -> bool:
    """Whether an operand of a call of ATen is an image, whose order its results of four dims can follow."""
    return number in _images(call)[0]


def _images(call: ir.Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As in `_IMAGES`; nothing where a call takes no images of four dims, or one tensor twice."""
    name = ir.StringAttr(call.attributes["op"]).value
    operands, deciding = _IMAGES.get(name, ((), ()))
    tensors = [v for v in call.operands if isinstance(v.type, ir.RankedTensorType)]
    most = max((*operands, *deciding), default=-1)
    if most < 0 or len(tensors) <= most or ir.RankedTensorType(call.results[0].type).rank != 4:
        return (), ()
    return operands, deciding


def _is_marked(graph: HostGraph, use: ir.OpOperand) -> bool:
    """Whether a use is that of a call that works on channels-last images: a convolution whose result should be so, or
    a gradient of which another operand, one that decides, is.
    """
    op = use.owner.operation
    if name_of(op) != "kiln.aten" or not takes_image(op, use.operand_number):
        return False
    if ir.StringAttr(op.attributes["op"]).value != CONVOLUTION:
        others = [k for k in _images(op)[1] if k != use.operand_number]
        return any(_lies_so(graph.layout(op.operands[k])) for k in others)
    attribute = ir.ArrayAttr(op.attributes["strides"])[0]
    if not isinstance(attribute, ir.AffineMapAttr):
        return False
    shape = ir.AffineMapAttr(ir.ArrayAttr(op.attributes["shapes"])[0]).value
    return is_channels_last(tuple(shape.results), tuple(attribute.value.results))


def _lies_so(layout: Layout | None) -> bool:
    return layout is not None and is_channels_last(layout.shape, layout.strides)


def _follow_input(graph: HostGraph, call: ir.Operation) -> None:
    """Sets the strides of a call's results that are images: channels-last if what decides is, else row-major."""
    _, deciding = _images(call)
    if not deciding:
        return
    is_last = any(_lies_so(graph.layout(call.operands[k])) for k in deciding)
    shapes = [ir.AffineMapAttr(shape).value for shape in ir.ArrayAttr(call.attributes["shapes"])]
    strides = list(ir.ArrayAttr(call.attributes["strides"]))
    for number, shape in enumerate(shapes):
        if len(shape.results) == 4:
            map_ = ir.AffineMap.get(0, shape.n_symbols, list(channels_last(tuple(shape.results))))
            strides[number] = ir.AffineMapAttr.get(map_) if is_last else ir.UnitAttr.get()
            graph.forget(call.results[number])
    call.attributes["strides"] = ir.ArrayAttr.get(strides)
