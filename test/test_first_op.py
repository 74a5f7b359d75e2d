# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page docs/first-op.md works as written: an op from outside, in processes of their own, for the table keeps it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "first-op.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """hadamard.py and in.mlir, as the page has them."""
    (tmp_path / "hadamard.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    (module,) = blocks("mlir")
    (tmp_path / "in.mlir").write_text(module, encoding="utf-8")
    return tmp_path


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KILN_CACHE": "0"}
    return forked_python.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def kiln_opt(folder: Path, pipeline: str | None = None) -> subprocess.CompletedProcess[str]:
    (command,) = blocks("sh")
    tool, *arguments = shlex.split(command)
    assert tool == "kiln-opt"
    given = [f"--pass-pipeline={pipeline}" if pipeline and a.startswith("--pass-pipeline") else a for a in arguments]
    return run(folder, "-m", "kiln.tools.kiln_opt", *given)


def test_it_compiles_and_prints_what_the_page_says(folder: Path) -> None:
    """The page's code compares with eager, with static and with dynamic sizes."""
    (promised,) = re.findall(r"^prints\n\n```\n(.*?)^```$", PAGE, re.M | re.S)
    found = run(folder, "hadamard.py")
    assert (found.returncode, found.stdout) == (0, promised), found.stderr


def test_it_is_taken_apart(folder: Path) -> None:
    found = kiln_opt(folder)
    assert found.returncode == 0, found.stderr
    assert "hadamard_transform" not in found.stdout and found.stdout.count("linalg.generic") == 1


def test_the_reference_is_what_kernels_of_both_targets_compute(folder: Path) -> None:
    for target in (
        "fuse,assign-layouts,schedule-cpu,emit-cpu-kernels",
        "fuse,assign-layouts,schedule-gpu,emit-gpu-kernels",
    ):
        found = kiln_opt(folder, f"expand-named-ops,{target}")
        assert found.returncode == 0, found.stderr
        assert "arith.addf" in found.stdout and "arith.subf" in found.stdout


def test_the_verifier_says_what_is_wrong(folder: Path) -> None:
    text = (folder / "in.mlir").read_text(encoding="utf-8")
    (folder / "in.mlir").write_text(text.replace("4x2xf32", "4x6xf32"), encoding="utf-8")
    found = kiln_opt(folder)
    assert found.returncode != 0
    assert "'kiln.hadamard_transform' op last size: expected a power of two, found 6" in found.stderr
