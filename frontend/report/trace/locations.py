# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Printed IR with debug info -> lines as people read them, and the location of each."""

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SEPARATOR", "Line", "located_lines", "places"]

SEPARATOR = "\n// -----\n"
"""Between the parts of a text that were printed one by one, each with aliases of its own."""

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_NAMES = re.compile(r"#loc\d*")
_SHORT = re.compile(r" loc\((#loc\d*|unknown)\)")
_PLACE = re.compile(r'"([A-Za-z_]\w*)"\((?:"([^"]+)":(\d+):\d+)?')


@dataclass(frozen=True)
class Line:
    """One line of IR without its location; ``location``: that, with aliases written out, or empty."""

    text: str
    location: str = ""


def located_lines(text: str) -> list[Line]:
    """The lines of a text that MLIR printed with debug info, as it prints them without."""
    return [line for part in text.split(SEPARATOR) for line in _lines(part)]


def places(location: str) -> list[tuple[str, str, int]]:
    """The FX nodes in the text of a location: name, file and line (empty and 0 where they are not known)."""
    return [(name, file, int(line or 0)) for name, file, line in _PLACE.findall(location)]


def _lines(text: str) -> list[Line]:
    lines = text.rstrip("\n").split("\n")
    bodies = {found[1]: found[2] for line in lines if (found := _ALIAS.match(line))}
    known: dict[str, str] = {}

    def expand(name: str) -> str:
        if name not in known:
            known[name] = _NAMES.sub(lambda found: expand(found[0]), bodies.get(name, "unknown"))
        return known[name]

    return _with_openings([_line(line, expand) for line in lines if not line.startswith("#loc")])


def _with_openings(lines: list[Line]) -> list[Line]:
    """An op with regions has its location behind the last of them: its first line has it as well."""
    found = list(lines)
    open_: list[int] = []
    for i, line in enumerate(lines):
        text = line.text.strip()
        start = open_.pop() if text.startswith("}") and open_ else -1
        if text.endswith("{"):  # "}, {" goes on with the same op
            open_.append(start if start >= 0 else i)
        elif start >= 0 and not found[start].location:
            found[start] = Line(found[start].text, line.location)
    return found


def _line(line: str, expand: Callable[[str], str]) -> Line:
    found = _SHORT.search(line)
    if found is not None and found.end() == len(line) and line.count(" loc(") == 1:
        return Line(line[: found.start()], _known(expand(found[1]) if found[1] != "unknown" else ""))
    pieces: list[str] = []
    at, location = 0, ""
    while (start := _next(line, at)) >= 0:
        end = _closing(line, start + len(" loc("))
        pieces.append(line[at:start])
        if end == len(line):
            location = _NAMES.sub(lambda found: expand(found[0]), line[start + len(" loc(") : end - 1])
        at = end
    pieces.append(line[at:])
    return Line("".join(pieces), _known(location))


def _next(line: str, at: int) -> int:
    """Where the next location begins that is not in a string; -1: there is none."""
    start = line.find(" loc(", at)
    while start >= 0 and (line.count('"', at, start) - line.count('\\"', at, start)) % 2:
        start = line.find(" loc(", start + 1)
    return start


def _known(location: str) -> str:
    return "" if location == "unknown" else location


def _closing(text: str, at: int) -> int:
    """The position behind the parenthesis that closes the one in front of ``at``."""
    depth, in_string = 1, False
    while depth and at < len(text):
        c = text[at]
        if in_string:
            if c == "\\":
                at += 1
            elif c == '"':
                in_string = False
        elif c == '"':
            in_string = True
        elif c in "()":
            depth += 1 if c == "(" else -1
        at += 1
    return at
