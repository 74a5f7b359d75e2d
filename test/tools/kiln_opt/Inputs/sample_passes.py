# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Small passes for the tests of kiln-opt."""

from dataclasses import field
from typing import Literal

from torch_mlir import ir

from kiln.errors import UnsupportedError
from kiln.passes import Pass, register_pass


@register_pass
class TestTag(Pass):
    """Tag each op of a function with its position.

    The second paragraph is not part of the summary.
    """

    name = "test-tag"
    prefix: str = "op"  # written before the number
    start: int = 0
    step: float = 1.0
    only: list[str] = field(default_factory=list)  # names of the ops to tag; all when empty
    style: Literal["plain", "hex"] = "plain"
    returns: bool = False

    def run(self, module: ir.Module) -> None:
        number = self.start
        for func in module.body.operations:
            for op in func.regions[0].blocks[0].operations:
                if op.operation.name == "func.return" and not self.returns:
                    self.note(op, "returns are not tagged")
                    continue
                if self.only and op.operation.name not in self.only:
                    continue
                text = hex(number) if self.style == "hex" else str(number)
                op.operation.attributes["test.tag"] = ir.StringAttr.get(f"{self.prefix}{text}")
                self.count("matched")
                number += int(self.step)


@register_pass
class TestReject(Pass):
    """Fail at the first op of a given name."""

    name = "test-reject"
    op: str

    def run(self, module: ir.Module) -> None:
        for func in module.body.operations:
            for op in func.regions[0].blocks[0].operations:
                if op.operation.name == self.op:
                    raise UnsupportedError(self.op, str(op.operation.location), "rejected by option")


@register_pass
class TestBreak(Pass):
    """Leave IR that does not verify."""

    name = "test-break"

    def run(self, module: ir.Module) -> None:
        func = module.body.operations[0]
        func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([ir.IndexType.get()], []))


@register_pass
class TestRaise(Pass):
    """Raise an exception that is no error of Kiln."""

    name = "test-raise"

    def run(self, module: ir.Module) -> None:
        raise ZeroDivisionError("a bug")
