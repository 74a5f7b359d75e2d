# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The GPU benchmark's parts that need no GPU: the summary, the table, and the cases' processes."""

import pytest
import torch

from benchmarks.gpu.cases import Case
from benchmarks.gpu.processes import run_cases, shares, visible_device
from benchmarks.gpu.report import header, line, markdown, summary
from benchmarks.gpu.row import Row

_CONTENDERS = ("eager", "inductor", "kiln", "max-autotune", "kiln-max-autotune")


def _row(name: str, inductor: float, tuned: float) -> Row:
    """Kiln takes 1000 us, eager 4000."""
    us = {"eager": 4e3, "inductor": inductor, "kiln": 1e3, "max-autotune": 2 * inductor, "kiln-max-autotune": tuned}
    return {
        "case": name,
        "is_model": True,
        "us": us,
        "wall_us": us,
        "cpu_us": {"inductor": 1e3, "kiln": 250.0},
        "first_s": {"inductor": 10.0, "kiln": 4.0},
        "error": {"eager": 1e-3, "kiln": 1.5e-3},
    }


def test_means_and_the_least_row_are_in_the_summary() -> None:
    lines = summary([_row("a", 2e3, 900.0), _row("b", 8e3, 1e3)])
    assert "models, as called: Inductor / Kiln 4.00, least 2.00 (2 rows)" in lines
    # Of b eager is the best of the others: the geometric mean of 2 and 4.
    assert "models, as called: best of eager, inductor, max-autotune / Kiln 2.83, least 2.00 (2 rows)" in lines
    assert "models, on the GPU: tuned Kiln / Kiln 0.95, least 0.90 (2 rows)" in lines
    assert "models, first call: Kiln / Inductor 0.40, largest 0.40 (2 rows)" in lines


def test_a_failed_contender_leaves_its_cell_empty() -> None:
    row = _row("a", 2e3, 900.0)
    for figures in (row["us"], row["wall_us"], row["cpu_us"], row["first_s"], row["error"]):
        figures.pop("kiln", None)
    assert not any("Kiln" in text and "least" in text for text in summary([row]))
    cells = [cell.strip() for cell in markdown([row], _CONTENDERS).splitlines()[-1].strip("|").split("|")]
    assert cells[0] == "a"
    assert cells[-5:] == ["-"] * 5
    assert len(line(row, _CONTENDERS)) == len(header(_CONTENDERS))


def test_the_table_has_a_row_for_each_case() -> None:
    lines = markdown([_row("a", 2e3, 900.0)], _CONTENDERS).splitlines()
    assert lines[0].startswith("| case | eager | inductor | kiln | max-autotune | kiln-max-autotune |")
    assert lines[2] == (
        "| a | 4 (4) | 2 (2) | 1 (1) | 4 (4) | 0.9 (0.9) | 2.00 | 2.00 | 1, 0.25: 0.25 | 10, 4: 0.40 | 1.50 |"
    )


def test_cores_are_shared_in_equal_parts() -> None:
    assert shares([0, 1, 2, 5, 6], 2) == [[0, 1], [2, 5]]
    with pytest.raises(ValueError, match="2 cores cannot be shared by 3 GPUs"):
        shares([0, 1], 3)


def test_processes_see_no_gpu_that_is_hidden_here() -> None:
    assert [visible_device(None, gpu) for gpu in (0, 3)] == ["0", "3"]
    assert [visible_device("4,GPU-a", gpu) for gpu in (0, 1, 2)] == ["4", "GPU-a", ""]
    assert visible_device("", 0) == ""


@pytest.mark.parametrize("is_model", [False, True])
def test_a_process_without_a_gpu_gives_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch, is_model: bool) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("KILN_TARGET", "")
    shown: list[Row] = []
    case = Case("no such case", lambda: (torch.nn.Identity(), lambda generator: ()), is_model=is_model)
    rows = run_cases([case], ["--contenders", "eager,kiln"], 1, float("inf"), shown.append)
    assert rows == shown
    assert rows[0]["case"] == "no such case"
    assert rows[0]["is_model"] == is_model
    assert "exit 1" in rows[0]["failed"]["process"]
    assert summary(rows) == []
