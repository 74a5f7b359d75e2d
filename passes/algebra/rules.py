# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a rule of algebra is, and the table of all rules."""

import enum
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from .expressions import Match, NoMatch, Pattern, parse

__all__ = ["NoMatch", "Rule", "Safety", "all_rules", "row", "rule"]

Rewrite = Callable[[Match], ir.Value]

#: The tables, in the order of the documentation.
TABLES = (
    "identities",
    "inverses",
    "powers",
    "comparisons",
    "selection",
    "views",
    "concatenations",
    "casts",
    "reductions",
    "products",
)


class Safety(enum.Enum):
    """What a rule does to floating-point results."""

    EXACT = "exact"
    """The same bits for every input, NaN, Inf and the sign of zeros included."""
    INTEGER = "exact for integers"
    """Exact for integers and booleans; for floating point applied under ``fast_math`` only."""
    FAST = "fast_math"
    """Applied under ``fast_math`` only."""


@dataclass(frozen=True)
class Rule:
    """One rule: ``before`` and ``after`` as expressions; ``rewrite`` where ``after`` needs computing."""

    name: str
    before: str
    after: str
    safety: Safety
    why: str
    table: str
    pattern: Pattern
    replacement: Pattern | None
    rewrite: Rewrite | None = None

    def allowed(self, match: Match, fast_math: bool) -> bool:
        """Whether the rule may be applied to this match."""
        if self.safety is Safety.EXACT or fast_math:
            return True
        return self.safety is Safety.INTEGER and match.is_integral

    def apply(self, match: Match) -> ir.Value:
        """The value that takes the root's place. Raises NoMatch with the reason where the rule does not apply."""
        if self.rewrite is not None:
            return self.rewrite(match)
        assert self.replacement is not None
        return match.instantiate(self.replacement)


_RULES: dict[str, Rule] = {}


def _add(entry: Rule) -> None:
    if entry.name in _RULES:
        raise ValueError(f"two rules of algebra are named {entry.name!r}")
    _RULES[entry.name] = entry


def row(name: str, before: str, after: str, safety: Safety, why: str, table: str) -> None:
    """Add a rule that is wholly said by two expressions."""
    _add(Rule(name, before, after, safety, why, table, parse(before), parse(after)))


def rule(name: str, before: str, after: str, safety: Safety, why: str, table: str) -> Callable[[Rewrite], Rewrite]:
    """Decorator: add a rule whose condition or result is computed by the function."""

    def register(rewrite: Rewrite) -> Rewrite:
        _add(Rule(name, before, after, safety, why, table, parse(before), None, rewrite))
        return rewrite

    return register


def all_rules() -> list[Rule]:
    """Every rule, table by table."""
    for table in TABLES:
        importlib.import_module(f"{__package__}.{table}")
    return sorted(_RULES.values(), key=lambda entry: TABLES.index(entry.table))


def by_op(rules: list[Rule]) -> dict[str, list[Rule]]:
    """Name of the root op -> the rules that may match there, in their order."""
    table: dict[str, list[Rule]] = {}
    for entry in rules:
        for name in entry.pattern.roots:
            table.setdefault(name, []).append(entry)
    return table
