# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides where the elements of each tensor between kernels lie in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.lowering.host.arrange import preferred_strides
from kiln.lowering.host.channels_last import (
    channels_last,
    follow_channels_last,
    follow_images,
    mixed_image,
    needs_channels_last,
    views_of,
)
from kiln.lowering.host.depthwise_weights import channels_innermost, weights_of_kernel
from kiln.lowering.host.draws import follow_draws
from kiln.lowering.host.followers import follow_operands
from kiln.lowering.host.layout import Exprs, HostGraph, Layout, add, constant, is_constant, mul
from kiln.lowering.host.view_strides import strides_behind
from kiln.passes.core import Pass, register_pass

__all__ = ["AssignLayouts"]


@register_pass
@dataclass
class AssignLayouts(Pass):
    """Give every operand and result of a fusion its place in memory: attributes layouts and offsets.

    ``layouts`` has an affine map from indices to the element offset per tensor operand, then per result, over the
    fusion's own symbols; ``offsets``, where one is not zero, the first element's offset, which the launch adds to the
    pointer (so that equal kernels stay equal). Rules:

    * arguments have the strides of ``kiln.strides``, results of kiln.aten those of ``strides``, results of fusions
      are row-major, unless the function returns them with other ``kiln.strides``;
    * a fusion's result is channels-last where its convolution (see ``propagate-layouts``), or most of what it reads,
      is, and convolution calls give their results the order of their inputs; not where a view would have to be copied
      or another call reads it;
    * a convolution marked ``channels_last_image`` (see ``choose-vendor``) reads its image so: the kernel that makes it
      writes it so, or it is copied, once for all that read it; so does a call for the gradients of a convolution whose
      result's gradient is channels-last;
    * a fusion's result that is read as a reshape of its permuted dims is written in that order;
    * a call that ``follows`` an operand (attention of cuDNN) gives its result that operand's order of dims, and a
      kernel writes the operand so that the views of the result are aliases;
    * a kiln.view between kernels is an alias: its map is composed into the layouts of those who read it. Where no
      strides describe the view, or a call of ATen would read it backwards, it becomes a copying fusion;
    * a returned view stays an alias if its strides are those asked for, or the kernel can write its result so that they
      are (a group norm's groups and their channels, joined, as a channels-last result), else it is copied.

    Before::

        func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (8, 4)>}
            : (tensor<4x8xf32>) -> tensor<8x4xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%a: tensor<8x4xf32>):
            "kiln.yield"(%a) : (tensor<8x4xf32>) -> ()
          }) {kind = "pointwise", name = "copy"} : (tensor<8x4xf32>) -> tensor<8x4xf32>
          return %1 : tensor<8x4xf32>
        }

    After::

        #map = affine_map<(d0, d1) -> (d1, d0)>
        #map1 = affine_map<() -> (8, 4)>
        #map2 = affine_map<(d0, d1) -> (d0 + d1 * 8)>
        #map3 = affine_map<(d0, d1) -> (d0 * 4 + d1)>
        func.func @main(%arg0: tensor<4x8xf32>) -> tensor<8x4xf32> {
          %0 = "kiln.view"(%arg0) {map = #map, shape = #map1} : (tensor<4x8xf32>) -> tensor<8x4xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%arg1: tensor<8x4xf32>):
            "kiln.yield"(%arg1) : (tensor<8x4xf32>) -> ()
          }) {kind = "pointwise", layouts = [#map2, #map3], name = "copy"} : (tensor<8x4xf32>) -> tensor<8x4xf32>
          return %1 : tensor<8x4xf32>
        }
    """

    name = "assign-layouts"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for function in list(module.body):
            if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
                self._copy_views(function, self._arrange_results(function))
                if self._copy_images_of_calls(function):
                    self._copy_views(function, self._graph(function))  # of results that lie as the copies do
                graph = self._place_images(function, self._place_results(function))
                fusions = [op.operation for op in graph.operations if kiln.name_of(op) == "kiln.fusion"]
                replaced = [_annotate(graph, op) for op in fusions]
                # Last: the analysis knows values by address, and a new op may get that of an erased one.
                for op in replaced:
                    if op is not None:
                        op.erase()

    def _graph(self, function: ir.OpView) -> HostGraph:
        """The analysis with the results arranged for the views that read them."""
        return _with_strides(function, self._preferred)

    def _arrange_results(self, function: ir.OpView) -> HostGraph:
        """Finds strides of results that make copies needless; returns the analysis without them."""
        graph = HostGraph(function)
        self._preferred = follow_channels_last(graph)
        if self._preferred:
            self.count("channels-last results", len(self._preferred))
        self._preferred |= follow_operands(graph)
        self._preferred |= preferred_strides(graph)
        self._preferred |= follow_draws(graph)  # the last: another order would be wrong, not only slower
        return graph

    def _copy_views(self, function: ir.OpView, graph: HostGraph) -> None:
        """Turns views that no strides describe into fusions."""
        for op in list(graph.operations):
            if op.operation.name != "kiln.view" or not _why_copied(graph, op.results[0]):
                continue
            if all(use.owner.operation.name == "kiln.view" for use in op.results[0].uses):
                continue  # its readers see through it, or are copied themselves
            source = op.operation
            chain = [source]
            while graph.layout(source.operands[0]) is None:
                source = source.operands[0].owner.operation
                chain.append(source)
            self.note(op, f"{_why_copied(graph, op.results[0])}: copied")
            self.count("view copies")
            copy = _copy_fusion(graph, source.operands[0], chain[::-1], op.operation)
            op.results[0].replace_all_uses_with(copy)
            op.operation.erase()
            graph = self._graph(function)

    def _place_results(self, function: ir.OpView) -> HostGraph:
        """Chooses the strides of returned values, copying where the value cannot have those that are asked for."""
        graph = self._graph(function)
        copies: list[tuple[int, tuple[ir.AffineExpr, ...]]] = []
        for number, value in enumerate(graph.returned):
            attribute = graph.result_attribute(number, "kiln.strides")
            if not isinstance(value.type, ir.RankedTensorType) or not isinstance(attribute, ir.AffineMapAttr):
                continue
            wanted = graph.function_map(attribute)
            if wanted is None or self._arrange(graph, value, wanted):
                continue
            copies.append((number, wanted))
        if not copies:
            return graph
        terminator = list(graph.block)[-1]
        assigned = dict(graph.assigned)
        for number, wanted in copies:
            self.note(terminator, f"result {number} is copied to have the strides that eager gives it")
            self.count("result copies")
            copy = _copy_fusion(graph, graph.returned[number], [], terminator.operation)
            terminator.operands[number] = copy
            assigned[copy] = wanted
        return _with_strides(function, assigned)

    def _place_images(self, function: ir.OpView, graph: HostGraph) -> HostGraph:
        """Copies what convolutions need channels-last and nobody could write so."""
        copies = self._copy_images(graph, _images_of_kernel)
        copies |= self._copy_weights(graph)
        return _with_strides(function, {**graph.assigned, **copies}) if copies else graph

    def _copy_weights(self, graph: HostGraph) -> dict[ir.Value, Exprs]:
        """Copies of the weights `[C, ...]` whose channels a kernel needs as neighbours, with their strides."""
        assigned: dict[ir.Value, Exprs] = {}
        for op in graph.operations:
            for number in weights_of_kernel(graph, op.operation):
                layout = graph.layout(op.operation.operands[number])
                if layout is None or is_constant(layout.strides[0], 1):
                    continue
                copy = _copy_fusion(graph, op.operation.operands[number], [], op.operation)
                assigned[copy] = channels_innermost(layout.shape)
                self.note(op, "its weight is copied to have neighbouring channels")
                self.count("weight copies")
                op.operation.operands[number] = copy
        return assigned

    def _copy_images_of_calls(self, function: ir.OpView) -> bool:
        """The same for calls, whose results lie as what they read does; whether there were any."""
        copies = self._copy_images(self._graph(function), mixed_image)
        if copies:
            self._preferred |= copies
            follow_images(self._graph(function))
        return bool(copies)

    def _copy_images(
        self, graph: HostGraph, images: Callable[[HostGraph, ir.Operation], list[int]]
    ) -> dict[ir.Value, Exprs]:
        """Copies of the operands that have to be channels-last, once for all that read one, with their strides."""
        copies: dict[ir.Value, ir.Value] = {}
        assigned: dict[ir.Value, Exprs] = {}
        for op in graph.operations:
            for number in images(graph, op.operation):
                value = op.operation.operands[number]
                layout = graph.layout(value)
                if layout is None or is_constant(layout.shape[1], 1) or is_constant(layout.strides[1], 1):
                    continue
                if value not in copies:
                    copies[value] = _copy_fusion(graph, value, [], op.operation)
                    assigned[copies[value]] = channels_last(layout.shape)
                    self.note(op, "its image is copied to be channels-last")
                    self.count("image copies")
                op.operation.operands[number] = copies[value]
        return assigned

    @staticmethod
    def _arrange(graph: HostGraph, value: ir.Value, wanted: tuple[ir.AffineExpr, ...]) -> bool:
        """Whether `value` has, or could be given, the strides `wanted`."""
        layout = graph.layout(value)
        assert layout is not None, "views without strides were copied"
        root = layout.root
        free = (
            not isinstance(root.owner, ir.Block)
            and kiln.name_of(root.owner) == "kiln.fusion"
            and root not in graph.assigned
        )
        strides = strides_behind(graph, root, value, wanted) if free else None
        if strides is not None:
            graph.assign(root, strides)
            # Views that would need a copy then are aliases now: rather one copy of the result.
            if all(graph.layout(view.results[0]) is not None for view in views_of(root)):
                return True
            graph.forget(root)
        fits = layout.same_strides(wanted)
        if free and fits:
            graph.assign(root, graph.strided_layout(root).strides)  # another result must not rearrange it any more
        return fits


def _images_of_kernel(graph: HostGraph, op: ir.Operation) -> list[int]:
    """The operands of a kernel that have to be channels-last."""
    if kiln.name_of(op) != "kiln.fusion":
        return []
    return [i for i in range(len(op.operands)) if needs_channels_last(graph, op.op_operands[i])]


def _with_strides(function: ir.OpView, assigned: Mapping[ir.Value, Exprs]) -> HostGraph:
    """The analysis with strides of some results."""
    graph = HostGraph(function)
    for value, strides in assigned.items():
        graph.assign(value, strides)
    return graph


def _why_copied(graph: HostGraph, view: ir.Value) -> str:
    """Why a view cannot be passed as it is; "" if it can."""
    layout = graph.layout(view)
    if layout is None:
        return "no strides describe this view"
    # Kernels walk backwards, but PyTorch's tensors do not.
    is_called = any(kiln.name_of(use.owner.operation) == "kiln.aten" for use in view.uses)
    if is_called and not all(affine.nonnegative(s) for s in layout.strides):
        return "a call reads this view, and its strides are negative"
    return ""


def _copy_fusion(graph: HostGraph, source: ir.Value, views: Sequence[ir.Operation], before: ir.Operation) -> ir.Value:
    """A fusion that reads `source` through a chain of views and writes it out; inserted before an op."""
    result = views[-1].results[0] if views else source
    used: set[int] = set()
    for value in (source, result):
        for e in graph.shape(value):
            used |= affine.symbols_in(e)
    symbols = [graph.symbols[i] for i in sorted(used)]
    for view in views:
        symbols += [v for v in view.operands if isinstance(v.type, ir.IndexType) and v not in symbols]
    with ir.InsertionPoint(before), before.location:
        fusion = kiln.fusion([source], [result.type], "pointwise", "copy", symbols)
        block = fusion.regions[0].blocks[0]
        inner: dict[ir.Value, ir.Value] = dict(zip([source, *symbols], block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for view in views:
                copy = view.clone(ir.InsertionPoint(block))
                for i, operand in enumerate(view.operands):
                    copy.operands[i] = inner[operand]
                inner[view.results[0]] = copy.results[0]
            locals_ = {graph.position[v]: ir.AffineExpr.get_symbol(i) for i, v in enumerate(symbols)}
            shape = [affine.substitute(e, {}, locals_) for e in graph.shape(result)]
            kiln.yield_([_identity(inner[result], shape, list(block.arguments)[1:])])
        if not ir.RankedTensorType(source.type).has_static_shape:
            sizes = [affine.substitute(e, {}, locals_) for e in graph.shape(source)]
            fusion.operation.attributes["shapes"] = ir.ArrayAttr.get(
                [ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), sizes))]
            )
    return fusion.results[0]


def _identity(value: ir.Value, shape: Sequence[ir.AffineExpr], symbols: Sequence[ir.Value]) -> ir.Value:
    """linalg.generic that yields its input."""
    type_ = ir.RankedTensorType(value.type)
    out = kiln.empty(type_.element_type, ir.AffineMap.get(0, len(symbols), list(shape)), symbols)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(type_.rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    op = ir.Operation.create(
        "linalg.generic",
        results=[type_],
        operands=[value, out],
        attributes={
            "indexing_maps": ir.ArrayAttr.get([identity, identity]),
            "iterator_types": ir.ArrayAttr.get([parallel] * type_.rank),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
        },
        regions=1,
    )
    block = op.regions[0].blocks.append(*[type_.element_type] * 2, arg_locs=[op.location] * 2)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return op.results[0]


def _annotate(graph: HostGraph, fusion: ir.Operation) -> ir.Operation | None:
    """Sets `layouts` and `offsets` of a fusion, giving it the symbols that they need.

    Returns the op that another one replaced for that, without uses, if any.
    """
    tensors = [v for v in [*fusion.operands, *fusion.results] if not isinstance(v.type, ir.IndexType)]
    layouts = [layout for layout in map(graph.layout, tensors) if layout is not None]
    assert len(layouts) == len(tensors), "views without strides were copied"
    used: set[int] = set()
    for layout in layouts:
        for e in (*_steps(layout), layout.offset):
            used |= affine.symbols_in(e)
    symbols = [v for v in fusion.operands if isinstance(v.type, ir.IndexType)]
    present = {graph.position[v] for v in symbols if v in graph.position}
    missing = [graph.symbols[i] for i in sorted(used - present)]
    attributes: dict[str, ir.Attribute] = {}
    count = len(symbols) + len(missing)
    local = {graph.position[v]: ir.AffineExpr.get_symbol(i)
             for i, v in enumerate([*symbols, *missing]) if v in graph.position}  # fmt: skip
    maps: list[ir.Attribute] = []
    offsets: list[ir.Attribute] = []
    for layout in layouts:
        address = constant(0)
        for i, step in enumerate(_steps(layout)):
            address = add(address, mul(ir.AffineExpr.get_dim(i), affine.substitute(step, {}, local)))
        maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(len(layout.shape), count, [address])))
        offsets.append(ir.AffineMapAttr.get(ir.AffineMap.get(0, count, [affine.substitute(layout.offset, {}, local)])))
    attributes["layouts"] = ir.ArrayAttr.get(maps)
    if not all(is_constant(layout.offset, 0) for layout in layouts):
        attributes["offsets"] = ir.ArrayAttr.get(offsets)
    wider = _with_symbols(fusion, missing, count) if missing else fusion
    for key, value in attributes.items():
        wider.attributes[key] = value
    return fusion if missing else None


def _steps(layout: Layout) -> list[ir.AffineExpr]:
    """Strides, 0 along a size of 1 (where the index is always 0)."""
    zero = constant(0)
    return [zero if is_constant(n, 1) else s for n, s in zip(layout.shape, layout.strides, strict=True)]


def _with_symbols(fusion: ir.Operation, symbols: Sequence[ir.Value], count: int) -> ir.Operation:
    """The fusion with more trailing index operands; the old one is left without a body and without uses."""
    attributes = {key: fusion.attributes[key] for key in fusion.attributes}
    if "shapes" in attributes:
        wider: list[ir.Attribute] = []
        for attribute in ir.ArrayAttr(attributes["shapes"]):
            map_ = ir.AffineMapAttr(attribute).value
            wider.append(ir.AffineMapAttr.get(ir.AffineMap.get(map_.n_dims, count, list(map_.results))))
        attributes["shapes"] = ir.ArrayAttr.get(wider)
    with ir.InsertionPoint(fusion), fusion.location:
        operands = [*fusion.operands, *symbols]
        new = kiln.FusionOp.create(operands, [r.type for r in fusion.results], attributes).operation
    block = fusion.regions[0].blocks[0]
    block.append_to(new.regions[0])
    for symbol in symbols:
        block.add_argument(symbol.type, fusion.location)
    for old, replacement in zip(fusion.results, new.results, strict=True):
        old.replace_all_uses_with(replacement)
    return new
