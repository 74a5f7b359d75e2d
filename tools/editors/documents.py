# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A file of IR as an editor sees it: what is wrong where, what an op does, where a value comes from.

Lines and columns count from 0, as in the language server protocol. Definitions are found in the text, so that they are
there while a file does not parse.
"""

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from torch_mlir import ir

from kiln.passes.file_positions import positions
from kiln.passes.invariants import STAGES, check_stage

__all__ = ["Place", "Problem", "definition", "hover", "problems", "word_at"]

_SEPARATOR = re.compile(r"^// -----[ \t]*$", re.M)
_WORD = re.compile(r"[%@^#][\w$.\-]+|[A-Za-z_][\w$]*(?:\.[\w$]+)+|[A-Za-z_]\w*")
_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')
_SYMBOL = r'(?:\b(?:func|module|kernel)\s+(?:\w+\s+)*{0}\b|sym_name = "{1}")'


@dataclass(frozen=True)
class Place:
    """A position in a text."""

    line: int
    column: int


@dataclass(frozen=True)
class Problem:
    """A diagnostic: ``severity`` as MLIR names it ("error")."""

    place: Place
    severity: str
    message: str


def problems(text: str, name: str = "") -> list[Problem]:
    """What the parser, the verifiers and, by a name as in dumps (``x.fused.mlir``), a stage's invariant find wrong.

    Parts between ``// -----`` lines are looked at one by one; the first problem of each is told.
    """
    endings = PurePath(name).name.split(".")
    stage = endings[-2] if len(endings) > 2 and endings[-2] in STAGES else ""
    found: list[Problem] = []
    start = 0
    for end in [*(match.start() for match in _SEPARATOR.finditer(text)), len(text)]:
        blank = "\n" * text.count("\n", 0, start)  # lines are those of the file
        for wrong in positions(blank + text[start:end], (lambda m: check_stage(m, stage)) if stage else None):
            notes = "".join(f"\n{note.message}" for note in wrong.notes)
            place = Place(max(0, wrong.line - 1), max(0, wrong.column - 1))
            found.append(Problem(place, wrong.severity, wrong.message + notes))
        start = end
    return found


def word_at(text: str, place: Place) -> str:
    """The name of an op, value (without the number of a result), symbol, block or alias at a place, or nothing."""
    lines = text.split("\n")
    line = lines[place.line] if place.line < len(lines) else ""
    return next((m[0] for m in _WORD.finditer(line) if m.start() <= place.column <= m.end()), "")


def hover(text: str, place: Place) -> str:
    """Markdown: an op's documentation, or the line that defines a value, a symbol or an alias; empty for neither."""
    word = word_at(text, place)
    if word[:1] in "%@^#" and word:
        defined = definition(text, place)
        return f"```mlir\n{text.splitlines()[defined.line].strip()}\n```" if defined is not None else ""
    cls = _op_class(word)
    if cls is None:
        return ""
    return f"**{word}**\n\n{inspect.cleandoc(cls.__doc__ or 'no documentation')}"


def definition(text: str, place: Place) -> Place | None:
    """Where the value, symbol, block or alias at a place is defined."""
    word = word_at(text, place)
    at = sum(len(line) + 1 for line in text.split("\n")[: place.line]) + place.column
    code = _COMMENT_OR_TEXT.sub(lambda m: " " * len(m[0]), text)
    escaped = re.escape(word)
    if word.startswith("%"):
        found = _value(code, escaped, at)
    elif word.startswith("@"):
        found = _first(re.compile(_SYMBOL.format(escaped, re.escape(word[1:]))), text)
    elif word.startswith("^"):
        found = _block(code, escaped, at)
    elif word.startswith("#"):
        found = _first(re.compile(rf"^{escaped}\s*=", re.M), text)
    else:
        return None
    return None if found is None else _place(text, found)


def _value(code: str, escaped: str, at: int) -> int | None:
    """The last definition before a use in a region that the use is in: of an operation, a block or a function."""
    # `%0 = `, `%0:2 = `, `%0, %1 = `; and `%x: type`, where a use has a space in front of the colon.
    result = rf"{escaped}(?![\w$.\-])(?=(?::\d+)?(?:\s*,\s*%[\w$.\-]+(?::\d+)?)*\s*=)"
    pattern = re.compile(rf"{result}|{escaped}(?=:(?!\d))")
    before = [m.start() for m in pattern.finditer(code) if m.start() <= at]
    for start in reversed(before):
        if start <= at and _encloses(code, start, at):
            return start
    return None


def _encloses(code: str, start: int, at: int) -> bool:
    """Whether no region that a definition stands in ends before a use."""
    depth = 0
    for character in code[start:at]:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return True


def _block(code: str, escaped: str, at: int) -> int | None:
    """The nearest label of that name: blocks of other functions may be named the same."""
    found = [m.start() for m in re.finditer(rf"^\s*({escaped})(?=[(:])", code, re.M)]
    return min(found, key=lambda start: abs(start - at)) if found else None


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return match.start() if match else None


def _place(text: str, offset: int) -> Place:
    offset += len(text[offset:]) - len(text[offset:].lstrip())
    line = text.count("\n", 0, offset)
    return Place(line, offset - (text.rfind("\n", 0, offset) + 1))


def _op_class(name: str) -> type[Any] | None:
    """The Python class of an op, of Kiln's dialects or of MLIR's and torch-mlir's, which have ODS's documentation."""
    dialect = name.partition(".")[0]
    modules = {"kiln": ("kiln.dialects.kiln",), "tt": ("kiln.dialects.tt",)}.get(
        dialect, (f"torch_mlir.dialects.{dialect}", f"torch_mlir.dialects._{dialect}_ops_gen")
    )
    for module in modules:
        try:
            members = vars(importlib.import_module(module)).values()
        except ImportError:
            continue
        for member in members:
            if inspect.isclass(member) and issubclass(member, ir.OpView) and _name(member) == name:
                return member
    return None


def _name(cls: type[Any]) -> str:
    return str(getattr(cls, "OPERATION_NAME", ""))
