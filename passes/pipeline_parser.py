# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pipeline text to steps: Kiln's pass names with options and MLIR's pipeline strings, mixed.

Grammar (blanks around names and commas are ignored)::

    pipeline := item (',' item)*
    item     := NAME options?                 a Kiln pass, or a pass of MLIR
              | ANCHOR '(' pipeline? ')'      builtin.module(...), func.func(...), any(...)
    options  := '{' text with balanced brackets '}'

``builtin.module(...)`` is flattened, so that every pass on the module is a step of its own, Kiln's included; another
anchor holds MLIR passes only. An MLIR pass that works on functions may be named without ``func.func(...)``.
"""

from dataclasses import dataclass

from kiln.errors import KilnError, PassOptionError, PipelineParseError, UnknownPassError
from kiln.passes.core import Compilation, Pass
from kiln.passes.manager import PipelineStep
from kiln.passes.mlir_pass import MlirPass, check_mlir_pipeline, mlir_pass_names
from kiln.passes.options import parse_options
from kiln.passes.registry import find_pass, import_all, pass_names

__all__ = ["parse_pipeline"]

_OPEN, _CLOSE = "({[", ")}]"


@dataclass
class _Item:
    """``name`` with what stood in its braces and parentheses; ``position`` counts from 0."""

    name: str
    position: int
    options: str | None = None
    children: "list[_Item] | None" = None
    text: str = ""


def parse_pipeline(text: str, compilation: Compilation | None = None) -> list[PipelineStep]:
    """The steps of a pipeline string, made for a compilation; an empty string has none.

    Raises :class:`PipelineParseError` (with the column), :class:`UnknownPassError` (naming the near ones) or
    :class:`PassOptionError`.
    """
    items, position = _parse_items(text, 0, nested=False)
    if position != len(text):
        raise PipelineParseError(f"unexpected {text[position]!r}", text, position + 1)
    steps: list[PipelineStep] = []
    for item in items:
        steps += [PipelineStep(p) for p in _make(item, text, compilation or Compilation())]
    return steps


def _parse_items(text: str, position: int, nested: bool) -> tuple[list[_Item], int]:
    items: list[_Item] = []
    position = _skip(text, position)
    if position == len(text) or (nested and text[position] == ")"):
        return items, position
    while True:
        item, position = _parse_item(text, position)
        items.append(item)
        position = _skip(text, position)
        if position < len(text) and text[position] == ",":
            position = _skip(text, position + 1)
            continue
        return items, position


def _parse_item(text: str, position: int) -> tuple[_Item, int]:
    start = position
    while position < len(text) and (text[position].isalnum() or text[position] in "-_."):
        position += 1
    if position == start:
        found = repr(text[position]) if position < len(text) else "the end"
        raise PipelineParseError(f"expected a pass name, found {found}", text, start + 1)
    item = _Item(text[start:position], start)
    position = _skip(text, position)
    if position < len(text) and text[position] == "(":
        opened = position
        item.children, position = _parse_items(text, position + 1, nested=True)
        if position == len(text):
            raise PipelineParseError("this '(' is never closed", text, opened + 1)
        if text[position] != ")":
            raise PipelineParseError(f"expected ',' or ')', found {text[position]!r}", text, position + 1)
        position += 1
    elif position < len(text) and text[position] == "{":
        end = _closing(text, position)
        item.options = text[position + 1 : end]
        position = end + 1
    elif position < len(text) and text[position] not in ",)":
        raise PipelineParseError(
            f"expected ',', '(' or '{{' after {item.name!r}, found {text[position]!r}", text, position + 1
        )
    item.text = "".join(text[start:position].split()) if item.options is None else text[start:position].strip()
    return item, position


def _closing(text: str, position: int) -> int:
    """The bracket that closes the one at ``position``; quoted text is skipped."""
    stack: list[int] = []
    quote = ""
    for i in range(position, len(text)):
        char = text[i]
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            stack.append(i)
        elif char in _CLOSE:
            if _OPEN.index(text[stack[-1]]) != _CLOSE.index(char):
                raise PipelineParseError(f"{char!r} does not close {text[stack[-1]]!r}", text, i + 1)
            stack.pop()
            if not stack:
                return i
    raise PipelineParseError(f"this {text[position]!r} is never closed", text, position + 1)


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _make(item: _Item, text: str, compilation: Compilation) -> list[Pass]:
    if item.children is not None:
        if item.name in ("builtin.module", "module"):
            return [p for child in item.children for p in _make(child, text, compilation)]
        _reject_kiln_passes(item, text)
        return [_mlir(item, text)]
    cls = find_pass(item.name, everywhere=False)
    if cls is None:
        if _mlir_form(item) is not None:
            return [_mlir(item, text)]
        cls = find_pass(item.name)
    if cls is None:
        return [_mlir(item, text)]
    return [cls.made(parse_options(cls, item.options or ""), compilation)]


def _reject_kiln_passes(item: _Item, text: str) -> None:
    for child in item.children or ():
        if child.children is None and find_pass(child.name, everywhere=False) is not None:
            raise PipelineParseError(
                f"Kiln pass {child.name!r} works on the module: write it outside of {item.name}(...)",
                text,
                child.position + 1,
            )
        _reject_kiln_passes(child, text)


def _mlir_form(item: _Item) -> str | None:
    """The item as a pipeline on the module, nested in ``func.func`` if that is what it takes; None if neither is."""
    for form in (f"builtin.module({item.text})", f"builtin.module(func.func({item.text}))"):
        if check_mlir_pipeline(form) is None:
            return form
    return None


def _mlir(item: _Item, text: str) -> MlirPass:
    form = _mlir_form(item)
    if form is not None:
        return MlirPass(form, item.text)
    for leaf in _leaves(item):
        if _mlir_form(leaf) is not None:
            continue
        if leaf.options is not None and _mlir_form(_Item(leaf.name, leaf.position, text=leaf.name)) is not None:
            complaint = check_mlir_pipeline(f"builtin.module({leaf.text})") or ""
            raise PassOptionError(leaf.name, complaint.replace("<Pass-Options-Parser>: ", ""))
        raise _unknown(leaf, text)
    raise PipelineParseError(check_mlir_pipeline(f"builtin.module({item.text})") or "invalid", text, item.position + 1)


def _unknown(leaf: _Item, text: str) -> KilnError:
    for module, message in import_all().items():
        # The module that the name would be in, had it been importable.
        if leaf.name.replace("-", "_").startswith(module.rsplit(".", 1)[-1]):
            return KilnError(message)
    where = f"at column {leaf.position + 1} of {text!r}" if leaf.text != text.strip() else ""
    return UnknownPassError(leaf.name, [*pass_names(), *mlir_pass_names()], where)


def _leaves(item: _Item) -> list[_Item]:
    if item.children is None:
        return [item]
    return [leaf for child in item.children for leaf in _leaves(child)]
