# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dataclasses of plain values to JSON and back, by the types of their fields."""

import dataclasses
import typing
from typing import Any

__all__ = ["decode", "encode"]


def encode(value: Any) -> Any:
    """A dataclass (numbers, strings, None, and lists, tuples, dicts and dataclasses of those) as values of JSON."""
    if dataclasses.is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return [[k, encode(v)] for k, v in sorted(value.items())]
    return value


def decode(type_: Any, value: Any) -> Any:
    """Inverse of `encode` for a value of type `type_`. Raises TypeError, KeyError or ValueError for other JSON.

    Of a union of dataclasses the one with the value's fields is taken; where they have a field `step`, the one whose
    default it is.
    """
    if value is None or type_ in (int, str, bool, float, Any):
        return value
    origin, arguments = typing.get_origin(type_), list(typing.get_args(type_))
    if origin is list:
        return [decode(arguments[0], v) for v in value]
    if origin is tuple:
        kinds = arguments if len(arguments) > 1 and arguments[1] is not ... else [arguments[0]] * len(value)
        return tuple(decode(kind, v) for kind, v in zip(kinds, value, strict=True))
    if origin is dict:
        return {k: decode(arguments[1], v) for k, v in value}
    if dataclasses.is_dataclass(type_):
        return type_(**{f.name: decode(f.type, value[f.name]) for f in dataclasses.fields(type_)})  # type: ignore[misc]
    inner = [a for a in arguments if a is not type(None)]
    if len(inner) == 1:  # X | None
        return decode(inner[0], value)
    for kind in inner:
        if dataclasses.is_dataclass(kind) and isinstance(value, dict) and _is_of(kind, value):
            return decode(kind, value)
    return value


def _is_of(kind: Any, value: dict[str, Any]) -> bool:
    own = {f.name: f.default for f in dataclasses.fields(kind)}
    return own.keys() == value.keys() and value.get("step") == own.get("step")
