# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the executor does like a GPU, where a CPU would be kinder: settings of the target ``tt-cpu``."""

from dataclasses import dataclass, fields
from typing import Any

from kiln.errors import BackendOptionError

__all__ = ["DEFAULTS", "ORDERS", "Settings"]

ORDERS = ("shuffled", "reversed", "forward")
_MOST_TOGETHER = 256
"""Each program under way has memory of its own."""


@dataclass(frozen=True)
class Settings:
    """bounds: each access is compared with its buffer, and one outside is an error in place of an access.
    poison: results and scratch memory hold NaN (all bits set) before a kernel runs.
    approximate: approximate instructions have an error as large as documented (`approximate.py`), and some sums are
        contracted (`contractions.py`).
    order, seed: in which order the programs of a grid run. together: how many programs of a kernel with atomics are
    under way at the same time, in the order "shuffled" (`interleave.py`); 1: each runs to its end.
    """

    bounds: bool = True
    poison: bool = True
    approximate: bool = True
    order: str = "shuffled"
    seed: int = 0
    together: int = 8

    @classmethod
    def parse(cls, text: str) -> "Settings":
        """From `"order=reversed seed=3 bounds=off"`; what is not named has its default.

        Raises BackendOptionError for another name or value.
        """
        values: dict[str, Any] = {}
        known = {f.name: f for f in fields(cls)}
        for item in text.replace(",", " ").split():
            name, equals, value = item.partition("=")
            if name not in known or not equals:
                raise BackendOptionError(f"tt_cpu: found {item!r}, expected name=value", name, known)
            values[name] = _value(name, value)
        return cls(**values)

    def __str__(self) -> str:
        """What `parse` reads: the settings that are no defaults."""
        changed = [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) != f.default]
        return " ".join(f"{name}={_SWITCH[value] if isinstance(value, bool) else value}" for name, value in changed)


_SWITCH = {True: "on", False: "off"}
_SWITCHED = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


def _value(name: str, text: str) -> Any:
    if name == "order":
        if text not in ORDERS:
            raise BackendOptionError(f"tt_cpu: order {text!r}; orders are {', '.join(ORDERS)}", text, ORDERS)
        return text
    if name in ("seed", "together"):
        if not text.isdecimal() or name == "together" and not 0 < int(text) <= _MOST_TOGETHER:
            expected = "a whole number" if name == "seed" else f"a number from 1 to {_MOST_TOGETHER}"
            raise BackendOptionError(f"tt_cpu: {name} must be {expected}, found {text!r}")
        return int(text)
    if text not in _SWITCHED:
        raise BackendOptionError(f"tt_cpu: {name} must be on or off, found {text!r}")
    return _SWITCHED[text]


DEFAULTS = Settings()
