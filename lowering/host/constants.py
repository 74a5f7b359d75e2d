# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which values of a function are constants."""

from torch_mlir import ir

__all__ = ["constant_name"]


def constant_name(value: ir.Value) -> str | None:
    """The name of a constant of the graph (an argument with ``kiln.constant``); None for any other value."""
    if not isinstance(value.owner, ir.Block):
        return None
    attributes = value.owner.owner.operation.attributes
    if "arg_attrs" not in attributes:
        return None
    entry = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
    return ir.StringAttr(entry["kiln.constant"]).value if "kiln.constant" in entry else None
