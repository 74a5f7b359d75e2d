# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a pass changed, as a diff in which a value that got another number is not a change."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["DiffLine", "changed_lines", "diff_text"]

_VALUE = re.compile(r"%[\w$.\-]+")
_MAP = re.compile(r"#map\d*|#set\d*")
_DEFINED = re.compile(r"#(?:map|set)\d* = ")
_CONTEXT = 3


@dataclass(frozen=True)
class DiffLine:
    """``kind``: " " (in both), "-", "+", or "@" in front of lines that are left out; ``old``, ``new``: their indices
    (from 0) in the texts, -1 where the line is not in it.
    """

    kind: str
    text: str
    old: int = -1
    new: int = -1


def changed_lines(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    """The lines that differ, with three equal ones around; empty where nothing does."""
    lines = list(_aligned(old, new))
    changed = [i for i, line in enumerate(lines) if line.kind != " "]
    kept = sorted({j for i in changed for j in range(max(0, i - _CONTEXT), min(len(lines), i + _CONTEXT + 1))})
    result: list[DiffLine] = []
    before = -1
    for i in kept:
        if i != before + 1:
            result.append(DiffLine("@", f"line {lines[i].new + 1 if lines[i].new >= 0 else lines[i].old + 1}"))
        result.append(lines[i])
        before = i
    return result


def diff_text(old: Sequence[str], new: Sequence[str]) -> str:
    """The same as text."""
    return "\n".join(f"{line.kind}{line.text}" for line in changed_lines(old, new))


def _aligned(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    """All lines of both texts but definitions of maps, which are compared where they are used."""
    mine = [i for i, line in enumerate(old) if not _DEFINED.match(line)]
    theirs = [i for i, line in enumerate(new) if not _DEFINED.match(line)]
    keys, other_keys = _keys(old, mine), _keys(new, theirs)
    renamed: dict[str, str] = {}
    matcher = difflib.SequenceMatcher(None, keys, other_keys)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            renamed.update({name: "" for i in mine[a:b] for name in _defined(old[i])})  # equal to no value
            yield from (DiffLine("-", old[i], old=i) for i in mine[a:b])
            yield from (DiffLine("+", new[j], new=j) for j in theirs[c:d])
            continue
        for i, j in zip(mine[a:b], theirs[c:d], strict=True):
            if _agree(old[i], new[j], renamed):
                yield DiffLine(" ", new[j], i, j)
            else:  # the same op on other operands
                yield DiffLine("-", old[i], old=i)
                yield DiffLine("+", new[j], new=j)


def _keys(lines: Sequence[str], wanted: Sequence[int]) -> list[str]:
    """What lines that are equal but for the numbers of values and maps have in common."""
    maps = {name: body for line in lines if _DEFINED.match(line) for name, _, body in [line.partition(" = ")]}
    return [_MAP.sub(lambda found: maps.get(found[0], found[0]), _VALUE.sub("%", lines[i])) for i in wanted]


def _agree(old: str, new: str, renamed: dict[str, str]) -> bool:
    """Whether two lines of one form read the same values; learns how the values that they define are called."""
    before, after = _VALUE.findall(old), _VALUE.findall(new)
    defined = len(_defined(old))
    agree = all(renamed.get(x, y) == y for x, y in zip(before[defined:], after[defined:], strict=False))
    renamed.update(zip(before[:defined], after[:defined], strict=False))
    return agree


def _defined(line: str) -> list[str]:
    """The values that a line defines, which stand first in it."""
    stripped = line.lstrip()
    if stripped.startswith(("^", "func.func", "llvm.func")):
        return _VALUE.findall(line)
    head, equals, _ = line.partition(" = ")
    return _VALUE.findall(head) if equals and stripped.startswith("%") else []
