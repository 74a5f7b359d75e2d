# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/op-conversion.md works as written: what is printed, what the rules compute, its commands."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forked_python
import pytest
import torch

import kiln
from kiln.passes.torch_to_kiln import registry
from kiln.passes.torch_to_kiln.context import LoweringContext

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "op-conversion.md"
J0 = "torch.aten.special_spherical_bessel_j0"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


REPORT, RULE, SECOND_RULE, TEST_CASES = blocks("python")


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of the page's rules, which hold for one test."""
    registry.load_rules()
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))
    monkeypatch.setenv("KILN_CACHE", "0")
    monkeypatch.syspath_prepend(ROOT / "test" / "passes" / "convert_torch_to_kiln")
    torch._dynamo.reset()
    names: dict[str, Any] = {"torch": torch}
    exec(compile(RULE + SECOND_RULE + TEST_CASES, str(PAGE), "exec"), names)
    yield names
    torch._dynamo.reset()


def decisions(fn: Any, x: torch.Tensor) -> dict[str, tuple[str, str]]:
    with torch.no_grad():
        found = kiln.explain(fn, x)
    return {d.op: (d.way, d.reason) for graph in found.graphs for d in graph.decisions}


def test_the_report_is_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    exec(REPORT, {})
    promised = re.findall(r"^prints\n\n```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert capsys.readouterr().out == promised[0]


def test_the_rule_is_taken(rules: dict[str, Any]) -> None:
    way, reason = decisions(lambda x: 2 * torch.special.spherical_bessel_j0(x) + 1, torch.randn(4, 8))[J0]
    assert (way, reason) == ("kiln", "")


def test_a_refusal_is_in_the_report(rules: dict[str, Any]) -> None:
    found = decisions(lambda x: torch.special.chebyshev_polynomial_t(x, 9), torch.randn(4))
    ((way, reason),) = found.values()
    assert way == "aten" and reason.startswith("degree 9 is not between 1 and 6: ATen has another formula")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_numbers_are_eagers(rules: dict[str, Any], dtype: torch.dtype) -> None:
    for case in rules["CASES"][:2]:
        x = case.inputs[0].to(dtype)
        actual = torch.compile(case.fn, backend="kiln", options={"fallback": False})(x)
        expected = case.fn(x.double())  # in bf16 the result is rounded once
        tolerance = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 8e-3}[dtype]
        torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_the_cases_go_the_ways_that_they_name(rules: dict[str, Any]) -> None:
    for case in rules["CASES"]:
        assert {way for way, _ in decisions(case.fn, case.inputs[0]).values()} == set(case.ways)


@pytest.mark.parametrize("arguments", [shlex.split(line)[1:] for line in blocks("sh")[0].splitlines()], ids=" ".join)
def test_commands(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "special_functions.py").write_text(RULE)
    (tmp_path / "in.mlir").write_text(blocks("mlir")[0])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "kiln.tools.kiln_opt", *arguments]
    done = forked_python.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "math.sin" in done.stdout and "kiln.aten" not in done.stdout


def test_the_builders_are_there() -> None:
    (table,) = re.findall(r"^\| need \| use \|\n(.*?)\n\n", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    used = re.findall(r"cx\.(\w+)\(", table)
    assert len(used) >= 15 and all(hasattr(LoweringContext, name) for name in used)
    assert (ROOT / "passes" / "torch_to_kiln" / "scan.py").exists()
