# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pass options: dataclass fields, read from and written to pipeline text.

Supported field types: ``bool``, ``int``, ``float``, ``str``, ``Literal[...]`` of strings or ints, ``list[T]`` and
``tuple[T, ...]`` of those, and ``T | None``. A field of another type is set from Python only.
The text form is MLIR's: ``{max-ops=32 fast-math tiles=8,16 name='a b'}``, separated by blanks; a bool may stand alone.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, dataclass
from typing import Any, Literal, Union, cast

from kiln.errors import PassOptionError, did_you_mean
from kiln.passes.core import Pass

__all__ = ["PassOption", "format_options", "format_value", "options_of", "parse_options"]

_PassClass = type[Pass]
_TRUE, _FALSE = ("true", "1"), ("false", "0")


@dataclass(frozen=True)
class PassOption:
    """One option: ``name`` is dashed as on the command line, ``field`` the Python attribute."""

    name: str
    field: str
    type: Any
    default: Any
    pass_class: _PassClass

    @property
    def help(self) -> str:
        """``metadata["help"]`` of the field, or the string or comment behind it, read from the source: for listings."""
        metadata = {f.name: f.metadata for f in dataclasses.fields(self.pass_class)}  # pyright: ignore[reportArgumentType] - every pass is a dataclass
        return metadata[self.field].get("help") or _field_texts(self.pass_class).get(self.field, "")

    @property
    def type_name(self) -> str:
        """The type as documentation shows it, e.g. ``int``, ``list[int]``, ``greedy|none``."""
        return _type_name(self.type)

    @property
    def required(self) -> bool:
        """Whether the pass cannot be made without it."""
        return self.default is MISSING


def options_of(cls: type[Pass]) -> list[PassOption]:
    """The options of a pass class in field order; none for a class that is no dataclass."""
    if not dataclasses.is_dataclass(cls):
        return []
    hints = typing.get_type_hints(cls)
    result: list[PassOption] = []
    for f in dataclasses.fields(cls):
        if not f.init or f.name.startswith("_") or not _supported(hints[f.name]):
            continue
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        result.append(PassOption(f.name.replace("_", "-"), f.name, hints[f.name], default, cls))
    return result


def parse_options(cls: type[Pass], text: str) -> dict[str, Any]:
    """Constructor arguments of ``cls`` from the text between braces.

    Raises :class:`PassOptionError` for an unknown option (naming the near ones), a repeated one, a value that does
    not fit the type, or a required option that is missing.
    """
    known = {o.name: o for o in options_of(cls)}
    values: dict[str, Any] = {}
    for key, value in _split(cls.name, text):
        name = key.replace("_", "-")
        option = known.get(name)
        if option is None:
            have = f"it has {', '.join(known)}" if known else "it has no options"
            raise PassOptionError(cls.name, f"unknown option {key!r}{did_you_mean(name, known) or '; ' + have}")
        if option.field in values:
            raise PassOptionError(cls.name, f"option {name!r} is given twice")
        if value is None:
            if not _accepts_bool(option.type):
                raise PassOptionError(cls.name, f"option {name!r} needs a value: {name}=<{option.type_name}>")
            value = "true"
        try:
            values[option.field] = _convert(option.type, value)
        except ValueError:
            raise PassOptionError(cls.name, f"option {name!r} expects {option.type_name}, found {value!r}") from None
    missing = [o.name for o in known.values() if o.required and o.field not in values]
    if missing:
        raise PassOptionError(cls.name, f"option {missing[0]!r} must be given")
    return values


def format_options(instance: Pass) -> str:
    """The options that differ from their defaults as ``{a=1 b=x}``, or an empty string."""
    parts: list[str] = []
    for option in options_of(type(instance)):
        value = getattr(instance, option.field)
        if option.required or value != option.default:
            parts.append(f"{option.name}={format_value(value)}")
    return "{" + " ".join(parts) + "}" if parts else ""


def _split(pass_name: str, text: str) -> list[tuple[str, str | None]]:
    token = re.compile(
        r"""\s*(?P<key>[^\s=,'"]+)(?:=(?P<value>'[^']*'|"[^"]*"|\{[^{}]*\}|\[[^\[\]]*\]|[^\s'"]*))?(?=\s|$)"""
    )
    result: list[tuple[str, str | None]] = []
    position = 0
    while position < len(text.rstrip()):
        match = token.match(text, position)
        if match is None:
            raise PassOptionError(pass_name, f"cannot read options at {text[position:].strip()!r}; write name=value")
        value = match["value"]
        if value is not None and len(value) >= 2 and value[0] in "'\"[{":
            value = value[1:-1]
        result.append((match["key"], value))
        position = match.end()
    return result


def _unwrap_optional(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (Union, types.UnionType):
        arguments = [a for a in typing.get_args(kind) if a is not type(None)]
        if len(arguments) == 1:
            return arguments[0], len(arguments) < len(typing.get_args(kind))
    return kind, False


def _element(kind: Any) -> Any | None:
    """The element type of ``list[T]`` or ``tuple[T, ...]``; None for another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and arguments:
        return arguments[0]
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0]
    return None


def _supported(kind: Any) -> bool:
    kind, _ = _unwrap_optional(kind)
    element = _element(kind)
    if element is not None:
        kind = element
    return kind in (bool, int, float, str) or typing.get_origin(kind) is Literal


def _accepts_bool(kind: Any) -> bool:
    return _unwrap_optional(kind)[0] is bool


def _type_name(kind: Any) -> str:
    kind, optional = _unwrap_optional(kind)
    if optional:
        return f"{_type_name(kind)}|none"
    if typing.get_origin(kind) is Literal:
        return "|".join(str(a) for a in typing.get_args(kind))
    element = _element(kind)
    return f"list[{_type_name(element)}]" if element is not None else kind.__name__


def _convert(kind: Any, text: str) -> Any:
    kind, optional = _unwrap_optional(kind)
    if optional and text == "none":
        return None
    element = _element(kind)
    if element is not None:
        parts = [p for p in re.split(r"[,\s]+", text.strip()) if p]
        values = [_convert(element, p) for p in parts]
        return values if typing.get_origin(kind) is list else tuple(values)
    if typing.get_origin(kind) is Literal:
        for choice in typing.get_args(kind):
            if str(choice) == text:
                return choice
        raise ValueError(text)
    if kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(text)
        return text.lower() in _TRUE
    return kind(text)


def format_value(value: Any) -> str:
    """An option's value as pipeline text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(format_value(v) for v in cast(Sequence[Any], value))
    text = repr(value) if isinstance(value, float) else str(value)
    return f"'{text}'" if text == "" or re.search(r"[\s{}\[\]]", text) else text


@functools.lru_cache(maxsize=256)
def _field_texts(cls: type[Pass]) -> dict[str, str]:
    """What stands behind the fields: a string in the lines below one, or a comment in its line."""
    result: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not issubclass(base, Pass) or base is Pass:
            continue
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):
            continue
        lines = source.splitlines()
        (definition,) = ast.parse(source).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise([*definition.body, ast.Pass()]):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            comment = re.search(r"#:?\s*(.*)$", lines[(field.end_lineno or field.lineno) - 1][field.end_col_offset :])
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    result[field.target.id] = " ".join(text.split())
                case _ if comment:
                    result[field.target.id] = comment[1].strip()
                case _:
                    pass
    return result
