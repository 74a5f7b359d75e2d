# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Putting a replacement in the place of a match: traced for the sizes and dtypes found, imported, moved into place."""

from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch._guards import tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch_mlir import ir
from torch_mlir.dialects import func
from torch_mlir.extras.fx_importer import FxImporter

from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.frontend.import_.node_importer import KilnNodeImporter
from kiln.frontend.import_.symbols import SymbolSpace

from .graph import PatternGraph, flat_function, trace
from .matcher import Found, torch_dtype
from .sizes import map_of, result_sizes, strides_of

__all__ = ["Refused", "Traces", "replace"]

Traces = dict[Any, "GraphModule | Refused"]
"""What the replacements of one pattern graph were traced to, by all that a trace depends on."""


class Refused(Exception):
    """The replacement cannot stand for the match; the message is the reason."""


def replace(graph: PatternGraph, found: Found, names: Sequence[str], traces: Traces) -> None:
    """Rewire the uses of the match's outputs to the replacement, whose ops are inserted before the first output.

    ``traces`` is a dictionary to keep between the calls for one ``graph``: layers that repeat are traced once.

    The matched ops are left without uses. Raises Refused and changes nothing where the replacement does not trace for
    these sizes, gives another type, or would need a tensor that is computed later.
    """
    olds = found.outputs(graph)
    anchor = found.ops[graph.outputs[0].op]  # type: ignore[index] - a match has found every op of the pattern
    if len(graph.outputs) > 1:  # one output stands behind its arguments
        order = {op.operation: k for k, op in enumerate(anchor.block.operations)}
        anchor = min((found.ops[output.op] for output in graph.outputs), key=lambda op: order[op])  # type: ignore[index] - a match has found every op of the pattern
        for value in found.tensors.values():
            if not isinstance(value, ir.BlockArgument) and order[value.owner.operation] > order[anchor]:
                raise Refused("an argument is computed after the first output")
    sizes = _Sizes(names)
    gm = _traced_once(graph, found, olds, sizes, traces)
    news = _imported(gm, found, olds, anchor, sizes)
    for old, new in zip(olds, news, strict=True):
        old.replace_all_uses_with(new)


class _Sizes(SymbolSpace):
    """The function's symbols, and the fresh ones a fake tensor needs in their place."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = list(names)
        self.shape_env = ShapeEnv()
        self.fresh: dict[sympy.Expr, Any] = {}
        self.meaning: dict[sympy.Symbol, ir.AffineExpr] = {}

    def size(self, expr: sympy.Expr, affine: ir.AffineExpr | None) -> Any:
        """An int, or a SymInt that stands for ``expr``."""
        if expr.is_Integer:
            return int(expr)
        if expr not in self.fresh:
            from torch._dynamo.source import ConstantSource

            hint = 13 + 2 * len(self.fresh)
            source = ConstantSource(f"size{len(self.fresh)}")
            fresh = self.shape_env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
            self.fresh[expr] = self.shape_env.create_symintnode(fresh, hint=hint, source=source)
            assert affine is not None
            self.meaning[fresh] = affine
        return self.fresh[expr]

    def affine(self, expr: sympy.Expr) -> ir.AffineExpr:
        """As the base class, with the fresh symbols written in the function's own."""
        if expr in self.meaning:
            return self.meaning[expr]
        return super().affine(expr)


def _fake(value: ir.Value, sizes: _Sizes) -> torch.Tensor:
    """A fake tensor of the value's sizes, strides and dtype."""
    exprs = result_sizes(value, sizes.names)
    dtype = torch_dtype(value)
    if exprs is None or dtype is None:
        raise Refused("the sizes or the dtype of an argument are not known")
    shape = [sizes.size(e, _affine_size(value, k)) for k, e in enumerate(exprs)]
    steps = map_of(value, "kiln.strides", "kiln.strides")
    strides: list[Any] = []
    for k, stride in enumerate(strides_of(value, sizes.names)):
        product = _product(stride, exprs, shape)
        strides.append(sizes.size(stride, steps.results[k] if steps else None) if product is None else product)
    return torch.empty_strided(shape, strides, dtype=dtype)


def _affine_size(value: ir.Value, dim: int) -> ir.AffineExpr | None:
    found = map_of(value, "kiln.shapes", "kiln.shape")
    return None if found is None else found.results[dim]


def _product(stride: sympy.Expr, exprs: Sequence[sympy.Expr], shape: Sequence[Any]) -> Any:
    """A stride as an int, or as a product of the last sizes; None for another one, of a slice or a permutation."""
    if stride.is_Integer:
        return int(stride)
    for start in range(len(exprs)):
        whole: sympy.Expr = sympy.Integer(1)
        result: Any = 1
        for k in range(start, len(exprs)):
            whole, result = sympy.expand(whole * exprs[k]), result * shape[k]
            if whole == stride:
                return result
    return None


def _traced_once(
    graph: PatternGraph, found: Found, olds: Sequence[ir.Value], sizes: _Sizes, traces: Traces
) -> GraphModule:
    """As ``_traced``; from ``traces`` where the same sizes, dtypes and numbers were traced before."""
    key = _trace_key(found, olds, sizes.names)
    known = None if key is None else traces.get(key)
    if known is None:
        try:
            known = _traced(graph, found, olds, sizes)
        except Refused as refused:
            known = refused
        if key is not None:
            traces[key] = known
    if isinstance(known, Refused):
        raise Refused(str(known))
    return known


def _trace_key(found: Found, olds: Sequence[ir.Value], names: Sequence[str]) -> Any:
    """What a trace depends on; None where sizes are dynamic, and so symbols of one trace."""
    parts: list[Any] = []
    for position, value in sorted(found.tensors.items()):
        parts.append((position, str(torch_dtype(value)), result_sizes(value, names), strides_of(value, names)))
    parts += [strides_of(old, names) for old in olds]
    texts = repr(parts)
    if any(name in texts for name in names):
        return None
    # As text: 1, 1.0 and True are equal, but trace differently.
    return texts, repr(sorted(found.numbers.items()))


def _traced(graph: PatternGraph, found: Found, olds: Sequence[ir.Value], sizes: _Sizes) -> GraphModule:
    flat = pytree.tree_leaves(graph.example)
    call, _, _ = flat_function(graph.pattern.replacement, graph.example)
    with tracing(None), FakeTensorMode(shape_env=sizes.shape_env, allow_non_fake_inputs=False):
        tensors = {k: _fake(value, sizes) for k, value in found.tensors.items()}
        wanted = [[int(s) if s.is_Integer else s for s in strides_of(old, sizes.names)] for old in olds]
        order = sorted(tensors)

        def of_tensors(*values: torch.Tensor) -> Any:
            given = dict(zip(order, values, strict=True))
            results = call(*(given[k] if k in given else found.numbers.get(k, flat[k]) for k in range(len(flat))))
            return tuple(_laid_out(r, strides) for r, strides in zip(results, wanted, strict=True))

        try:
            if graph.pattern.condition is not None:
                values = [tensors.get(k, found.numbers.get(k, flat[k])) for k in range(len(flat))]
                _, spec = pytree.tree_flatten(graph.example)
                reason = graph.pattern.condition(*pytree.tree_unflatten(values, spec))
                if reason is not None:
                    raise Refused(reason)
            gm = trace(of_tensors, [tensors[k] for k in order], "real", whole=graph.pattern.whole)
        except Refused:
            raise
        except Exception as error:  # the user's function: whatever it raises means that it does not fit
            first = (str(error).splitlines() or [""])[0]
            unused = [k for k, value in enumerate(flat) if isinstance(value, torch.Tensor) and k not in tensors]
            beside = f" (the pattern does not read argument {unused[0]})" if unused else ""
            raise Refused(f"the replacement does not trace: {type(error).__name__}: {first}{beside}") from error
    guards = [guard for guard in sizes.shape_env.guards]
    if guards:
        raise Refused(f"the replacement depends on a size: {guards[0].expr}")
    return gm


def _laid_out(result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    """The result with the strides that the graph has there, by a copy where it must be."""
    if all(isinstance(stride, int) for stride in [*strides, *result.stride()]):
        sizes = result.shape
        found = [s for s, n in zip(result.stride(), sizes, strict=True) if n != 1]
        if found != [s for s, n in zip(strides, sizes, strict=True) if n != 1]:
            return result.clone(memory_format=torch.contiguous_format)
    return result


def _imported(
    gm: GraphModule, found: Found, olds: Sequence[ir.Value], root: ir.Operation, sizes: _Sizes
) -> list[ir.Value]:
    """The traced ops before ``root``; returns their outputs."""
    context = root.context
    scratch = ir.Module.create(ir.Location.unknown(context))
    importer = FxImporter(module=None, context=context, config_check=False)
    with ir.InsertionPoint(scratch.body), ir.Location.unknown(context):
        function = func.FuncOp("replacement", ir.FunctionType.get([], []))
    block = function.add_entry_block()
    nodes = KilnNodeImporter(importer, context, importer._cc, block)
    nodes.space = sizes
    nodes.symbols = _symbol_values(root)
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, position in zip(placeholders, sorted(found.tensors), strict=True):
        nodes._v[(node, 0)] = found.tensors[position]
    location = root.location
    try:
        with location, ir.InsertionPoint(block):
            for node in gm.graph.nodes:
                if node.op == "call_function":
                    nodes._import_node(node, location)
                elif node.op == "get_attr":
                    raise Refused("the replacement makes a constant tensor; use torch.full")
            output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
            news = [nodes.resolve_node_value(node) for node in output.args[0]]
    except ImportUnsupported as error:
        raise Refused(f"the replacement cannot be imported: {error}") from error
    for old, new in zip(olds, news, strict=True):
        names = sizes.names
        if old.type != new.type or result_sizes(old, names) != result_sizes(new, names):
            raise Refused(f"the replacement gives {new.type} where the graph has {old.type}")
    for op in [op.operation for op in block.operations]:
        op.move_before(root)
    return news


def _symbol_values(root: ir.Operation) -> dict[str, ir.Value]:
    function = root.parent
    assert function is not None
    function = function.operation
    if "arg_attrs" not in function.attributes:
        return {}
    arguments = function.regions[0].blocks[0].arguments
    values: dict[str, ir.Value] = {}
    for argument, attrs in zip(arguments, function.attributes["arg_attrs"], strict=True):
        if "kiln.symbol" in attrs:
            values[attrs["kiln.symbol"].value] = argument
    return values
