# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules as attributes: dictionaries of ints, floats, bools, strings and lists of them, there and back."""

from typing import Any

from torch_mlir import ir


def to_attribute(value: Any) -> ir.Attribute:
    """A schedule entry as an attribute. Raises TypeError for what a schedule cannot hold."""
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, (list, tuple)):
        return ir.ArrayAttr.get([to_attribute(v) for v in value])
    if isinstance(value, dict):
        return ir.DictAttr.get({k: to_attribute(v) for k, v in sorted(value.items())})
    raise TypeError(
        f"a schedule holds ints, floats, bools, strings, lists and dictionaries, not {type(value).__name__}"
    )


def from_attribute(attribute: ir.Attribute) -> Any:
    """The inverse of `to_attribute`."""
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        return int(attribute.value)
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    if isinstance(attribute, ir.StringAttr):
        return str(attribute.value)
    if isinstance(attribute, ir.ArrayAttr):
        return [from_attribute(a) for a in attribute]
    if isinstance(attribute, ir.DictAttr):
        return {named.name: from_attribute(named.attr) for named in attribute}
    raise TypeError(f"not a schedule attribute: {attribute}")
