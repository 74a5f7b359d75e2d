# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Literals: constants that were folded or are part of the graph."""

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers


@lowers("torch.vtensor.literal")
def literal(cx: LoweringContext) -> ir.Value:
    """A filled tensor for a splat, else an ``arith.constant``."""
    info = cx.result_info()
    attribute = cx.op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr):
        cx.unsupported("a literal that is no dense attribute")
    if attribute.is_splat:
        return cx.full(attribute.get_splat_value().value, info.shape, info.dtype)
    signless = cx.state.tensor_type(info.shape, info.dtype)
    text = str(attribute)
    text = text[: text.rindex(" : ")]
    value = ir.Attribute.parse(f"{text} : {signless}")
    result = ir.Operation.create("arith.constant", results=[signless], attributes={"value": value}).result
    return cx.named(result, info.shape, info.dtype)
