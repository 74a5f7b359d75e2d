# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The limits of the CPU's schedules: which files there are, and who reads them (test/lowering/test_rules.py: how)."""

from dataclasses import replace

import pytest

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import MatmulProblem, choose_schedule
from kiln.lowering.cpu.rules import FOLDER, OF_ALL, rules_for, rules_of


def test_each_file_is_a_group() -> None:
    read = [*rules_of(64).__dataclass_fields__, *OF_ALL]
    assert sorted(path.stem for path in FOLDER.glob("*.toml")) == sorted(read)
    assert all(type(rules_for(class_)) is class_ for class_ in OF_ALL.values())


def test_schedules_read_them_through_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = isa.other("x86-64-v3")
    problem = MatmulProblem((), 12, 768, 768, (768, 1), (1, 768))
    assert choose_schedule(problem, cpu, vendor=False).kernel == "cpu.gemm.dot"
    rules = rules_of(32)
    fewer = replace(rules, products=replace(rules.products, dot_rows=11))
    monkeypatch.setattr(isa, "rules_of", lambda _: fewer)
    assert choose_schedule(problem, cpu, vendor=False).kernel == "cpu.gemm.blocked"
