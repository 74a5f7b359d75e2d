# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A dumped stage without locations, for a person to edit, and with them again."""

from dataclasses import dataclass
from difflib import SequenceMatcher

from kiln.frontend.report.trace.locations import located_lines

__all__ = ["Merged", "merged", "shown"]

_ALIAS = "#loc"
_OPEN = ("{", ":", ",", "(")
"""Ends of lines that an op goes on behind: its location stands later."""


@dataclass(frozen=True)
class Merged:
    """``text``: a file to compile; ``head``: how many of its lines are in front of the first line that was edited."""

    text: str
    head: int


def shown(text: str) -> str:
    """A dumped text without locations."""
    return "\n".join(line.text for line in located_lines(text)) + "\n"


def merged(dumped: str, edited: str) -> Merged:
    """An edited text with the locations that its lines have in the dump; those of new lines are unknown.

    A line that takes the place of another has the other's location. Each line of ``edited`` is one line of the result.
    """
    lines = dumped.rstrip("\n").split("\n")
    old = [line for line in lines if not line.startswith(_ALIAS)]
    body = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    head = [line for line in lines[:body] if line.startswith(_ALIAS)]
    tail = [line for line in lines[body:] if line.startswith(_ALIAS)]
    new = edited.replace("\r\n", "\n").rstrip("\n").split("\n")
    matcher = SequenceMatcher(None, shown(dumped).rstrip("\n").split("\n"), new, autojunk=False)
    result: list[str] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            result += old[a:b]
        elif tag == "replace" and b - a == d - c:
            result += [_located(line, like) for line, like in zip(new[c:d], old[a:b], strict=True)]
        else:
            result += new[c:d]
    return Merged("\n".join([*head, *result, *tail]) + "\n", len(head))


def _located(line: str, like: str) -> str:
    """A line with the location that another one ends with."""
    start = like.rfind(" loc(#")
    has_one = start >= 0 and like.endswith(")") and ")" not in like[start:-1]
    return line + like[start:] if has_one and line.strip() and not line.rstrip().endswith(_OPEN) else line
