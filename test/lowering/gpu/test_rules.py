# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits of the GPU's schedules: which files there are, and who reads them (test/lowering/test_rules.py: how)."""

from dataclasses import replace

import pytest

from kiln.lowering.gpu import rules, schedule
from kiln.lowering.gpu.dot.measured import FOLDER

TABLES = ("attention", "convolution", "matmul")
"""Choices between a kernel and a library: `dot/measured.py` reads them."""


def test_each_file_is_a_group_or_a_table() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.toml")) == sorted([*TABLES, *rules.RULES])
    assert all(type(rules.rules_for(class_)) is class_ for class_ in rules.RULES.values())


@pytest.mark.parametrize(
    ("length", "parts"),
    [(392, 1), (784, 12), (1568, 24)],  # 6, 12 and 24 steps, as measured: "sums of columns in one kernel or in parts"
)
def test_columns_are_split_from_8_steps_on(length: int, parts: int) -> None:
    assert schedule.reduction_parts(256, length, 256, 132) == parts


def test_schedules_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = replace(rules.rules_for(rules.LoopRules), few_steps=6)
    monkeypatch.setattr(schedule, "rules_for", lambda _: fewer)
    assert schedule.reduction_parts(256, 392, 256, 132) == 6
