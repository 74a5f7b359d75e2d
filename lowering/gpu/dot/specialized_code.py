# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The text of one region of MLIR as it is written line by line: fresh names, 32-bit numbers, loops."""

from collections.abc import Callable, Sequence

__all__ = ["Code", "Number"]

Number = str | int
"""An i32: a value's name, or known."""


class Code:
    """Lines of one region, and what computes 32-bit numbers in it: known ones are folded."""

    def __init__(self, part: str = "", prefix: str = "v"):
        """part: what the names end in that this region, which sees no others, has for the kernel's values. prefix: of
        the names of its own.
        """
        self.part, self.prefix, self.lines, self.count, self.indent = part, prefix, list[str](), 0, 6

    def outer(self, name: str) -> str:
        """A value of the kernel: an argument, or shared memory."""
        return f"%{name}{self.part}"

    def line(self, text: str) -> None:
        """Append a line of TTGIR at the current indentation."""
        self.lines.append(" " * self.indent + text)

    def new(self, text: str) -> str:
        """A fresh value."""
        self.count += 1
        name = f"%{self.prefix}{self.count}"
        self.line(f"{name} = {text}")
        return name

    def number(self, x: Number) -> str:
        """The SSA name of a number (i32); a name stays."""
        return x if isinstance(x, str) else self.new(f"arith.constant {x} : i32")

    def _binary(self, op: str, x: Number, y: Number, fold: Callable[[int, int], int]) -> Number:
        if isinstance(x, int) and isinstance(y, int):
            return fold(x, y)
        return self.new(f"arith.{op} {self.number(x)}, {self.number(y)} : i32")

    def add(self, x: Number, y: Number) -> Number:
        """`x + y` of i32; folded where both are known."""
        return x if y == 0 else y if x == 0 else self._binary("addi", x, y, lambda a, b: a + b)

    def sub(self, x: Number, y: Number) -> Number:
        """`x - y` of i32; folded where both are known."""
        return x if y == 0 else self._binary("subi", x, y, lambda a, b: a - b)

    def mul(self, x: Number, y: Number) -> Number:
        """`x * y` of i32; folded where both are known."""
        return x if y == 1 else self._binary("muli", x, y, lambda a, b: a * b)

    def div(self, x: Number, y: int) -> Number:
        """`x / y` of unsigned i32, rounded down; folded where x is known."""
        return x if y == 1 else self._binary("divui", x, y, lambda a, b: a // b)

    def rem(self, x: Number, y: int) -> Number:
        """`x mod y` of unsigned i32; folded where x is known."""
        return 0 if y == 1 else self._binary("remui", x, y, lambda a, b: a % b)

    def min(self, x: Number, y: Number) -> Number:
        """The smaller of two signed i32."""
        return self._binary("minsi", x, y, min)

    def odd(self, x: Number) -> Number:
        """The lowest bit of an i32."""
        return self._binary("andi", x, 1, lambda a, b: a & b)

    def flip(self, x: Number) -> Number:
        """An i32 with its lowest bit inverted."""
        return self._binary("xori", x, 1, lambda a, b: a ^ b)

    def loop(
        self,
        lower: Number,
        upper: Number,
        step: Number,
        carried: Sequence[tuple[Number, str]],
        body: Callable[[str, list[str]], Sequence[Number]],
    ) -> list[str]:
        """carried: initial values ("0": the number) and types. Returns what is carried at the end."""
        bounds = [self.number(x) for x in (lower, upper, step)]
        inits = [self.number(0) if value == "0" else self.number(value) for value, _ in carried]
        self.count += 1
        name = f"v{self.count}"
        inner = [f"%{name}_{i}" for i in range(len(carried))]
        types = ", ".join(type_ for _, type_ in carried)
        given = ", ".join(f"{x} = {y}" for x, y in zip(inner, inits, strict=True))
        start = f"%{name}:{len(carried)} = " if carried else ""
        self.line(
            f"{start}scf.for %{name}_i = {bounds[0]} to {bounds[1]} step {bounds[2]} "
            f"iter_args({given}) -> ({types}) : i32 {{"
        )
        self.indent += 2
        results = [self.number(x) for x in body(f"%{name}_i", inner)]
        self.line(f"scf.yield {', '.join(results)} : {types}")
        self.indent -= 2
        self.line("}")
        return [f"%{name}#{i}" for i in range(len(carried))]
