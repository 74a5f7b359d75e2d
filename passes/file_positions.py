# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Positions in a file of IR, for a file whose ops say that they come from somewhere else."""

import re
from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.errors import KilnError
from kiln.passes.diagnostics import Diagnostic, diagnostics_of

__all__ = ["positions", "without_locations"]

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|(?:^#loc\d*\s*=\s*)?\bloc\(', re.M)
_INNER = re.compile(r'"(?:[^"\\\n]|\\.)*"|[()]')


def without_locations(text: str) -> str:
    """The text with spaces in place of ``loc(...)`` and of the lines that define them: each op then is where it stands
    in the file.
    """
    parts: list[str] = []
    end = 0
    for found in _TOKEN.finditer(text):
        if found.start() < end or not found[0].endswith("loc("):
            continue
        depth, stop = 1, len(text)
        for inner in _INNER.finditer(text, found.end()):
            depth += {"(": 1, ")": -1}.get(inner[0], 0)
            if not depth:
                stop = inner.end()
                break
        parts += [text[end : found.start()], re.sub(r"[^\n]", " ", text[found.start() : stop])]
        end = stop
    return "".join([*parts, text[end:]])


def positions(text: str, check: Callable[[ir.Module], object] | None = None) -> list[Diagnostic]:
    """What parsing, the verifier and ``check`` find wrong with a module's text, each with its place in that text."""
    found: list[Diagnostic] = []
    with create_context(), ir.Location.unknown():
        try:
            module = parse(without_locations(text))
            if check is not None:
                check(module)
        except (ir.MLIRError, KilnError) as error:
            found += diagnostics_of(error)
    return found
