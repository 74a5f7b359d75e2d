# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Patterns as graphs: a PyTorch function traced, imported, brought to normal form, and kept without any MLIR."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sympy
import torch
import torch.utils._pytree as pytree
from torch._guards import tracing
from torch.func import functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.errors import KilnError
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, list_elements, op_name, python_value

from .registry import RewritePattern
from .sizes import argument_sizes, result_sizes

__all__ = ["Operand", "PatternGraph", "PatternOp", "flat_function", "graphs_of", "trace"]

#: What the traced function is simplified with: the passes that run on a graph before its patterns are looked for.
NORMAL_FORM = "torch-cse,fold-constants,simplify-algebra,torch-cse"


@dataclass(frozen=True)
class Operand:
    """What an op of a pattern reads.

    ``kind``: ``result`` (of an op), ``tensor`` and ``number`` (arguments), ``const``, ``list``, ``size`` (any integer:
    it follows from the sizes of the arguments).
    """

    kind: str
    op: "PatternOp | None" = None
    index: int = 0
    value: Any = None
    elements: "tuple[Operand, ...]" = ()


@dataclass(eq=False)
class PatternOp:
    """One op of a pattern; ``sizes`` has the sizes of each result over the pattern's own symbols."""

    name: str
    operands: tuple[Operand, ...] = ()
    sizes: tuple[tuple[sympy.Expr, ...] | None, ...] = ()


@dataclass(frozen=True)
class PatternGraph:
    """A pattern for one set of example arguments."""

    pattern: RewritePattern
    example: tuple[Any, ...]
    ops: tuple[PatternOp, ...]
    outputs: tuple[Operand, ...]
    arguments: tuple[tuple[sympy.Expr, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    fixed_rank: bool = field(default=False)
    """Whether sizes are checked: true as soon as an op depends on them, such as a view or a matrix product."""


_RANK_BOUND = frozenset(
    """
    view reshape permute transpose t expand unsqueeze squeeze slice select cat stack mm bmm addmm baddbmm matmul
    linear convolution split split_with_sizes flip roll repeat index gather unbind as_strided
    """.split()
)


def flat_function(function: Callable[..., Any], example: tuple[Any, ...]) -> tuple[Callable[..., Any], list[Any], Any]:
    """``function`` of the flat list of arguments, that list, and its structure."""
    flat, spec = pytree.tree_flatten(example)

    def call(*values: Any) -> tuple[Any, ...]:
        results = function(*pytree.tree_unflatten(list(values), spec))
        return tuple(pytree.tree_leaves(results))

    return call, flat, spec


def sentinel(position: int, number: float) -> float:
    """A number that stands for number argument ``position`` in a trace, of the argument's own type."""
    return 7013 + 2 * position if isinstance(number, int) else 0.8132457 + 0.0137931 * position


def trace(
    function: Callable[..., Any],
    tensors: Sequence[Any],
    mode: Literal["real", "fake", "symbolic"],
    *,
    whole: bool = False,
) -> GraphModule:
    """The FX graph of a function of tensors, with the decompositions of the frontend.

    ``whole`` keeps ops such as ``aten.scaled_dot_product_attention`` that PyTorch takes apart before any backend.
    """
    from kiln.frontend.decompositions import decomposition_table

    # Without the context of the graph that is compiled, whose sizes the examples would get.
    with tracing(None), torch.no_grad():
        if whole:
            return make_fx(function, tracing_mode=mode, pre_dispatch=True)(*tensors)
        traced = make_fx(functionalize(function), decomposition_table=decomposition_table(), tracing_mode=mode)
        return traced(*tensors)


@functools.cache
def graphs_of(pattern: RewritePattern) -> tuple[PatternGraph, ...]:
    """The graphs of a pattern, one for each distinct example. Raises KilnError for a pattern that traces to none."""
    try:
        return tuple(_graph(pattern, tuple(example)) for example in pattern.example_inputs())
    except KilnError:
        raise
    except Exception as error:  # of the user's function
        raise KilnError(f"pattern {pattern.name!r} cannot be traced: {type(error).__name__}: {error}") from error


def _context() -> ir.Context:
    """That of the graph in which patterns are looked for: making one takes longer than importing a pattern."""
    from kiln.dialects import create_context

    return ir.Context.current or create_context()


def trace_example(pattern: RewritePattern, example: tuple[Any, ...]) -> tuple[GraphModule, list[torch.Tensor]]:
    """The FX graph of a pattern, numbers among its arguments as their `sentinel`, and the tensors it was traced with.

    Raises KilnError for an argument that is neither, and what the user's function raises.
    """
    call, flat, _ = flat_function(pattern.pattern, example)
    is_tensor = [isinstance(value, torch.Tensor) for value in flat]
    if not all(tensor or isinstance(value, int | float) for tensor, value in zip(is_tensor, flat, strict=True)):
        raise KilnError(f"pattern {pattern.name!r}: example arguments must be tensors, numbers or lists of them")

    def of_tensors(*tensors: Any) -> Any:
        rest = iter(tensors)
        return call(*(next(rest) if tensor else sentinel(k, flat[k]) for k, tensor in enumerate(is_tensor)))

    tensors: list[torch.Tensor] = []
    for value in [value for value, tensor in zip(flat, is_tensor, strict=True) if tensor]:
        # A copy: a tensor that the example holds twice would be traced as one argument.
        tensors.append(value.clone() if any(value is other for other in tensors) else value)
    # Sizes that are not compared need no symbols, which cost time.
    return trace(of_tensors, tensors, "fake" if pattern.any_rank else "symbolic"), tensors


def _graph(pattern: RewritePattern, example: tuple[Any, ...]) -> PatternGraph:
    from kiln.frontend.import_.fx_import import ImportUnsupported, import_graph
    from kiln.passes.manager import run_pipeline

    gm, tensors = trace_example(pattern, example)
    context = _context()
    try:
        imported = import_graph(gm, context)
    except ImportUnsupported as error:
        raise KilnError(f"pattern {pattern.name!r} cannot be imported: {error}") from error
    if imported.constants or any(output.kind != "result" for output in imported.outputs):
        raise KilnError(f"pattern {pattern.name!r}: each output must be computed from the arguments alone")
    run_pipeline(imported.module, NORMAL_FORM)
    flat = pytree.tree_leaves(example)
    positions = [k for k, value in enumerate(flat) if isinstance(value, torch.Tensor)]
    numbers = {sentinel(k, value): k for k, value in enumerate(flat) if not isinstance(value, torch.Tensor)}
    with context:
        return _Reader(imported, positions, numbers).read(pattern, example, tensors)


class _Reader:
    """From the imported function to a PatternGraph."""

    def __init__(self, imported: Any, positions: list[int], numbers: dict[float, int]) -> None:
        self.imported, self.numbers = imported, numbers
        self.names = imported.symbols
        self.function = imported.module.body.operations[0].operation
        self.block = self.function.regions[0].blocks[0]
        self.positions = positions
        self.ops: dict[ir.Operation, PatternOp] = {}
        self.seen_numbers: set[int] = set()

    def read(self, pattern: RewritePattern, example: tuple[Any, ...], tensors: list[torch.Tensor]) -> PatternGraph:
        outputs: tuple[Operand, ...] = ()
        for op in [op.operation for op in self.block.operations]:
            if op.name == "func.return":
                results = [self._operand(value) for value in op.operands]
                imported: Any = self.imported
                places: list[int] = [output.index for output in imported.outputs]
                outputs = tuple(results[place] for place in places)
            elif self._is_scalar(op):
                continue
            else:
                self.ops[op] = PatternOp(op_name(op))
                self.ops[op].operands = tuple(self._operand(value) for value in op.operands)
                self.ops[op].sizes = tuple(result_sizes(result, self.names) for result in op.results)
        missing = set(self.numbers.values()) - self.seen_numbers
        if missing:
            raise KilnError(
                f"pattern {pattern.name!r}: number argument {min(missing)} must reach an op as it is; compute with it "
                "in the replacement only"
            )
        ops = tuple(self.ops.values())
        if not ops or any(output.kind != "result" for output in outputs):
            raise KilnError(f"pattern {pattern.name!r}: an output is an argument")
        arguments = tuple(
            argument_sizes(argument, self.names) for argument in list(self.block.arguments)[: len(self.positions)]
        )
        bound = any(op.name.split(".")[2] in _RANK_BOUND for op in ops if op.name.count(".") > 1)
        bound = bound or any(_has_size(operand) for op in ops for operand in op.operands)
        bound = bound and not pattern.any_rank
        return PatternGraph(pattern, example, ops, outputs, arguments, tuple(t.dtype for t in tensors), bound)

    @staticmethod
    def _is_scalar(op: ir.Operation) -> bool:
        """Constants, lists and arithmetic on sizes are read where they are used."""
        lazy = op.name.startswith("torch.constant.") or op.name == "torch.prim.ListConstruct"
        return lazy or all(type_text(result.type).startswith("!torch.int") for result in op.results)

    def _operand(self, value: ir.Value) -> Operand:
        if isinstance(value, ir.BlockArgument):
            if type_text(value.type) == "!torch.int":
                return Operand("size")
            return Operand("tensor", index=self.positions[value.arg_number])
        elements = list_elements(value)
        if elements is not None:
            return Operand("list", elements=tuple(self._operand(element) for element in elements))
        constant = python_value(value)
        if constant is not NOT_CONSTANT:
            position = self.numbers.get(constant) if isinstance(constant, int | float) else None
            if position is None:
                return Operand("const", value=constant)
            self.seen_numbers.add(position)
            return Operand("number", index=position)
        op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
        if op not in self.ops:
            return Operand("size")
        return Operand("result", self.ops[op], ir.OpResult(value).result_number)


def _has_size(operand: Operand) -> bool:
    return operand.kind == "size" or any(_has_size(element) for element in operand.elements)
