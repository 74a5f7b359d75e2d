# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every comment that silences a checker names the rule and says why: ``# noqa: F401 - it registers the kernels``."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("frontend", "dialects", "passes", "lowering", "runtime", "tools", "test", "benchmarks")

_SILENCES = re.compile(r"#\s*(type:\s*ignore|noqa|pyright:)")
_EXPLAINED = re.compile(r"#\s*((type|pyright): ignore\[[\w, -]+\]|noqa: [A-Z]+\d+(, [A-Z]+\d+)*)( - \S.*|(?=  #))")


def unexplained(text: str) -> list[str]:
    """The lines of a source that silence a checker without a rule or a reason."""
    found = []
    for line in text.splitlines():
        if len(_EXPLAINED.findall(line)) < len(_SILENCES.findall(line)):
            found.append(line.strip())
    return found


def test_each_suppression_has_a_rule_and_a_reason():
    sources = [*ROOT.glob("kiln/*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    sources.remove(Path(__file__))  # it has examples of comments
    assert len(sources) > 1000
    silent = {str(path.relative_to(ROOT)): lines for path in sources if (lines := unexplained(path.read_text()))}
    assert silent == {}


def test_lines_without_a_rule_or_a_reason_are_found():
    for comment in ("type: ignore", "type: ignore[index]", "noqa", "noqa: E501", "noqa - a reason", "pyright: basic"):
        assert unexplained(f"x = 1  # {comment}") == [f"x = 1  # {comment}"]
    for comment in (
        "type: ignore[index] - has been checked",
        "noqa: E501, S102 - text",
        "pyright: ignore[reportX] - y",
    ):
        assert unexplained(f"x = 1  # {comment}") == []
