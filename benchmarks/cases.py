# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is measured: whole models, and small graphs of which each is one or a few kernels."""

from benchmarks.case import Case
from benchmarks.micro_cases import MICRO_CASES
from benchmarks.model_cases import MODEL_CASES

__all__ = ["CASES", "Case", "select"]

CASES = {case.name: case for case in [*MODEL_CASES, *MICRO_CASES]}


def select(names: list[str]) -> list[Case]:
    """Cases by name, by a prefix of names, or by group ("model", "micro"); all for no names.

    Raises:
        KeyError: a name that nothing begins with.
    """
    chosen: dict[str, Case] = {}
    for wanted in names or ["model", "micro"]:
        found = {n: c for n, c in CASES.items() if wanted == c.group or n.startswith(wanted)}
        if not found:
            raise KeyError(wanted)
        chosen |= {wanted: CASES[wanted]} if wanted in CASES else found
    return list(chosen.values())
