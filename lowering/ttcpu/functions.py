# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions that a kernel calls: defined or declared beside it, once."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder

__all__ = ["call"]


def call(
    b: Builder, symbol: str, text: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = ()
) -> list[ir.Value]:
    """Calls a function, which `text` declares or defines, with what it needs, where the module does not have it yet."""
    module = b.entry.owner.operation.parent
    assert module is not None, "functions stand in a module"
    body = module.regions[0].blocks[0]
    known = {ir.StringAttr(op.attributes["sym_name"]).value for op in body}
    if symbol not in known:
        parsed = ir.Module.parse(text)
        for declaration in list(parsed.body):
            if ir.StringAttr(declaration.attributes["sym_name"]).value not in known:
                body.append(declaration.detach_from_parent())
    callee = ir.FlatSymbolRefAttr.get(symbol)
    made = ir.Operation.create("func.call", results=results, operands=operands, attributes={"callee": callee})
    return list(made.results)
