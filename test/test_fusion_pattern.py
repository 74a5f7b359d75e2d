# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/fusion-pattern.md works as written: what it prints, how many kernels there are, the numbers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import kiln
from kiln.frontend.report.explain import Explanation

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fusion-pattern.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture
def page() -> Iterator[dict[str, Any]]:
    """The names that the page's code defines, after it ran."""
    torch._dynamo.reset()
    with kiln.patterns.scope():
        names: dict[str, Any] = {}
        exec(compile("\n".join(blocks("python")), str(PAGE), "exec"), names)
        yield names
    torch._dynamo.reset()


def kinds(found: Explanation) -> list[str]:
    return sorted(kernel.kind for graph in found.graphs for kernel in graph.kernels for _ in range(kernel.launches))


def test_it_prints_what_the_page_says(capsys: pytest.CaptureFixture[str], page: dict[str, Any]) -> None:
    promised = re.findall(r"^prints\n\n```\n(.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(promised) == 1
    assert capsys.readouterr().out.splitlines() == ["['attention', 'matmul']", *promised[0].splitlines()]


def test_kernels_with_and_without_the_pattern(page: dict[str, Any]) -> None:
    model, x = page["model"], page["x"]
    with torch.no_grad():
        found = kiln.explain(model, x)
        assert kinds(found) == ["attention", "matmul"]
        assert found.graphs[0].rewrites == {"attention-by-exp": 1}
        kiln.patterns.unregister("attention-by-exp")
        without = kiln.explain(model, x)
        assert len(kinds(without)) == 3 and "attention" not in kinds(without)


def test_numbers_are_eagers(page: dict[str, Any]) -> None:
    """Other sizes than those of the page and of the examples, against float64."""
    model, pattern = page["model"], page["pattern"]
    with torch.no_grad():
        x = torch.randn(3, 17, 32)
        actual = torch.compile(model, backend="kiln", options={"fallback": False})(x)
        torch.testing.assert_close(actual.double(), model.double()(x.double()), rtol=1e-5, atol=1e-5)
        q, kt, v = torch.randn(1, 5, 9, 16), torch.randn(1, 5, 16, 33), torch.randn(1, 5, 33, 16)
        actual = torch.compile(pattern, backend="kiln", options={"fallback": False})(q, kt, v, 0.2)
        torch.testing.assert_close(
            actual.double(), pattern(q.double(), kt.double(), v.double(), 0.2), rtol=1e-5, atol=1e-5
        )


def test_it_is_as_short_as_it_says() -> None:
    code = [line for line in blocks("python")[0].splitlines() if line.strip() and not line.startswith("import")]
    assert len(code) <= 20
