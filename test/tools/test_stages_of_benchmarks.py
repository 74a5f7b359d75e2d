# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The texts that ``scripts/compare_kernels`` compares: each stage of each graph, the same each time."""

from pathlib import Path

import pytest

from benchmarks.stages import main


@pytest.mark.parametrize(("target", "kernel"), [("cpu-amx", "vector.store"), ("gpu", '"tt.store"')])
def test_each_stage_is_written_and_the_same_again(target: str, kernel: str, tmp_path: Path) -> None:
    texts: list[dict[str, str]] = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        assert main([str(folder), "--targets", target, "--models", "bert", "--dtypes", "bf16", "--fuzz", "1"]) == 0
        found = {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*") if p.is_file()}
        texts.append(found)
    assert texts[0] == texts[1]
    stages = {name.partition(".")[2] for name in texts[0]}
    assert stages == {"torch", "graph", "kiln", "fused", "sched", "kernels"}
    assert kernel in texts[0][f"{target}/bert-bf16/0-inference.kernels"]
