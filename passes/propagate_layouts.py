# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Decides which convolutions work on tensors whose channels are next to each other in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.host.channels_last import channels_last, is_channels_last, takes_image
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.target import find_target
from kiln.lowering.tile.body import reduction_dims
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["PropagateLayouts"]

_TAKEN = paths.group("gpu layouts", "images that are copied")


@register_pass
@dataclass
class PropagateLayouts(Pass):
    """Give convolutions results whose channels are neighbours in memory (`channels_last`), where that saves traffic.

    Logical dims stay `[N, C, *spatial]`; only the attribute ``strides`` of each ``kiln.conv`` changes, which
    ``choose-vendor`` and ``assign-layouts`` follow. The decision is one for all convolutions that are connected by
    tensors with the same channels (through norms, pointwise ops, pools, pads and concatenations), in bytes read and
    written:

    * saved: the reordering, there and back, of each input and result of a convolution that stays among them. A kernel
      with lanes along channels, ours or the library's, would do it for a row-major tensor;
    * paid: one reordering of each row-major argument, or result of a call, of more than ``few_channels`` channels, of
      each result that the caller wants row-major, and of what a reshape or a call reads. Arguments and results that
      the caller has channels-last count as saved.

    Where a convolution's kernel needs its image channels-last (`wants_channels_last` of the target), arguments that it
    reads cost nothing: those are copied in either case, or the library takes far longer than the copy. Nor do results
    that such a convolution writes with its epilogue. Where nothing is saved and nothing paid, it has its way.

    A dynamic size counts as 1; nearly always it is the batch, which all tensors have.

    Before::

        #shape = affine_map<() -> (1, 16, 8, 8)>
        #planar = affine_map<() -> (1024, 64, 8, 1)>
        func.func @main(%x: tensor<1x3x8x8xf32>, %v: tensor<16x3x3x3xf32>, %w: tensor<16x16x3x3xf32>)
            -> tensor<1x16xf32> {
          %zero = arith.constant dense<0.0> : tensor<1x16xf32>
          %0 = "kiln.conv"(%x, %v) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
            padding = array<i64: 1, 1>, shape = #shape, stride = array<i64: 1, 1>, strides = #planar,
            transposed = false} : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x8x8xf32>
          %1 = "kiln.conv"(%0, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
            padding = array<i64: 1, 1>, shape = #shape, stride = array<i64: 1, 1>, strides = #planar,
            transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
          %2 = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>,
              affine_map<(n, c, h, w) -> (n, c)>],
              iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
              ins(%1 : tensor<1x16x8x8xf32>) outs(%zero : tensor<1x16xf32>) {
          ^bb0(%a: f32, %sum: f32):
            %b = arith.addf %a, %sum : f32
            linalg.yield %b : f32
          } -> tensor<1x16xf32>
          return %2 : tensor<1x16xf32>
        }

    After::

        #map = affine_map<() -> (1, 16, 8, 8)>
        #map1 = affine_map<() -> (1024, 1, 128, 16)>
        #map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
        #map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1)>
        func.func @main(%arg0: tensor<1x3x8x8xf32>, %arg1: tensor<16x3x3x3xf32>, %arg2: tensor<16x16x3x3xf32>)
            -> tensor<1x16xf32> {
          %cst = arith.constant dense<0.0> : tensor<1x16xf32>
          %0 = "kiln.conv"(%arg0, %arg1) {dilation = array<i64: 1, 1>, groups = 1 : i64,
            output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #map, stride = array<i64: 1, 1>,
            strides = #map1, transposed = false} : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x8x8xf32>
          %1 = "kiln.conv"(%0, %arg2) {dilation = array<i64: 1, 1>, groups = 1 : i64,
            output_padding = array<i64: 0, 0>, padding = array<i64: 1, 1>, shape = #map, stride = array<i64: 1, 1>,
            strides = #map1, transposed = false} : (tensor<1x16x8x8xf32>, tensor<16x16x3x3xf32>) -> tensor<1x16x8x8xf32>
          %2 = linalg.generic {indexing_maps = [#map2, #map3],
              iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
              ins(%1 : tensor<1x16x8x8xf32>) outs(%cst : tensor<1x16xf32>) {
          ^bb0(%in: f32, %out: f32):
            %3 = arith.addf %in, %out : f32
            linalg.yield %3 : f32
          } -> tensor<1x16xf32>
          return %2 : tensor<1x16xf32>
        }
    """

    name = "propagate-layouts"
    few_channels: int = 4
    """Convolutions read arguments of up to so many channels (images) as they are: nothing to gain."""
    target: str = "cpu"
    """What the kernels are for."""

    def run(self, module: ir.Module) -> None:
        """Decide for each set of connected convolutions of each function."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if function.regions[0].blocks:
                for net in _Connections(function, self.few_channels, self.target).nets():
                    self._decide(net)

    def _decide(self, net: "_Net") -> None:
        figures = f"saves {net.saved:,} bytes of reordering in {len(net.convolutions)} convolutions, costs {net.paid:,}"
        if net.saved < net.paid or net.saved == net.paid and not net.is_wanted:
            self.count("kept")
            self.note(net.convolutions[0], f"row-major: channels-last {figures}{net.why()}")
            return
        if not may_rewrite(net.convolutions[0]):
            return
        for conv in net.convolutions:
            shape = ir.AffineMapAttr(conv.attributes["shape"]).value
            strides = channels_last(tuple(shape.results))
            conv.attributes["strides"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, shape.n_symbols, list(strides)))
            self.count("matched")
        self.note(net.convolutions[0], f"channels-last: {figures}{net.why()}")


@dataclass
class _Net:
    """Connected convolutions. saved, paid: bytes. is_wanted: by a kernel. borders: what is paid for, in words."""

    convolutions: list[ir.Operation] = field(default_factory=list[ir.Operation])
    saved: int = 0
    paid: int = 0
    is_wanted: bool = False
    borders: list[str] = field(default_factory=list[str])

    def why(self) -> str:
        return f" ({', '.join(dict.fromkeys(self.borders))})" if self.borders else ""


class _Connections:
    """Tensors of one function, joined where an op gives its result the channels of its operand."""

    def __init__(self, function: ir.Operation, few_channels: int, target: str) -> None:
        self.function, self.few_channels, self.target = function, few_channels, target
        self.block = function.regions[0].blocks[0]
        self.operations = [op.operation for op in self.block.operations]
        self.shapes = SymbolicShapes(function.opview)
        self._parent: dict[ir.Value, ir.Value] = {}
        self.members: list[ir.Value] = []
        for op in self.operations:
            for operand, result in self._links(op):
                for value in (operand, result):
                    if value not in self._parent:
                        self._parent[value] = value
                        self.members.append(value)
                self._parent[self._find(operand)] = self._find(result)

    def nets(self) -> list[_Net]:
        """Each set of convolutions with what its order saves and costs."""
        found: dict[ir.Value, _Net] = {}
        for op in self.operations:
            if _is_convolution(op, self.target):
                net = found.setdefault(self._find(op.results[0]), _Net())
                net.convolutions.append(op)
                net.is_wanted |= self._wants(op)
                if find_target(self.target)().wants_rows(op):
                    net.paid += sum(2 * self._bytes(v) for v in (op.operands[0], op.results[0]))
                    net.borders.append("few channels have windows of their own")
                    continue
                inner = [v for v in (op.operands[0], op.results[0]) if self._stays(v)]
                net.saved += sum(2 * self._bytes(v) for v in inner)
        for value in self.members:
            net = found.get(self._find(value))
            if net is not None:
                self._borders(value, net)
        return list(found.values())

    def _find(self, value: ir.Value) -> ir.Value:
        while self._parent[value] != value:
            value = self._parent[value]
        return value

    def _links(self, op: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
        """(operand, result) pairs of an op that can have one order of dims."""
        name = kiln.name_of(op)
        if _is_convolution(op, self.target) or isinstance(op.opview, kiln.BatchNormOp | kiln.PadOp):
            yield op.operands[0], op.results[0]
        elif name == "kiln.aten":
            for number, operand in enumerate(op.operands):
                if takes_image(op, number):
                    yield operand, op.results[0]
        elif name == "kiln.cat":
            for operand in op.operands:
                if isinstance(operand.type, ir.RankedTensorType):
                    yield operand, op.results[0]
        elif name == "linalg.generic":
            maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
            inputs = len(op.operands) - len(op.results)
            for result, out in zip(op.results, maps[inputs:], strict=True):
                for operand, map_ in zip(op.operands, maps[:inputs], strict=False):
                    same = len(map_.results) == len(out.results) > 2 and list(map_.results)[:2] == list(out.results)[:2]
                    if same and not _is_window(operand):
                        yield operand, result

    def _stays(self, value: ir.Value) -> bool:
        """Whether a tensor is made and read inside of the function, by nothing that needs another order."""
        if _comes_in(value):
            return False
        return not any(_is_return(use.owner) or self._needs_rows(use) for use in value.uses)

    def _borders(self, value: ir.Value, net: _Net) -> None:
        """Adds what a tensor costs, or saves, where it comes in or goes out."""
        size = 2 * self._bytes(value)
        if _comes_in(value):
            number = ir.BlockArgument(value).arg_number if isinstance(value.owner, ir.Block) else None
            attribute = None if number is None else _entry(self.function, "arg_attrs", number, "kiln.strides")
            channels = affine.constant_of(self.shapes.dims(value)[1])
            if self._is_channels_last(value, attribute):
                net.saved += size
            elif any(map(self._turns, value.uses)):
                _TAKEN("images that are copied")
            elif channels is None or channels > self.few_channels:
                net.paid += size
                net.borders.append("a call makes an operand" if number is None else f"argument {number} is row-major")
        for use in value.uses:
            owner = use.owner.operation
            if _is_return(owner):
                attribute = _entry(self.function, "res_attrs", use.operand_number, "kiln.strides")
                if self._is_channels_last(value, attribute):
                    net.saved += size
                elif not self._is_epilogue(value):
                    net.paid += size
                    net.borders.append(f"result {use.operand_number} is row-major")
            elif self._needs_rows(use) and not self._is_epilogue(value):
                net.paid += size
                what = ir.StringAttr(owner.attributes["op"]).value if "op" in owner.attributes else "a reshape"
                net.borders.append(f"{what} reads a result")

    def _turns(self, use: ir.OpOperand) -> bool:
        """Whether a use is that of a convolution that has its image turned if need be."""
        op = use.owner.operation
        return use.operand_number == 0 and self._wants(op)

    def _wants(self, op: ir.Operation) -> bool:
        return _is_convolution(op, self.target) and find_target(self.target)().wants_channels_last(op)

    def _is_epilogue(self, value: ir.Value) -> bool:
        """Whether such a convolution's kernel writes a value, with what follows it element by element."""
        if isinstance(value.owner, ir.Block):
            return False
        op = value.owner.operation
        if op.name == "linalg.generic" and not reduction_dims(op.opview):
            return any(self._is_epilogue(v) for v, _ in self._links(op) if len(list(v.uses)) == 1)
        return self._wants(op) or kiln.name_of(op) == "kiln.batch_norm" and self._is_epilogue(op.operands[0])

    def _is_channels_last(self, value: ir.Value, attribute: ir.Attribute | None) -> bool:
        if not isinstance(attribute, ir.AffineMapAttr):
            return False
        return is_channels_last(tuple(self.shapes.dims(value)), tuple(attribute.value.results))

    def _needs_rows(self, use: ir.OpOperand) -> bool:
        """Whether an op reads its operand in row-major order only: a call, or a view that joins channels and pixels."""
        op = use.owner.operation
        name = kiln.name_of(op)
        if name != "kiln.view":
            return name == "kiln.aten" and not takes_image(op, use.operand_number)
        results = list(ir.AffineMapAttr(op.attributes["map"]).value.results)
        others = set[int]().union(*(affine.dims_in(e) for e in results[2:])) if len(results) > 2 else set[int]()
        return len(results) > 2 and bool(affine.dims_in(results[1]) & others)

    def _bytes(self, value: ir.Value) -> int:
        size = item_bytes(value.type)
        for n in self.shapes.dims(value):
            known = affine.constant_of(n)
            size *= 1 if known is None else known
        return size


def _is_convolution(op: ir.Operation, target: str) -> bool:
    """Whether an op is a convolution with a channels-last form: of images, or one with a kernel of its own."""
    if kiln.name_of(op) != "kiln.conv" or "shape" not in op.attributes:
        return False
    return ir.RankedTensorType(op.results[0].type).rank == 4 or find_target(target)().supports(op) is None


def _comes_in(value: ir.Value) -> bool:
    """Whether a tensor is an argument or the result of a call: its order is not ours to choose."""
    if isinstance(value.owner, ir.Block):
        return True
    call = value.owner.operation
    return kiln.name_of(call) == "kiln.aten" and not (value == call.results[0] and takes_image(call, 0))


def _is_return(op: ir.Operation | ir.OpView) -> bool:
    return op.operation.name == "func.return"


def _is_window(operand: ir.Value) -> bool:
    """Whether an operand only gives loops their extents."""
    return not isinstance(operand.owner, ir.Block) and kiln.name_of(operand.owner) == "kiln.empty"


def _entry(function: ir.Operation, group: str, index: int, name: str) -> ir.Attribute | None:
    if group not in function.attributes:
        return None
    entry = ir.DictAttr(ir.ArrayAttr(function.attributes[group])[index])
    return entry[name] if name in entry else None
