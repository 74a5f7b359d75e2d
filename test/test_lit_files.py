# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Mistakes in lit files that lit and filecheck do not report themselves."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".mlir", ".test", ".lit.py")

# A directive is a prefix, maybe a kind, and a colon, after a comment or at the start of a .test line.
_DIRECTIVE = re.compile(
    r"^\s*(?://|#|;)*\s*(?P<prefix>[A-Z][A-Z0-9_-]*?)(?:-(?P<kind>NEXT|NOT|DAG|LABEL|SAME|EMPTY|COUNT-\d+))?:(?P<text>.*)$"
)
_RUN = re.compile(r"\bRUN:\s*(.*)$")
_LIT_KEYWORDS = {"RUN", "REQUIRES", "UNSUPPORTED", "XFAIL", "DEFINE", "REDEFINE", "END", "NOTE", "TODO"}
_KNOWN_KINDS = re.compile(r"-(NEXT|NOT|DAG|LABEL|SAME|EMPTY|COUNT(-\d+)?)$")
# What the filecheck of PyPI lacks, and LLVM's has.
_FORBIDDEN = {
    r"\[\[#": "numeric variables ([[#X+1]], [[#@LINE]])",
    r"@LINE": "@LINE",
    r"--implicit-check-not": "--implicit-check-not",
    r"--dump-input": "--dump-input",
    r"\{(?:DAG|NEXT|NOT),": "modifier lists",
}


def lit_files() -> list[Path]:
    files = [p for p in sorted((ROOT / "test").rglob("*")) if p.name.endswith(SUFFIXES)]
    return [p for p in files if not {"Inputs", "Output", "__pycache__"} & set(p.relative_to(ROOT).parts)]


def lint(text: str) -> list[str]:
    """Complaints about one lit file."""
    runs = _run_lines(text)
    if not runs:
        return ["no RUN line"]
    complaints: list[str] = []
    prefixes: set[str] = set()
    for run in runs:
        if "kiln-opt" in run and "filecheck" not in run and "--verify-diagnostics" not in run and "-o " not in run:
            complaints.append(f"the output of {run!r} is checked by nothing")
        for command in re.split(r"\|(?!\|)|&&|;", run):
            if re.search(r"\bFileCheck\b", command):
                complaints.append("write filecheck (PyPI's), not FileCheck")
            if re.search(r"\bfilecheck\b", command):
                given = re.findall(r"--?check-prefix(?:es)?[= ](\S+)", command)
                prefixes |= {p for g in given for p in g.split(",")} or {"CHECK"}
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        for pattern, what in _FORBIDDEN.items():
            if re.search(pattern, line) and (_DIRECTIVE.match(line) or "RUN:" in line):
                complaints.append(f"line {number}: filecheck does not know {what}")
        match = _DIRECTIVE.match(line)
        if match is None or match["prefix"] in _LIT_KEYWORDS:
            continue
        prefix = match["prefix"]
        if prefix in prefixes:
            seen.add(prefix)
            if not match["text"].strip() and match["kind"] != "EMPTY":
                complaints.append(f"line {number}: an empty check")
        elif _looks_like_a_check(prefix, prefixes, line):
            complaints.append(f"line {number}: prefix {prefix!r} is used by no RUN line; it never runs")
    complaints += [f"no line has the prefix {p!r} of a RUN line" for p in sorted(prefixes - seen)]
    return complaints


def _run_lines(text: str) -> list[str]:
    """RUN lines with their continuations joined."""
    runs: list[str] = []
    continued = False
    for line in text.split("\n"):
        match = _RUN.search(line)
        if match is None:
            continue
        if continued:
            runs[-1] = runs[-1][:-1] + match[1].strip()
        else:
            runs.append(match[1].strip())
        continued = runs[-1].endswith("\\")
    return runs


def _looks_like_a_check(prefix: str, prefixes: set[str], line: str) -> bool:
    bare = _KNOWN_KINDS.sub("", prefix)
    stem = prefix.split("-")[0]
    # CHECK-NXT, CHEKC, or a prefix without its --check-prefix; plain words in prose have no directive form.
    return bool(line.lstrip().startswith(("//", "#")) or stem in prefixes or bare in prefixes)


@pytest.mark.parametrize("path", lit_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_lit_file(path: Path) -> None:
    assert lint(path.read_text(encoding="utf-8")) == []


def test_python_files_with_run_lines_are_found_by_lit() -> None:
    for path in sorted((ROOT / "test").rglob("*.py")):
        if "Inputs" not in path.parts and not path.name.endswith(".lit.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^# RUN:", text, re.M), f"{path}: lit runs .py files only if named *.lit.py"


RUN = "// RUN: kiln-opt %s | filecheck %s\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("func.func @f()\n", "no RUN line"),
        (RUN + "// CHECK: a\n// CHEKC: b\n", "line 3: prefix 'CHEKC' is used by no RUN line"),
        (RUN + "// CHECK: a\n// CHECK-NXT: b\n", "prefix 'CHECK-NXT'"),
        (RUN + "// CHECK: a\n// OTHER: b\n", "prefix 'OTHER'"),
        (RUN + "// CHECK: [[#X+1]]\n", "numeric variables"),
        (RUN + "// CHECK:\n", "an empty check"),
        (RUN, "no line has the prefix 'CHECK'"),
        (RUN.replace("filecheck", "FileCheck") + "// CHECK: a\n", "write filecheck"),
        ("// RUN: kiln-opt %s | filecheck %s --implicit-check-not=x\n// CHECK: a\n", "--implicit-check-not"),
        ("// RUN: kiln-opt %s\n// CHECK: a\n", "checked by nothing"),
    ],
)
def test_lint_finds(text: str, complaint: str) -> None:
    assert any(complaint in c for c in lint(text)), lint(text)


@pytest.mark.parametrize(
    "text",
    [
        RUN + "// CHECK-LABEL: a\n// CHECK-SAME: b\n// CHECK-COUNT-2: c\n// A note: with a colon.\n",
        "// RUN: kiln-opt %s \\\n// RUN:   | filecheck %s --check-prefixes=A,B-C\n// A-NEXT: x\n// B-C-NOT: y\n",
        "// RUN: kiln-opt --verify-diagnostics %s\n// expected-error @+1 {{x}}\n",
    ],
)
def test_lint_accepts(text: str) -> None:
    assert lint(text) == []
