# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The notebooks in examples/ run in a fresh kernel, and what their cells assert holds. No time is asserted."""

import os
import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
#: What each prints when its claims hold.
PRINTED = {
    "first-pass": r"pass 'drop-any-relu' failed: the pass changes numbers[\s\S]*\{'matched': 1\}",
    "fusion-of-your-own": r"\['matmul', 'attention'\]",
    "schedule-by-hand": r"times as fast as the rules[\s\S]*cpu\.gemm\.dot",
    "why-is-this-slow": r"special_hermite_polynomial_he[\s\S]* launches instead of ",
}


def test_each_is_listed() -> None:
    index = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == sorted(PRINTED)
    assert all(f"(../examples/{path.name})" in index for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / "cache"))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells), "clear the outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in cells for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert re.search(PRINTED[path.stem], printed), printed
    assert sum("assert" in cell.source for cell in cells) >= 2


def test_a_trace_is_shown_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's own rules for the last line of a cell."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    lines = ["import torch, kiln", "kiln.trace(torch.sin, torch.randn(4), calls=0)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(lines))])
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = [o for o in notebook.cells[0].outputs if o.output_type == "execute_result"]
    assert shown.data["text/html"].startswith("<iframe srcdoc=")
