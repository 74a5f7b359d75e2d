# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every error Kiln raises on purpose.

A message names what failed, where, what was expected, what was found and what to do; it is one line unless it
carries a reproducer. Tools print it as ``error: <message>`` and exit with status 1.
"""

import difflib
import re
from collections.abc import Iterable

__all__ = [
    "AccessError",
    "BackendOptionError",
    "CheckError",
    "CompileError",
    "InvalidIRError",
    "KilnError",
    "NumericsError",
    "PassOptionError",
    "PipelineParseError",
    "ProofError",
    "UnknownPassError",
    "UnsupportedError",
    "did_you_mean",
    "location_text",
    "near_misses",
]


def near_misses(name: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The up to ``count`` candidates closest to ``name``, best first; empty when none is close.

    A candidate that holds ``name`` as a whole word part (``fuse`` in ``fuse-elementwise``) counts as close.
    """
    pool = sorted(set(candidates))
    close = difflib.get_close_matches(name, pool, n=count, cutoff=0.6)
    if len(name) >= 3:
        close += [c for c in pool if name in c and c not in close]
    return close[:count]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'a' or 'b'?"``, or an empty string when nothing is near."""
    close = near_misses(name, candidates)
    return f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def location_text(location: object) -> str:
    """``file:line:column`` from an MLIR location (or its text); the text as it is when it leads to no file."""
    text = str(location)
    found = re.search(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)', text)
    if found is not None:
        return f"{found[1]}:{found[2]}:{found[3]}"
    return "" if text in ("loc(unknown)", "None") else text


class KilnError(Exception):
    """Base of all errors raised by Kiln."""


class UnknownPassError(KilnError):
    """A pipeline names a pass that is neither Kiln's nor MLIR's."""

    def __init__(self, name: str, candidates: Iterable[str] = (), where: str = "") -> None:
        self.name = name
        at = f" {where}" if where else ""
        near = did_you_mean(name, candidates) or "; kiln-opt --list-passes shows Kiln's"
        super().__init__(f"unknown pass {name!r}{at}{near}")


class PipelineParseError(KilnError):
    """A pipeline string that does not parse; ``column`` counts from 1."""

    def __init__(self, message: str, text: str = "", column: int | None = None) -> None:
        self.text, self.column = text, column
        at = f" at column {column} of {text!r}" if column is not None else (f" in {text!r}" if text else "")
        super().__init__(f"pass pipeline{at}: {message}")


class PassOptionError(KilnError):
    """An unknown pass option, or a value of the wrong type."""

    def __init__(self, pass_name: str, message: str) -> None:
        self.pass_name = pass_name
        super().__init__(f"pass {pass_name!r}: {message}")


class InvalidIRError(KilnError):
    """IR that does not parse, does not verify or breaks a stage's invariant.

    ``location`` is an ``ir.Location``, its text, or ``file:line:column``.
    """

    def __init__(self, message: str, location: object = "") -> None:
        self.message, self.location = message, location_text(location)
        super().__init__(f"{self.location}: {message}" if self.location else message)


class UnsupportedError(KilnError):
    """An op (or a form of it) that Kiln does not handle at this place.

    Conversions catch it and take their next choice, recording ``reason``; where there is none it reaches the user.
    ``location`` is an ``ir.Location``, its text, or ``file:line:column``.
    """

    def __init__(self, op: str, location: object = "", reason: str = "") -> None:
        self.op, self.location, self.reason = op, location_text(location), reason
        self.message = f"{op} is not supported{': ' + reason if reason else ''}"
        at = f" at {self.location}" if self.location else ""
        super().__init__(f"{op}{at} is not supported{': ' + reason if reason else ''}")


class AccessError(KilnError):
    """A kernel of the target ``tt-cpu`` reads or writes outside of a buffer; the message says which op, where."""


class ProofError(KilnError):
    """Checked execution: a proof about a GPU's kernel fails, with a counterexample (docs/validation.md).

    ``kernel``: its name. ``finding``: the property, the op and the counterexample; ``location``: where the op comes
    from in the model.
    """

    def __init__(self, kernel: str, finding: str, location: str = "") -> None:
        self.kernel, self.finding, self.location = kernel, finding, location
        super().__init__(f"kernel @{kernel}{f' ({location})' if location else ''}: {finding}")


class BackendOptionError(KilnError):
    """An unknown or ill-typed entry of ``torch.compile(..., options=...)`` or ``mode=``."""

    def __init__(self, message: str, name: str = "", candidates: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(message + (did_you_mean(name, candidates) if name else ""))


class NumericsError(KilnError):
    """A pass changes numbers by more than rounding can explain; the message names the result and its error."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class CheckError(KilnError):
    """Checked execution: what a kernel wrote is not what its IR says.

    ``kernel``, ``graph``: names; a call of ATen has its op's. ``differences``: one line per result that is off.
    ``ops``: nodes of the graph that the kernel holds; ``lines``: where these come from in the model. ``folder``: what
    reproduces it.
    """

    def __init__(
        self,
        kernel: str,
        graph: str,
        differences: Iterable[str],
        *,
        ops: Iterable[str] = (),
        lines: Iterable[str] = (),
        folder: str = "",
    ) -> None:
        self.kernel, self.graph, self.folder = kernel, graph, folder
        self.differences, self.ops, self.lines = list(differences), list(ops), list(lines)
        said = f"kernel {kernel} of the {graph} graph computes something else than its IR says"
        if kernel.startswith("aten."):
            said = f"the call of {kernel} in the {graph} graph is off: it differs in float64, on row-major operands"
        text = [said, *self.differences]
        if self.ops:
            text.append(f"ops: {', '.join(self.ops)}")
        if self.lines:
            text.append(f"lines: {', '.join(self.lines)}")
        if folder:
            text.append(f"to reproduce: python -m kiln.tools.kiln_check {folder}")
        super().__init__("\n  ".join(text))


class CompileError(KilnError):
    """A pass or a lowering failed; ``reproducer`` is the path of the IR before it, ``command`` reruns it.

    ``options`` are those that the command needs beside the pass to fail again.
    """

    def __init__(
        self,
        message: str,
        *,
        pass_name: str = "",
        reproducer: str | None = None,
        command: str | None = None,
    ) -> None:
        self.message, self.pass_name, self.reproducer, self.command = message, pass_name, reproducer, command
        self.options: list[str] = []
        super().__init__(message)

    def set_reproducer(self, path: str, command: str) -> None:
        """Add what was written after the failure."""
        self.reproducer, self.command = path, command

    def __str__(self) -> str:
        text = f"pass {self.pass_name!r} failed: {self.message}" if self.pass_name else self.message
        if self.command:
            text += f"\n  to reproduce: {self.command}"
        elif self.reproducer:
            text += f"\n  IR before the failure: {self.reproducer}"
        return text
