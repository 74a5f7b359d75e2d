# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference of one step: its IR, evaluated in float64 with bounds of the error on the device of its operands."""

import re
from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.interpret.bounds import Bounded, BoundedNumbers
from kiln.dialects.interpret.interpreter import Interpreter
from kiln.dialects.kiln import AtenOp, ScatterNdOp, name_of, opdef
from kiln.dialects.walk import is_structural, ops_inside

__all__ = ["Reference"]

_LINE = re.compile(r'"([^"]+\.py)":(\d+):\d+')


class Reference:
    """A parsed reference (lowering/host/references.py)."""

    def __init__(self, text: str, tf32: bool = False) -> None:
        self.text, self.tf32 = text, tf32
        self._context = create_context()
        self.module = parse(text, self._context)
        self.function: ir.Operation = self.module.body.operations[0].operation
        types = ir.FunctionType(ir.TypeAttr(self.function.attributes["function_type"]).value)
        self.elements = [ir.RankedTensorType(t).element_type for t in types.results]
        tensors = [ir.RankedTensorType(t) for t in types.inputs if isinstance(t, ir.RankedTensorType)]
        self.shapes = [list(t.shape) if t.has_static_shape else None for t in tensors]

    def evaluate(
        self, operands: Sequence[torch.Tensor], symbols: Sequence[int], device: torch.device | str | None = None
    ) -> list[Bounded]:
        """Its results, on `device`: that of the operands, by default. Positions and masks may have no operands."""
        device = device or next((x.device for x in operands), torch.device("cpu"))
        with torch.no_grad(), self._context:
            return Interpreter(BoundedNumbers(self.tf32), device).values(self.function, [*operands, *symbols])

    @property
    def reads_by_index(self) -> bool:
        """Whether positions may be read from tensors: these may be out of bounds."""
        readers = (AtenOp, ScatterNdOp)
        return any(name_of(op) == "tensor.extract" or opdef(op).op in readers for op in ops_inside(self.function))

    def lines(self) -> list[str]:
        """The lines of the model that its ops come from: "model.py:12"."""
        found: dict[str, None] = {}
        for op in ops_inside(self.function):
            for path, line in _LINE.findall(str(op.location)):
                found[f"{path}:{line}"] = None
        return list(found)

    def ops(self) -> list[str]:
        """Names of the graph's nodes that it holds."""
        found: dict[str, None] = {}
        for op in ops_inside(self.function):
            if not is_structural(op.operation):
                found.update(dict.fromkeys(re.findall(r'"([A-Za-z_]\w*)"\(', str(op.location))))
        return list(found)
