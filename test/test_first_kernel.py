# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""docs/first-kernel.md: the kernel on the page compiles, computes what the op means, and has the form that it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "first-kernel.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """hadamard.py of first-op.md with the row of this page, and this page's files."""
    op = "\n".join(blocks((DOCS / "first-op.md").read_text(encoding="utf-8"), "python"))
    (row,) = blocks(PAGE, "text")
    written, count = re.subn(r"^kiln\.define\(.*\)\n", row, op, flags=re.M)
    assert count == 1 and "has_kernel=True" in row
    (tmp_path / "hadamard.py").write_text(written, encoding="utf-8")
    (tmp_path / "hadamard_kernel.py").write_text("\n".join(blocks(PAGE, "python")), encoding="utf-8")
    (test,) = blocks(PAGE, "mlir")
    (tmp_path / "hadamard.mlir").write_text(test, encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KILN_CACHE": "0"}
    return forked_python.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_it_compiles_and_prints_what_the_page_says(folder: Path) -> None:
    """The page's code compares with eager."""
    (promised,) = re.findall(r"^prints\n\n```\n(.*?)^```$", PAGE, re.M | re.S)
    found = run(folder, sys.executable, "hadamard_kernel.py")
    assert (found.returncode, found.stdout) == (0, promised), found.stderr


def test_the_lit_test_passes_and_can_fail(folder: Path) -> None:
    test = (folder / "hadamard.mlir").read_text(encoding="utf-8")
    (command,) = re.findall(r"^// RUN: (.*)$", test, re.M)
    passed = run(folder, "bash", "-o", "pipefail", "-c", command.replace("%s", "hadamard.mlir"))
    assert passed.returncode == 0, passed.stderr
    (folder / "hadamard.mlir").write_text(test.replace("[4, 5, 6, 7, 0, 1, 2, 3]", "[7]"), encoding="utf-8")
    assert run(folder, "bash", "-o", "pipefail", "-c", command.replace("%s", "hadamard.mlir")).returncode != 0


def test_its_path_is_declared_and_taken(folder: Path) -> None:
    code = (
        "import torch, kiln, hadamard_kernel\n"
        "from kiln.lowering import paths\n"
        "f = torch.compile(hadamard_kernel.model, backend='kiln', options={'cache': False, 'fallback': False})\n"
        "for dtype in (torch.float32, torch.bfloat16):\n"
        "    for sizes in ((1, 2), (3, 256)):\n"
        "        torch.compiler.reset()\n"
        "        x = torch.randn(sizes, dtype=dtype)\n"
        "        expected = hadamard_kernel.model(x.double())\n"
        "        bound = {torch.float32: 1e-4, torch.bfloat16: 0.2}[dtype]\n"
        "        assert (f(x).double() - expected).abs().max() < bound, (sizes, dtype)\n"
        "print(paths.taken()['cpu hadamard: row in registers'] >= 4)\n"
    )
    found = run(folder, sys.executable, "-c", code)
    assert found.stdout == "True\n", found.stderr
