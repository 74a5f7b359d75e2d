# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The table of lowering rules: torch op name -> rule.

A rule is registered under the name of the op in the torch dialect (``torch.aten.add.Tensor``; the default overload has
no suffix) or, for ``torch.operator``, under its ``name`` attribute, which has the same form.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from torch_mlir import ir

from kiln import entry_points

if TYPE_CHECKING:
    from .context import LoweringContext

__all__ = ["Rule", "find_rule", "load_rules", "lowers", "outside_rules"]

# A rule returns the builtin value of each result (a single one may come bare); None stands for a result without uses.
Rule = Callable[["LoweringContext"], "ir.Value | Sequence[ir.Value | None]"]

R = TypeVar("R", bound=Rule)

_RULES: dict[str, Rule] = {}
_loaded = False


def lowers(*names: str) -> Callable[[R], R]:
    """Decorator: use the function for the torch ops ``names``.

    ``@lowers("torch.aten.relu")``. Raises ``ValueError`` for a name that has a rule already.
    """

    def register(rule: R) -> R:
        for name in names:
            other = _RULES.get(name)
            if other is not None and other is not rule:
                raise ValueError(f"{name} is lowered by both {other.__module__} and {rule.__module__}")
            _RULES[name] = rule
        return rule

    return register


def load_rules() -> None:
    """Import every module of this package, once."""
    global _loaded
    if _loaded:
        return
    package = importlib.import_module(__package__ or "")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        importlib.import_module(f"{package.__name__}.{info.name}")
    entry_points.load(entry_points.LOWERINGS)  # which registers them
    _loaded = True


def outside_rules() -> list[tuple[str, Rule]]:
    """The rules that are no part of Kiln, by name: what conversions depend on beside Kiln's source."""
    if entry_points.is_named(entry_points.LOWERINGS):
        load_rules()
    own = f"{__package__}."
    return sorted(item for item in _RULES.items() if not str(item[1].__module__).startswith(own))


def find_rule(name: str) -> Rule | None:
    """The rule for the op ``name``, or None."""
    load_rules()
    return _RULES.get(name)
