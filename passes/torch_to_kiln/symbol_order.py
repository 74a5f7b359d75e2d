# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The order of a converted function's symbols: as their values appear in it."""

from torch_mlir import ir

from .function_state import FunctionState
from .sizes import renumber

__all__ = ["reorder_symbols"]


def reorder_symbols(function: ir.Operation, state: FunctionState) -> None:
    """Number symbols as their values appear: index arguments first, then what ATen calls return.

    ``kiln.symbols`` of the torch dialect may list them otherwise. Rewrites it, and the maps over all symbols in the
    attributes of arguments and results; symbols that never got a value come last.
    """
    order = [*state.bound, *(name for name in state.symbol_names if name not in state.bound)]
    function.attributes["kiln.symbols"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in order])
    if order == state.symbol_names:
        return
    table = {position: order.index(name) for position, name in enumerate(state.symbol_names)}
    for key in ("arg_attrs", "res_attrs"):
        if key in function.attributes:
            given = ir.ArrayAttr(function.attributes[key])
            function.attributes[key] = ir.ArrayAttr.get([_renumbered(ir.DictAttr(d), table) for d in given])


def _renumbered(attrs: ir.DictAttr, table: dict[int, int]) -> ir.DictAttr:
    result: dict[str, ir.Attribute] = {}
    for named in attrs:
        attr = named.attr
        if isinstance(attr, ir.AffineMapAttr):
            old = attr.value
            exprs = [renumber(expr, table) for expr in old.results]
            attr = ir.AffineMapAttr.get(ir.AffineMap.get(0, max(len(table), old.n_symbols), exprs))
        result[named.name] = attr
    return ir.DictAttr.get(result)
