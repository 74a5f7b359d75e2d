# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops that a vendor's kernel, called through ATen, does faster than generated code on this target today."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.errors import InvalidIRError, UnsupportedError
from kiln.lowering.cpu.conv.choice import vendor_reason
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.choice import (
    added_bias,
    attention_alone,
    attention_reason,
    product_reason,
)
from kiln.lowering.gpu.dot.conv_choice import convolution_reason
from kiln.lowering.host.followers import FOLLOWS
from kiln.lowering.host.library_calls import CANDIDATE
from kiln.passes.core import Pass, register_pass
from kiln.passes.fusion.graph import ALONE
from kiln.passes.split_products import PARTS
from kiln.passes.tuning import RemembersSchedules

if TYPE_CHECKING:
    from kiln.lowering.gpu.tune.judge import Judge

__all__ = ["ChooseVendor"]


@dataclass(frozen=True)
class VendorRule:
    """``reason`` tells why the library is faster for an op, None where it is not; ``build`` makes the kiln.aten and
    returns (old value, new value), or None where sizes of the result have no names. ``options`` are those of the pass
    that ``reason`` takes."""

    reason: "Callable[..., str | None]"
    build: "Callable[[ir.Operation, _Symbols, str], tuple[ir.Value, ir.Value] | None]"
    options: tuple[str, ...] = ()


class _Symbols:
    """The function's symbols: names in the order of ``kiln.symbols``, and their index values."""

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        block = function.regions[0].blocks[0]
        attributes = function.attributes["arg_attrs"] if "arg_attrs" in function.attributes else None
        self.values: dict[str, ir.Value] = {}
        for k, argument in enumerate(block.arguments):
            entry = ir.DictAttr(attributes[k]) if attributes is not None else None
            if entry is not None and "kiln.symbol" in entry:
                self.values[ir.StringAttr(entry["kiln.symbol"]).value] = argument
        for op in block.operations:
            if "unbacked_names" in op.operation.attributes:
                indices = [r for r in op.operation.results if isinstance(r.type, ir.IndexType)]
                names = [ir.StringAttr(n).value for n in op.operation.attributes["unbacked_names"]]
                self.values.update(zip(names, indices, strict=True))
        given = function.attributes["kiln.symbols"] if "kiln.symbols" in function.attributes else []
        self.names = [ir.StringAttr(name).value for name in given] or list(self.values)

    def sizes(self, value: ir.Value) -> tuple[ir.AffineMap, list[ir.Value]] | None:
        """A tensor's sizes as a map over those symbols of the function that they need, and the symbols' values; None if
        they need others."""
        type_ = ir.RankedTensorType(value.type)
        if type_.has_static_shape:
            return _static(type_.shape), []
        shapes = SymbolicShapes(self.function)
        dims = shapes.dims(value)
        used = sorted({p for e in dims for p in affine.symbols_in(e)})
        if any(p >= len(shapes.symbols) for p in used):
            return None
        table = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(used)}
        packed = ir.AffineMap.get(0, len(used), [affine.substitute(e, {}, table) for e in dims])
        return packed, [shapes.symbols[p] for p in used]

    def pack(
        self, op: ir.Operation, maps: Sequence[ir.AffineMap | None]
    ) -> tuple[list[ir.AffineMap | None], list[ir.Value]]:
        """Maps over the symbols that ``op`` names (else ``kiln.symbols``), packed to those in use, and their values."""
        given = op.attributes["symbols"] if "symbols" in op.attributes else None
        names = self.names if given is None else [ir.StringAttr(name).value for name in given]
        used = sorted({p for m in maps if m is not None for e in m.results for p in affine.symbols_in(e)})
        table = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(used)}
        packed = [
            None if m is None else ir.AffineMap.get(0, len(used), [affine.substitute(e, {}, table) for e in m.results])
            for m in maps
        ]
        return packed, [self.values[names[p]] for p in used]


def _convolution_alone(op: ir.Operation, symbols: _Symbols, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.convolution`` for cuDNN: a bias is a pass of its own for ATen, and part of the next kernel here. PyTorch's
    kernels of depthwise convolutions take it."""
    is_depthwise = ir.IntegerAttr(op.attributes["groups"]).value != 1 and _is_one(op.operands[1], 1)
    return _convolution(op, symbols, reason, takes_bias=is_depthwise)


def _is_one(value: ir.Value, dim: int) -> bool:
    return ir.RankedTensorType(value.type).shape[dim] == 1


def _convolution(
    op: ir.Operation, symbols: _Symbols, reason: str, takes_bias: bool = True
) -> tuple[ir.Value, ir.Value]:
    """``aten.convolution``, with the bias that is added right after it where nothing else reads the convolution."""
    result = op.results[0]
    bias, replaced = _bias(result) if takes_bias else (None, result)
    attributes = op.attributes
    if "shape" not in attributes and not ir.RankedTensorType(result.type).has_static_shape:
        raise InvalidIRError("kiln.conv: a dynamic result needs the attribute 'shape'", str(op.location))
    shape = (
        ir.AffineMapAttr(attributes["shape"]).value
        if "shape" in attributes
        else ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(s) for s in ir.RankedTensorType(result.type).shape])
    )
    strides = ir.AffineMapAttr(attributes["strides"]).value if "strides" in attributes else None
    (shape, strides), values = symbols.pack(op, [shape, strides])
    inputs = [op.operands[0], op.operands[1], *([bias] if bias is not None else [])]
    args = [
        {"operand": 0},
        {"operand": 1},
        {"operand": 2} if bias is not None else None,
        *(list(ir.DenseI64ArrayAttr(attributes[name])) for name in ("stride", "padding", "dilation")),
        bool(ir.IntegerAttr(attributes["transposed"]).value),
        list(ir.DenseI64ArrayAttr(attributes["output_padding"])),
        ir.IntegerAttr(attributes["groups"]).value,
    ]
    # Behind the addition: the bias may be computed between the two.
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        call = kiln.aten(
            "aten.convolution.default", inputs, args, {}, [result.type], [shape], [strides], values, reason=reason
        )
    return replaced, call.results[0]


def _bias(result: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The bias added to a convolution's only use, and the value that takes the place of both."""
    uses = list(result.uses)
    if len(uses) == 1:
        user = uses[0].owner.operation
        if user.name == "linalg.generic" and "conv_bias" in user.attributes and user.operands[0] == result:
            return user.operands[1], user.results[0]
    return None, result


def _attention(op: ir.Operation, _: _Symbols, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.scaled_dot_product_attention``; its result has the query's order of dims (`assign-layouts` follows it)."""
    result = ir.RankedTensorType(op.results[0].type)
    kwargs = {
        "scale": ir.FloatAttr(op.attributes["scale"]).value,
        "enable_gqa": ir.RankedTensorType(op.operands[1].type).shape[1] != result.shape[1],
    }
    args = [{"operand": 0}, {"operand": 1}, {"operand": 2}, None, 0.0, bool(op.attributes["causal"].value)]
    name = "aten.scaled_dot_product_attention.default"
    with ir.InsertionPoint(op), op.location:
        call = kiln.aten(
            name, list(op.operands), args, kwargs, [result], [_static(result.shape)], [None], reason=reason
        )
    call.operation.attributes[FOLLOWS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
    return op.results[0], call.results[0]


def _product(op: ir.Operation, symbols: _Symbols, reason: str) -> tuple[ir.Value, ir.Value] | None:
    """``aten.linear`` of a weight ``[N, K]`` (a view of one ``[K, N]``), with the bias that is added right after it."""
    result = ir.RankedTensorType(op.results[0].type)
    sizes = symbols.sizes(op.results[0])
    if sizes is None:
        return None
    bias, replaced = added_bias(op.results[0])
    is_known = result.has_static_shape  # the other call takes matrices: rows are joined by views of known sizes
    activated = gelu_behind(replaced) if bias is not None and is_known else None
    if bias is not None and activated is not None:
        return _activated_product(op, bias, activated, reason)
    if ir.RankedTensorType(op.operands[1].type).rank > 2:
        return _batch_of_products(op, reason)
    # Behind the addition: the bias may be computed between the two.
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(op.operands[0], bool(op.attributes["transpose_lhs"].value))
        weight = _turned(op.operands[1], not op.attributes["transpose_rhs"].value)
        inputs = [lhs, weight, *([bias] if bias is not None else [])]
        args = [{"operand": i} for i in range(len(inputs))]
        shape, values = sizes
        call = kiln.aten("aten.linear.default", inputs, args, {}, [result], [shape], [None], values, reason=reason)
    return replaced, call.results[0]


def _turned(matrices: ir.Value, is_turned: bool) -> ir.Value:
    """A view with the last two dims exchanged."""
    if not is_turned:
        return matrices
    shape = list(ir.RankedTensorType(matrices.type).shape)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = ir.AffineMap.get(len(shape), 0, [ir.AffineExpr.get_dim(i) for i in order])
    return kiln.view(matrices, turned, _static([shape[i] for i in order]))


def _joined(value: ir.Value, kept: int) -> ir.Value:
    """A view with all dims but the last `kept` as one."""
    shape = list(ir.RankedTensorType(value.type).shape)
    lead, rest = shape[:-kept], shape[-kept:]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(1 + kept)]
    parts, left = list[ir.AffineExpr](), d[0]
    for size in reversed(lead[1:]):
        parts.insert(0, ir.AffineExpr.get_mod(left, size))
        left = ir.AffineExpr.get_floor_div(left, size)
    return kiln.view(value, ir.AffineMap.get(1 + kept, 0, [left, *parts, *d[1:]]), _static([prod(lead), *rest]))


def _apart(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The reverse: a view of these sizes."""
    kept = ir.RankedTensorType(value.type).rank - 1
    lead = shape[: len(shape) - kept]
    if len(lead) == 1:
        return value
    d = [ir.AffineExpr.get_dim(i) for i in range(len(shape))]
    position = d[0]
    for i, size in enumerate(lead[1:], 1):
        position = position * size + d[i]
    return kiln.view(value, ir.AffineMap.get(len(shape), 0, [position, *d[len(lead) :]]), _static(shape))


def _batch_of_products(op: ir.Operation, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.bmm``: leading dims are one, in views around the call."""
    result = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(op), op.location:
        lhs = _turned(_joined(op.operands[0], 2), bool(op.attributes["transpose_lhs"].value))
        rhs = _turned(_joined(op.operands[1], 2), bool(op.attributes["transpose_rhs"].value))
        sizes = [prod(result.shape[:-2]), *result.shape[-2:]]
        type_ = ir.RankedTensorType.get(sizes, result.element_type)
        args = [{"operand": 0}, {"operand": 1}]
        call = kiln.aten("aten.bmm.default", [lhs, rhs], args, {}, [type_], [_static(sizes)], [None], reason=reason)
        return op.results[0], _apart(call.results[0], result.shape)


def _activated_product(op: ir.Operation, bias: ir.Value, replaced: ir.Value, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten._addmm_activation`` of matrices: leading dims are rows, in views around the call."""
    result = ir.RankedTensorType(op.results[0].type)
    with ir.InsertionPoint(replaced.owner.operation), op.location:
        lhs = _turned(_joined(op.operands[0], 1), bool(op.attributes["transpose_lhs"].value))
        weight = _turned(op.operands[1], bool(op.attributes["transpose_rhs"].value))
        sizes = [prod(result.shape[:-1]), result.shape[-1]]
        type_ = ir.RankedTensorType.get(sizes, result.element_type)
        args = [{"operand": i} for i in range(3)]
        named = {"use_gelu": True}
        name = "aten._addmm_activation.default"
        call = kiln.aten(name, [bias, lhs, weight], args, named, [type_], [_static(sizes)], [None], reason=reason)
        return replaced, _apart(call.results[0], result.shape)


def _static(sizes: Sequence[int]) -> ir.AffineMap:
    return ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(s) for s in sizes])


def _call_of(value: ir.Value) -> ir.Operation:
    """The call whose result a value is, or a view of."""
    op = value.owner.operation
    return op if kiln.name_of(op) == "kiln.aten" else _call_of(op.operands[0])


# (target, op) -> how and why.
_TABLE: dict[tuple[str, str], VendorRule] = {
    ("cpu", "kiln.conv"): VendorRule(vendor_reason, _convolution),
    ("cuda", "kiln.conv"): VendorRule(convolution_reason, _convolution_alone),
    ("cuda", "kiln.attention"): VendorRule(attention_reason, _attention, ("tensor_maps", "arch")),
    ("cuda", "kiln.matmul"): VendorRule(product_reason, _product, ("tensor_maps",)),
}


def _caller(name: str) -> Callable[[ir.Operation], None]:
    """What puts the call in the place of such an op."""
    rule = _TABLE["cuda", name]

    def call(op: ir.Operation) -> None:
        function = op.parent
        assert function is not None
        built = rule.build(op, _Symbols(function.operation), "")
        if built is None:
            raise UnsupportedError(name, str(op.location), "a result whose sizes have no names")
        _replace(op, *built)

    return call


def _replace(op: ir.Operation, old: ir.Value, new: ir.Value) -> None:
    """Puts a value in the place of another one, which an op computes together with what is behind it."""
    old.replace_all_uses_with(new)
    # The last one first: each reads the one before.
    dead = old.owner.operation
    while dead != op:
        maker = dead.operands[0].owner.operation
        dead.erase()
        dead = maker
    op.erase()


@register_pass
@dataclass
class ChooseVendor(RemembersSchedules, Pass):
    """Replace ops by ATen calls where a library's kernel was measured to be faster than generated code.

    The rules are one table, by target and op; the call's ``reason`` attribute tells which applied. A bias added right
    after a convolution or product goes into the call (not for cuDNN, where ATen adds it in a pass of its own), and so
    does GELU through tanh behind a product's bias. With ``seconds``, products, convolutions and attention of known
    sizes are run both ways on the GPU, and the rules decide about the rest only.

    Before::

        func.func @main(%x: tensor<1x3x6x40xf32>, %w: tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32> {
          %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
            padding = array<i64: 0, 0>, stride = array<i64: 1, 1>, transposed = false}
            : (tensor<1x3x6x40xf32>, tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32>
          return %0 : tensor<1x8x6x8xf32>
        }

    After::

        #map = affine_map<() -> (1, 8, 6, 8)>
        func.func @main(%arg0: tensor<1x3x6x40xf32>, %arg1: tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32> {
          %0 = "kiln.aten"(%arg0, %arg1)
              {args = "[{\\"operand\\": 0}, {\\"operand\\": 1}, null, [1, 1], [0, 0], [1, 1], false, [0, 0], 1]",
              kwargs = "{}", op = "aten.convolution.default", pure = true,
              reason = "oneDNN: the convolution kernel takes windows of at most 32 columns",
              shapes = [#map], strides = [unit]}
              : (tensor<1x3x6x40xf32>, tensor<8x3x1x33xf32>) -> tensor<1x8x6x8xf32>
          return %0 : tensor<1x8x6x8xf32>
        }
    """

    name = "choose-vendor"
    target: str = "cpu"
    """What the kernels are for; a target without rules keeps every op."""
    keep: tuple[str, ...] = ()
    """Ops that are not replaced, by name without the dialect (``conv``): to run generated code regardless."""

    tensor_maps: bool = False
    """Kernels of products may load their operands through tensor maps, as ``schedule-gpu{descriptors=true}`` allows."""
    seconds: float = 0.0
    """How long the two ways of an op are timed; 0: the rules decide."""
    graph_seconds: float = 60.0
    """From when on the rules decide."""
    device: str = "cuda:0"
    """The GPU that they are timed on."""
    arch: str = "sm_90"
    """What it is, as ``schedule-gpu`` is told."""
    tf32: bool = False
    """As ``schedule-gpu`` is told."""

    def run(self, module: ir.Module) -> None:
        """Rewrite the ops at function level."""
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            symbols: _Symbols | None = None
            # Decided first: rules look at neighbours, and replacing one op may erase another one.
            judges = self._judges()
            candidates = [
                (op.operation, rule, *self._decide(op.operation, rule, judges))
                for op in function.regions[0].blocks[0].operations
                if (rule := self._rule(kiln.name_of(op.operation))) is not None
            ]
            for op, rule, reason, why_not, algorithm in candidates:
                if reason is None:
                    self.note(op, why_not)
                    self.count("kept")
                    continue
                symbols = symbols or _Symbols(function)
                built = rule.build(op, symbols, reason)
                if built is None:
                    self.note(op, "a kernel of its own: its sizes have no names outside of it")
                    self.count("kept")
                    continue
                if algorithm:
                    call = _call_of(built[1])
                    call.attributes[CANDIDATE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), algorithm)
                self.note(op, reason)
                _replace(op, *built)
                self.count("matched")

    def _decide(
        self, op: ir.Operation, rule: VendorRule, judges: "Mapping[str, Judge[Any]]"
    ) -> tuple[str | None, str, int]:
        """Why to call the library, and if there is no reason, why not; which of the library's algorithms."""
        reason = rule.reason(op, **{name: getattr(self, name) for name in rule.options})
        name = kiln.name_of(op)
        why_not = "a kernel of its own is as fast"
        is_attention = reason is None and (self.target, name) == ("cuda", "kiln.attention")
        if is_attention and attention_alone(op, self.tensor_maps, self.arch):
            op.attributes[ALONE] = ir.UnitAttr.get()
            why_not = "a kernel of its own is as fast, with one behind it for what follows"
        verdict = judges[name].verdict(op) if name in judges else None
        if verdict is None:
            return reason, why_not, 0
        if not verdict.library and name == "kiln.matmul":
            op.attributes[PARTS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), verdict.parts)
        why_not = f"a kernel of its own: {verdict.reason}"
        return verdict.reason if verdict.library else None, why_not, verdict.candidate

    def _judges(self) -> "dict[str, Judge[Any]]":
        """What runs ops both ways, by their names, if that is asked for and there is a GPU to do so."""
        if not self.seconds or self.target != "cuda":
            return {}
        from kiln.lowering.gpu.dot.fusions import DotOptions
        from kiln.lowering.gpu.tune.calls import AttentionJudge, ConvolutionJudge
        from kiln.lowering.gpu.tune.library import ProductJudge

        given = self.store, DotOptions(self.arch, self.tf32, self.tensor_maps), self.device
        times = self.seconds, self.graph_seconds
        return {
            "kiln.matmul": ProductJudge(*given, *times),
            "kiln.conv": ConvolutionJudge(*given, _caller("kiln.conv"), *times),
            "kiln.attention": AttentionJudge(*given, _caller("kiln.attention"), *times),
        }

    def _rule(self, name: str) -> VendorRule | None:
        return None if name.removeprefix("kiln.") in self.keep else _TABLE.get((self.target, name))
