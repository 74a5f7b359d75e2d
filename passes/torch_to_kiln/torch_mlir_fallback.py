# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch-mlir's conversion of one op, in isolation: the second choice.

The op is copied alone into a function of its own, converted there by upstream passes, and re-emitted if what they
made lies in the language of Kiln's code generation. So one op that a pass rejects cannot fail the graph.

Only ops in :data:`VETTED` are tried. A Python caller cannot survive an abort in C++, so an op gets on the list after
its conversion was seen to end well, statically and with dynamic sizes; the list is what the tests run. It holds for
the types that Kiln computes.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from kiln.dialects.walk import defining_op
from kiln.errors import UnsupportedError

from .linalg_import import LinalgImporter
from .torch_values import list_elements, python_value

if TYPE_CHECKING:
    from .context import LoweringContext

__all__ = ["PIPELINE", "VETTED", "convert_with_torch_mlir"]

# No torch-decompose-complex-ops: it computes some float32 statistics in float64.
PIPELINE = (
    "builtin.module("
    "func.func(convert-torch-to-linalg,convert-torch-to-tensor,convert-torch-to-arith),"
    "torch-func-backend-type-conversion,"
    "func.func(linalg-generalize-named-ops,canonicalize,cse,torch-finalizing-backend-type-conversion),"
    "func.func(canonicalize))"
)

# Seen to convert well. Left out on purpose: grid_sampler_2d (it reads out of bounds), max_unpool2d (wrong values),
# gather and embedding (they abort the process on an index out of range).
VETTED = frozenset(
    f"torch.aten.{name}"
    for name in (
        "abs add.Tensor clamp constant_pad_nd cat div.Tensor exp flip mul.Tensor neg permute relu rsqrt sigmoid sqrt "
        "squeeze.dim sub.Tensor sum.dim_IntList tanh transpose.int tril triu unsqueeze view where.self"
    ).split()
)


def convert_with_torch_mlir(cx: "LoweringContext") -> list[ir.Value | None]:
    """Convert ``cx.op`` by torch-mlir's passes; one builtin value per result.

    Raises UnsupportedError, with the reason, if the op is not vetted, if a pass rejects it, or if the result is
    outside of what Kiln generates code for.
    """
    if cx.name not in VETTED or cx.op.name == "torch.operator":
        cx.unsupported("its conversion is not among those that are tried")
    tensors: list[ir.Value] = []
    source = _isolate(cx, tensors)
    _check_types(cx, tensors)
    converted = _convert(source)
    if isinstance(converted, _Failure):
        cx.unsupported(converted.reason)
    try:
        return _inline(cx, converted, tensors)
    except (ir.MLIRError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # Upstream may write anything; a form that was not foreseen is one more reason for ATen.
        cx.unsupported(f"what it made cannot be read: {type(error).__name__}: {error}".splitlines()[0][:200])


def _check_types(cx: "LoweringContext", tensors: list[ir.Value]) -> None:
    """Refuse element types that Kiln does not compute: a sum of complex numbers, for one, aborts the process."""
    for value in tensors:
        found = cx.lookup(value)
        if found is not None and cx.dtype(found).is_opaque:
            cx.unsupported(f"an operand of type {value.type}, which Kiln does not compute")
    for k in range(len(cx.op.results)):
        cx.result_info(k)


class _Failure:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _isolate(cx: "LoweringContext", tensors: list[ir.Value]) -> str:
    """Text of a module whose only function holds the op and its constants; ``tensors`` gets its arguments."""
    op = cx.op
    lines: list[str] = []
    names: dict[ir.Value, str] = {}

    def operand(value: ir.Value) -> str:
        if value in names:
            return names[value]
        name = f"%v{len(names)}"
        if cx.lookup(value) is not None:
            names[value] = name
            tensors.append(value)
            return name
        elements = list_elements(value)
        if elements is not None:
            parts = [operand(element) for element in elements]
            types = ", ".join(str(element.type) for element in elements)
            name = f"%v{len(names)}"
            lines.append(f"{name} = torch.prim.ListConstruct {', '.join(parts)} : ({types}) -> {value.type}")
        else:
            source = defining_op(value)
            constant = source is not None and source.name.startswith("torch.constant.")
            if source is None or not constant:
                known = python_value(value)
                cx.unsupported(f"an operand that is no tensor or constant ({known!r})")
            text = source.get_asm(assume_verified=True, enable_debug_info=False)
            lines.append(f"{name} = {text.split(' = ', 1)[1]}")
        names[value] = name
        return name

    operands = ", ".join(operand(value) for value in op.operands)
    types = ", ".join(str(value.type) for value in op.operands)
    results = [str(result.type) for result in op.results]
    count = len(results)
    left = "%r" if count == 1 else f"%r:{count}"
    returned = ", ".join("%r" if count == 1 else f"%r#{k}" for k in range(count))
    arguments = ", ".join(f"{names[value]}: {value.type}" for value in tensors)
    body = "\n  ".join([*lines, f'{left} = "{op.name}"({operands}) : ({types}) -> ({", ".join(results)})'])
    return (
        f"func.func @op({arguments}) -> ({', '.join(results)}) {{\n  {body}\n"
        f"  return {returned} : {', '.join(results)}\n}}"
    )


@lru_cache(maxsize=1024)
def _convert_text(source: str) -> "str | _Failure":
    """The converted function as text, by the text of the torch function: equal ops are converted once."""
    from kiln.dialects import create_context

    context = create_context()
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(source)
            PassManager.parse(PIPELINE).run(module.operation)
        except (ir.MLIRError, RuntimeError, ValueError) as error:
            return _Failure(_reason(str(error)))
        return str(module)


def _reason(message: str) -> str:
    """One line of MLIR's diagnostics, without the location in the isolated module."""
    if "failed to legalize operation 'torch." in message:
        return "it has no conversion of it to linalg"
    lines = [line for line in message.splitlines() if "error:" in line] or [message]
    return re.sub(r'^"[^"]*":[0-9]+:[0-9]+: ', "", lines[0].split("error:", 1)[-1].strip())[:200]


def _convert(source: str) -> "ir.Module | _Failure":
    """The converted module in the current context."""
    text = _convert_text(source)
    return text if isinstance(text, _Failure) else ir.Module.parse(text)


def _inline(cx: "LoweringContext", module: ir.Module, tensors: list[ir.Value]) -> list[ir.Value | None]:
    function = module.body.operations[0].operation
    block = function.regions[0].blocks[0]
    importer = LinalgImporter(cx, cx.name, str(cx.op.location))
    for argument, value in zip(block.arguments, tensors, strict=True):
        found = cx.lookup(value)
        assert found is not None
        if cx.dtype(found).kind == "u":
            raise UnsupportedError(cx.name, str(cx.op.location), "unsigned integers")
        importer.values[argument] = found
    for op in block.operations:
        if op.operation.name == "func.return":
            out: list[ir.Value | None] = []
            for k, operand in enumerate(op.operation.operands):
                value = importer.tensor(operand)
                info = cx.result_info(k)
                out.append(cx.state.set_info(value, info.shape, info.dtype))
            return out
        importer.convert(op.operation)
    raise UnsupportedError(cx.name, str(cx.op.location), "the conversion returns nothing")
