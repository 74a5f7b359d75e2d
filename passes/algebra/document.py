# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``docs/algebra.md`` from the rules: ``python -m kiln.passes.algebra.document > docs/algebra.md``."""

from kiln.passes.algebra.rules import TABLES, Safety, all_rules

__all__ = ["document"]

_HEAD = """<!-- Written by `python -m kiln.passes.algebra.document` from the rules. Do not edit. -->

# Algebraic simplification

`simplify-algebra` rewrites the torch dialect by the rules below until none applies. What eager's result looks like
never changes: a rule is not applied where the sizes (broadcasting), the element type (promotion), the strides that
a user depends on, or what shares memory with what would become others. `kiln-opt --remarks` tells where and why a
rule that matched was not applied, `--statistics` how often each was.

Safety of a rule for floating point:

| safety | meaning |
|---|---|
| exact | the same bits for every input: NaN, Inf and the sign of zeros included |
| exact for integers | applied to integers and booleans; to floating point with `options={"fast_math": True}` only |
| fast_math | applied with `options={"fast_math": True}` only |
"""


def document() -> str:
    """The text of the page."""
    rules = all_rules()
    parts = [_HEAD]
    for table in TABLES:
        parts.append(f"\n## {table.capitalize()}\n\n| rule | before | after | safety | why |\n|---|---|---|---|---|\n")
        parts += [
            f"| `{r.name}` | `{r.before}` | `{r.after}` | {r.safety.value} | {r.why} |\n"
            for r in rules
            if r.table == table
        ]
    assert {entry.safety for entry in rules} <= set(Safety)
    return "".join(parts)


if __name__ == "__main__":
    print(document(), end="")
