# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""TTGIR as text to a tree of ops: one op a line, as `lowering/gpu/dot/specialized_code.py` writes it.

MLIR's own parser knows no Triton, and Triton's gives Python no access to regions. What is not of this form is an error.
"""

import re
from dataclasses import dataclass, field

from kiln.errors import InvalidIRError

__all__ = ["Block", "Function", "Op", "parse_ttgir"]

_OP = re.compile(r'(?:(%\w+)(?::(\d+))? = )?"?([a-z_]+\.[a-z_0-9]+)"?(.*)$')
_FUNCTION = re.compile(r"tt\.func public @(\w+)\((.*)\) \{$")
_PARTITION = re.compile(r"partition(\d+)\((.*)\) num_warps\((\d+)\) \{$")
_ARGUMENT = re.compile(r"(%\w+): (.*?)(?=, %|$)")


@dataclass
class Block:
    """Ops in order; arguments by name."""

    arguments: list[str] = field(default_factory=list[str])
    ops: list["Op"] = field(default_factory=list["Op"])


@dataclass
class Op:
    """results: by name, `%v#0`, `%v#1` where there are several; text: what is behind the op's name, up to the types of
    ops with regions; line: in the module's text, from 1.
    """

    name: str
    results: list[str]
    text: str
    line: int
    regions: list[Block] = field(default_factory=list[Block])

    @property
    def operands(self) -> list[str]:
        """All values that the text names in front of the types."""
        return re.findall(r"%\w+(?:#\d+)?", self.text.split(" : ")[0])

    @property
    def type(self) -> str:
        """The last type, that of the result."""
        return re.split(r" -> | to | : ", self.text)[-1]

    def integer(self, name: str) -> int:
        """An integer attribute."""
        found = re.search(rf"\b{name} = (-?\d+)", self.text)
        if found is None:
            raise InvalidIRError(f"{self.name} has no attribute {name}", f"line {self.line}")
        return int(found[1])


@dataclass
class Function:
    """The kernel: its arguments' names and types, and its body."""

    name: str
    arguments: dict[str, str]
    body: Block


def parse_ttgir(text: str) -> Function:
    """The module's kernel. Raises InvalidIRError for a line that is none of the form above."""
    reader = _Reader(text.splitlines())
    for number, line in reader.lines:
        found = _FUNCTION.match(line)
        if found is not None:
            body = Block()
            reader.block(body)
            return Function(found[1], dict(_ARGUMENT.findall(found[2])), body)
        if line and not line.startswith(("#", "module")):
            raise InvalidIRError(f"expected tt.func, found {line!r}", f"line {number}")
    raise InvalidIRError("the module holds no tt.func")


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.lines = iter([(i, line.strip()) for i, line in enumerate(lines, 1)])

    def block(self, into: Block) -> str:
        """Reads ops up to the line that ends the block, which is returned."""
        for number, line in self.lines:
            if line.startswith("}"):
                return line
            if line.startswith("^bb0("):
                into.arguments = re.findall(r"%\w+", line)
                continue
            found = _OP.match(line)
            if found is None:
                raise InvalidIRError(f"unknown form of TTGIR: {line!r}", f"line {number}")
            name, count, kind, rest = found.groups()
            results = [] if name is None else [name] if count is None else [f"{name}#{i}" for i in range(int(count))]
            op = Op(kind, results, rest, number)
            into.ops.append(op)
            if kind == "ttg.warp_specialize":
                self._partitions(op)
            elif line.endswith("{"):
                op.regions.append(Block())
                self.block(op.regions[0])
        return ""

    def _partitions(self, op: Op) -> None:
        number, line = next(self.lines)
        if line != "default {":
            raise InvalidIRError(f"expected the default region, found {line!r}", f"line {number}")
        op.regions.append(Block())
        self.block(op.regions[0])
        while True:
            number, line = next(self.lines)
            found = _PARTITION.match(line)
            if found is None:
                raise InvalidIRError(f"expected a partition, found {line!r}", f"line {number}")
            op.regions.append(Block([name for name, _ in _ARGUMENT.findall(found[2])]))
            if self.block(op.regions[-1]) != "}":
                return
