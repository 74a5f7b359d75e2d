# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How to call a compiled ``@main`` in place of its FX graph. Needs no MLIR, and can be stored."""

from dataclasses import dataclass, field
from typing import Any

import sympy

__all__ = ["FoundSymbol", "InputSpec", "OutputSpec", "Signature", "Size"]

Size = sympy.Expr | str
"""An integer over the graph's symbols, or its text in Python (``frontend/calls/boxed_graph.py`` writes it)."""


@dataclass(frozen=True)
class InputSpec:
    """Where one argument of ``@main`` comes from.

    ``kind``: "tensor" or "int" (graph input ``index``), "size" or "stride" (of graph input ``index``, ``dim``),
    "derived" (``expr`` over the other symbols), "constant" (``name`` in the graph's constants).
    ``is_lazy``: the tensor may be a view that is conjugated or negated when it is read.
    """

    kind: str
    name: str
    index: int = -1
    dim: int = -1
    expr: Size | None = None
    is_lazy: bool = False


@dataclass(frozen=True)
class OutputSpec:
    """One output of the FX graph.

    ``kind``: "result" (result ``index`` of ``@main``), "input" (graph input ``index`` itself), "constant" (tensor
    ``name``), "value" (the Python ``value``), "size" (``expr``, an integer or a comparison, over the symbols that are
    known at entry, and those of ``Signature.found``).
    ``empty_strides``: for a result whose strides differ from ``kiln.strides`` when it is empty, those strides.
    """

    kind: str
    index: int = -1
    name: str = ""
    value: Any = None
    expr: Size | None = None
    empty_strides: tuple[Size, ...] | None = None


@dataclass(frozen=True)
class FoundSymbol:
    """A number that the graph finds while it runs: the size along ``dim`` of a result of ``@main``, or of a graph input
    (the other one is -1); with ``dim`` -1 the number in that tensor.
    """

    name: str
    input: int
    result: int
    dim: int


@dataclass
class Signature:
    """Where the arguments and results of ``@main`` come from and go to.

    ``mutations``: pairs (graph input, result) to copy after the call, where the result is not that memory already.
    ``shared``: results to copy because they would be memory that eager does not give them.
    ``found``: what outputs of kind "size" need besides the symbols that are known at entry.
    """

    inputs: list[InputSpec]
    outputs: list[OutputSpec]
    mutations: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    shared: list[int] = field(default_factory=list[int])
    found: list[FoundSymbol] = field(default_factory=list[FoundSymbol])
