# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The text of ``kiln-opt --list-passes``."""

import dataclasses
import sys

from kiln.passes.core import registered_passes
from kiln.passes.options import format_value, options_of
from kiln.passes.registry import import_all

__all__ = ["default_text", "list_passes"]


def list_passes(names_only: bool = False) -> str:
    """Kiln's passes by name; with summary, options, their types and defaults unless ``names_only``."""
    for message in import_all().values():
        print(f"warning: {message}", file=sys.stderr)
    passes = dict(sorted(registered_passes().items()))
    if names_only:
        return "\n".join(passes)
    lines: list[str] = []
    for name, cls in passes.items():
        lines.append(f"{name:<32} {cls.summary()}")
        for option in options_of(cls):
            about = f"  {option.help}" if option.help else ""
            lines.append(f"    {option.name}=<{option.type_name}> (default: {default_text(option.default)}){about}")
    return "\n".join(lines)


def default_text(value: object) -> str:
    """A default as pipeline text shows it."""
    return "required" if value is dataclasses.MISSING else format_value(value) or "''"
