# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dataclasses of plain values to JSON and back, by the types of their fields."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Sequence
from typing import Any, cast

__all__ = ["decode", "encode"]


def encode(value: Any) -> Any:
    """A dataclass (numbers, strings, None, and lists, tuples, dicts and dataclasses of those) as values of JSON."""
    if dataclasses.is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        return [[k, encode(v)] for k, v in sorted(cast(dict[Any, Any], value).items())]
    return value


def decode(type_: Any, value: Any) -> Any:
    """Inverse of `encode` for a value of type `type_`. Raises TypeError, KeyError or ValueError for other JSON.

    Of a union of dataclasses the one with the value's fields is taken; where they have a field `step`, the one whose
    default it is.
    """
    return _applied(_decoder(type_), value)


Decoder = Callable[[Any], Any]


def _applied(decoder: Decoder | None, value: Any) -> Any:
    return value if decoder is None or value is None else decoder(value)


@functools.cache
def _decoder(type_: Any) -> Decoder | None:
    """What decodes values of a type other than None; None where they stay as they are.

    Types are looked at once, since a plan has thousands of values of few types.
    """
    if type_ in (int, str, bool, float, Any):
        return None
    origin, arguments = typing.get_origin(type_), list(typing.get_args(type_))
    if origin is list:
        item = _decoder(arguments[0])
        return list if item is None else lambda value: [_applied(item, v) for v in value]
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin is dict:
        kept = _decoder(arguments[1])
        return lambda value: {k: _applied(kept, v) for k, v in value}
    if dataclasses.is_dataclass(type_):
        return _dataclass_decoder(type_)
    inner = [a for a in arguments if a is not type(None)]
    if len(inner) == 1:  # X | None
        return _decoder(inner[0])
    kinds = [kind for kind in inner if dataclasses.is_dataclass(kind)]

    def decode_union(value: Any) -> Any:
        for kind in kinds:
            if isinstance(value, dict) and _is_of(kind, cast(dict[str, Any], value)):
                return _applied(_decoder(kind), value)
        return cast(Any, value)

    return decode_union if kinds else None


def _tuple_decoder(arguments: list[Any]) -> Decoder:
    if len(arguments) > 1 and arguments[1] is not ...:
        items = [_decoder(kind) for kind in arguments]
        return lambda value: tuple(_applied(item, v) for item, v in zip(items, value, strict=True))
    item = _decoder(arguments[0])
    return tuple if item is None else lambda value: tuple([_applied(item, v) for v in value])


def _dataclass_decoder(type_: Any) -> Decoder:
    fields = [(f.name, _decoder(f.type)) for f in dataclasses.fields(type_)]
    plain = [name for name, decoder in fields if decoder is None]
    others = [(name, decoder) for name, decoder in fields if decoder is not None]

    def decode_dataclass(value: Any) -> Any:
        values = {name: value[name] for name in plain}
        for name, decoder in others:
            found = value[name]
            values[name] = None if found is None else decoder(found)
        return type_(**values)

    return decode_dataclass


def _is_of(kind: Any, value: dict[str, Any]) -> bool:
    names, step = _shape(kind)
    return names == value.keys() and value.get("step") == step


@functools.cache
def _shape(kind: Any) -> tuple[set[str], Any]:
    """Names of a dataclass's fields, and the default of `step`."""
    own = {f.name: f.default for f in dataclasses.fields(kind)}
    return set(own), own.get("step")
