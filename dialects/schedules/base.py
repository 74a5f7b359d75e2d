# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What schedules have in common: how one is written as a dictionary, read back, and checked.

A schedule is a frozen dataclass. Its text is a dictionary with the entry ``kernel`` and one entry for each field whose
value is not the default. The types of the fields say what is allowed: `Positive`, `PowerOfTwo`, a `Literal`, another
schedule. A class of its own, and so a kernel of its own, needs no more than its fields::

    @dataclass(frozen=True, kw_only=True)
    class MineSchedule(Schedule, kernel="cpu.mine"):
        rows: Positive
        unroll: Literal[1, 2, 4] = 1
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from torch_mlir import ir

__all__ = [
    "InvalidSchedule",
    "Natural",
    "PartsSchedule",
    "Positive",
    "PowerOfTwo",
    "Schedule",
    "field_texts",
    "from_attribute",
    "from_plain",
    "from_plain_attribute",
    "kernels",
    "pieces",
    "to_attribute",
    "to_plain",
    "to_plain_attribute",
]


class InvalidSchedule(ValueError):
    """An entry that no schedule has; `what`, `expected` and `found` as in a verifier's message."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        super().__init__(f"{what}: expected {expected}, found {found}")
        self.what, self.expected, self.found = what, expected, found


@dataclass(frozen=True)
class AtLeast:
    """Allows integers from `least` on."""

    least: int

    def allows(self, value: Any) -> bool:
        """Whether a field may have this value."""
        return value >= self.least

    def __str__(self) -> str:
        return f"an integer of at least {self.least}"


@dataclass(frozen=True)
class IsPowerOfTwo:
    """Allows 1, 2, 4, ..."""

    def allows(self, value: Any) -> bool:
        """Whether a field may have this value."""
        return value > 0 and value & (value - 1) == 0

    def __str__(self) -> str:
        return "a power of two"


Natural = Annotated[int, AtLeast(0)]
Positive = Annotated[int, AtLeast(1)]
PowerOfTwo = Annotated[int, IsPowerOfTwo()]

_BY_KERNEL: dict[str, type["Schedule"]] = {}


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How one kernel is tiled, vectorised and pipelined. Subclasses with a `kernel` stand for themselves in text; those
    without are parts of others.
    """

    kernel: ClassVar[str] = ""
    """The kernel's name in text: target, what it computes, how."""
    how: ClassVar[str] = ""
    """The last part of that name."""

    def __init_subclass__(cls, kernel: str = "") -> None:
        super().__init_subclass__()
        cls.kernel, cls.how = kernel, kernel.split(".")[-1]
        if kernel:
            _BY_KERNEL[kernel] = cls

    def check(self) -> None:
        """Raise `InvalidSchedule` where fields contradict each other; each by itself is checked by its type."""


@dataclass(frozen=True, kw_only=True)
class PartsSchedule(Schedule, kernel="parts"):
    """Of a fusion of several parts: a schedule for each, None for a part whose layouts alone give the loops."""

    parts: tuple[Schedule | None, ...]


def kernels() -> Mapping[str, type[Schedule]]:
    """The classes of all schedules by the name of their kernel."""
    return dict(sorted(_BY_KERNEL.items()))


def pieces(of: type[Schedule] = Schedule) -> list[type[Schedule]]:
    """The classes that stand in other schedules only, and have no name."""
    below = [each for class_ in of.__subclasses__() for each in pieces(class_)]
    return below if of.kernel or of is Schedule or _variants(of) else [of, *below]


# ------------------------------------------------------------------------------------------------------ plain values


def to_plain(value: Any) -> Any:
    """A schedule as a dictionary of ints, bools, strings, floats, lists and such dictionaries, as JSON has them."""
    if value is None:
        return {}
    if isinstance(value, tuple):
        return [to_plain(v) for v in cast(tuple[Any, ...], value)]
    if not isinstance(value, Schedule):
        return value
    entries: dict[str, Any] = {"kernel": value.kernel} if value.kernel else {}
    for field in fields(value):
        own = getattr(value, field.name)
        if field.default is MISSING or own != field.default:
            entries[field.name] = to_plain(own)
    return entries


def from_plain(value: Any, expected: type[Schedule] = Schedule) -> Schedule:
    """The inverse of `to_plain`. Raises `InvalidSchedule` for the first entry that is wrong."""
    return _schedule(expected, value, "schedule")


def _schedule(class_: type[Schedule], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidSchedule(where, "a dictionary", _text(value))
    entries = dict(cast(dict[str, Any], value))
    if class_.kernel or class_ is Schedule or _variants(class_):
        kernel = entries.pop("kernel", None)
        found = _BY_KERNEL.get(kernel) if isinstance(kernel, str) else None
        if found is None or not issubclass(found, class_):
            allowed = [name for name, each in kernels().items() if issubclass(each, class_)]
            raise InvalidSchedule(f"{where} field 'kernel'", f"one of {', '.join(allowed)}", _text(kernel))
        class_ = found
    return _filled(class_, entries, where)


def _filled(class_: type[Schedule], entries: dict[str, Any], where: str) -> Schedule:
    """A schedule of one class from its fields' plain values."""
    types, values = _types(class_), dict[str, Any]()
    place = f"{where} {class_.kernel}" if class_.kernel else where
    for name in entries:
        if name not in types:
            raise InvalidSchedule(f"{place} field '{name}'", f"one of {', '.join(types)}", _text(entries[name]))
    for field in fields(class_):
        what = f"{place} field '{field.name}'"
        if field.name in entries:
            values[field.name] = _value(types[field.name], entries[field.name], what)
        elif field.default is MISSING:
            raise InvalidSchedule(what, _allowed(types[field.name]), "nothing")
    made = class_(**values)
    try:
        made.check()
    except InvalidSchedule as error:
        raise InvalidSchedule(f"{place} field '{error.what}'", error.expected, error.found) from None
    return made


def _value(type_: Any, value: Any, what: str) -> Any:
    """A field's value, of the type that its annotation says."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        found = _plain(arguments[0], value)
        if found is not None and all(rule.allows(found) for rule in arguments[1:]):
            return found
    elif origin is Literal:
        if any(value == x and type(value) is type(x) for x in arguments):
            return value
    elif origin is tuple:
        if isinstance(value, list):
            return tuple(_value(arguments[0], x, f"{what} [{i}]") for i, x in enumerate(cast(list[Any], value)))
    elif origin in (Union, UnionType):
        return _one_of(arguments, value, what)
    elif isinstance(type_, type) and issubclass(type_, Schedule):
        return _schedule(type_, value, what)
    elif _plain(type_, value) is not None:
        return value
    raise InvalidSchedule(what, _allowed(type_), _text(value))


def _one_of(types: tuple[Any, ...], value: Any, what: str) -> Any:
    """The value of a field of several types, of which at most one is no schedule."""
    others = [x for x in types if x is not type(None)]
    if type(None) in types and value == {}:
        return None
    if len(others) == 1:
        return _value(others[0], value, what)
    found = _schedule(Schedule, value, what)
    if not isinstance(found, tuple(others)):
        raise InvalidSchedule(f"{what} field 'kernel'", " or ".join(map(_allowed, others)), _text(found.kernel))
    return found


def _plain(type_: Any, value: Any) -> Any:
    """`value` if it is an int, bool, str or float as the type says; a bool is no int."""
    return value if type(value) is type_ else None


def _allowed(type_: Any) -> str:
    """What a field may hold, for people."""
    origin, arguments = get_origin(type_), get_args(type_)
    if origin is Annotated:
        return " and ".join(map(str, arguments[1:]))
    if origin is Literal:
        return f"one of {', '.join(map(_text, arguments))}"
    if origin is tuple:
        return f"a list, each {_allowed(arguments[0])}"
    if origin in (Union, UnionType):
        return " or ".join(_allowed(x) for x in arguments if x is not type(None))
    if isinstance(type_, type) and issubclass(type_, Schedule):
        return type_.kernel or ("a schedule" if _variants(type_) else f"a {type_.__name__}")
    words: dict[Any, str] = {int: "an integer", bool: "true or false", str: "a string", float: "a number"}
    return words.get(cast(Any, type_), str(cast(Any, type_)))


def _text(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, (bool, str)):
        return f'"{value}"' if isinstance(value, str) else str(value).lower()
    return str(value)


def field_texts(class_: type[Schedule]) -> list[tuple[str, str, str]]:
    """Name, allowed values and default of each field, for people; the default is empty where there is none."""
    return [
        (field.name, _allowed(_types(class_)[field.name]), "" if field.default is MISSING else _text(field.default))
        for field in fields(class_)
    ]


@cache
def _types(class_: type[Schedule]) -> dict[str, Any]:
    hints = get_type_hints(class_, include_extras=True)
    return {field.name: hints[field.name] for field in fields(class_)}


def _variants(class_: type[Schedule]) -> bool:
    """Whether kernels are named by subclasses of a class without a name."""
    return any(issubclass(each, class_) for each in _BY_KERNEL.values())


# -------------------------------------------------------------------------------------------------------- attributes


def to_attribute(schedule: Schedule) -> ir.DictAttr:
    """A schedule as the attribute of a fusion."""
    return ir.DictAttr(to_plain_attribute(to_plain(schedule)))


def from_attribute(attribute: ir.Attribute) -> Schedule:
    """The inverse of `to_attribute`. Raises `InvalidSchedule`, naming the first entry that is wrong."""
    return from_plain(from_plain_attribute(attribute))


def to_plain_attribute(value: Any) -> ir.Attribute:
    """Ints, floats, bools, strings, lists and dictionaries of them as an attribute."""
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F64Type.get(), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, (list, tuple)):
        return ir.ArrayAttr.get([to_plain_attribute(v) for v in cast(Sequence[Any], value)])
    return ir.DictAttr.get({name: to_plain_attribute(v) for name, v in sorted(value.items())})


def from_plain_attribute(attribute: ir.Attribute) -> Any:
    """The inverse of `to_plain_attribute`; another attribute stays as it is, and is no value of any field."""
    if isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, ir.ArrayAttr):
        return [from_plain_attribute(a) for a in attribute]
    if isinstance(attribute, ir.DictAttr):
        return {named.name: from_plain_attribute(named.attr) for named in attribute}
    return attribute
