# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Diagnostics as plain data: from MLIR's handlers, from ``MLIRError``, and from Kiln's own errors."""

import re
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch_mlir import ir

from kiln.errors import KilnError

__all__ = ["Diagnostic", "diagnostics_of", "from_info", "locate"]

_FILE_LOCATION = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_PLAIN_LOCATION = re.compile(r"^(.+?):(\d+):(\d+)$")

_FAMILY_SUFFIX = re.compile(r"(\bkiln\.[a-z_]+?)_\d+_\d+\b")

# The note with the whole op, which MLIR's Python bindings always add.
_CURRENT_OP = "see current operation"


@dataclass
class Diagnostic:
    """One error, warning, remark or note. Lines and columns count from 1; ``line`` is 0 at an unknown location."""

    severity: str
    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    notes: "list[Diagnostic]" = field(default_factory=lambda: list[Diagnostic]())

    @property
    def where(self) -> str:
        """``file:line:column`` (``file:line`` without a column), or an empty string."""
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}" if self.line else ""

    def __str__(self) -> str:
        """The diagnostic on one line, short notes in brackets."""
        text = f"{self.where}: " if self.where else ""
        text += f"{self.severity}: {_one_line(self.message)}"
        for note in self.notes:
            where = f"{note.where}: " if note.where and note.where != self.where else ""
            text += f" (note: {where}{_one_line(note.message)})"
        return text


def locate(text: str) -> tuple[str, int, int]:
    """File, line and column in the text of a location (``loc("a.py":3:5)``, fused, named, or ``a.py:3:5``)."""
    found = _FILE_LOCATION.search(text) or _PLAIN_LOCATION.match(text)
    if found is None or found[2] == "0":
        return "", 0, 0
    return found[1], int(found[2]), int(found[3])


def from_info(info: Any) -> Diagnostic:
    """From the ``Diagnostic`` that a handler gets, or the ``DiagnosticInfo`` in an ``MLIRError``."""
    severity = str(info.severity).rsplit(".", 1)[-1].lower()
    notes = [from_info(n) for n in info.notes if not n.message.startswith(_CURRENT_OP)]
    # Ops of a family carry their numbers of operands and results in the name that MLIR knows.
    message = _FAMILY_SUFFIX.sub(r"\1", info.message)
    return Diagnostic(severity, message, *locate(str(info.location)), notes)


def diagnostics_of(error: BaseException) -> list[Diagnostic]:
    """The diagnostics behind an exception; at least one, of severity ``error``.

    A Kiln error that wraps another (``raise CompileError(...) from error``) gives the diagnostics of the cause, at its
    own place where the cause has none.
    """
    if isinstance(error, ir.MLIRError):
        found = [from_info(d) for d in error.error_diagnostics]
        return found or [Diagnostic("error", str(error) + " (MLIR gave no diagnostic)")]
    if isinstance(error, KilnError):
        where = locate(getattr(error, "location", "") or "")
        if isinstance(error.__cause__, KilnError | ir.MLIRError):
            found = diagnostics_of(error.__cause__)
            return [d if d.line else replace(d, file=where[0], line=where[1], column=where[2]) for d in found]
        # The message without the location that is printed before it, where the error keeps them apart.
        message = getattr(error, "message", None) or str(error)
        return [Diagnostic("error", message, *where)]
    return [Diagnostic("error", f"{type(error).__name__}: {error}{_raised_at(error)}")]


def _raised_at(error: BaseException) -> str:
    """Where in a pass a bug is, for the messages that show no traceback: the last frame outside of MLIR's bindings."""
    bindings = str(Path(ir.__file__).parent)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(bindings)]
    return f" (raised in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
