# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a pass has to say about an op. Needs no MLIR: reports hold notes, in processes that only load code as well."""

import re
from dataclasses import dataclass

__all__ = ["Note", "lines_in_location", "names_in_location", "shown_location"]

_NAME = re.compile(r'"([A-Za-z_]\w*)"\(')
_FOLDERS = re.compile(r".*[/\\]")
_LINE = re.compile(r'"([^"]+)":(\d+):\d+')


def names_in_location(location: str) -> list[str]:
    """FX node names in the text of a location: one, or those of a fused location."""
    return _NAME.findall(location)


def lines_in_location(location: str) -> list[tuple[str, int]]:
    """Files and lines in the text of a location."""
    return [(file, int(line)) for file, line in _LINE.findall(location)]


def shown_location(location: str) -> str:
    """A location for people: the FX nodes and the model's lines, without folders: ``relu, add (model.py:12)``."""
    names = ", ".join(dict.fromkeys(names_in_location(location)))
    lines = dict.fromkeys(f"{_FOLDERS.sub('', file)}:{line}" for file, line in lines_in_location(location))
    places = f"({', '.join(lines)})" if lines else ""
    return f"{names} {places}".strip() or location


@dataclass(frozen=True)
class Note:
    """One remark of a pass: strings only, since the op may be erased later."""

    pass_name: str
    op: str
    location: str
    reason: str

    @property
    def subject(self) -> str:
        """The op, and what the model has there: ``kiln.fusion (relu, softmax)``."""
        names = ", ".join(names_in_location(self.location))
        return f"{self.op} ({names})" if names else self.op

    def __str__(self) -> str:
        return f"{self.location}: {self.op}: {self.reason} [{self.pass_name}]"
