# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Nothing of a GPU's kernels depends on the processor that compiles them."""

import ast
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import stages
from kiln.lowering.cpu import isa

ROOT = Path(__file__).resolve().parents[3]


class Nonsense:
    """A processor that nobody may ask anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a GPU's pipeline asked for the processor's {name}")


@pytest.mark.parametrize("models", ["bert,convnext", "lstm"])
def test_with_a_nonsensical_processor(models: str, tmp_path: Path) -> None:
    """The texts of all stages, kernels included, are those of another processor."""
    given = ["--targets", "gpu", "--models", models, "--dtypes", "bf16", "--fuzz", "4"]
    with isa.compiling_for(cast(isa.Isa, Nonsense())):
        stages.main([str(tmp_path / "nonsense"), *given])
    with isa.compiling_for(stages.CPUS["cpu-amx"]):
        stages.main([str(tmp_path / "amx"), *given])
    names = sorted(p.relative_to(tmp_path / "amx") for p in (tmp_path / "amx").rglob("*.*"))
    assert any(name.suffix == ".kernels" for name in names)
    for name in names:
        texts = [(tmp_path / cpu / name).read_text(encoding="utf-8") for cpu in ("nonsense", "amx")]
        assert "asked for the processor" not in texts[0] and texts[0] == texts[1], name


def test_a_processor_is_asked_on_the_cpu(tmp_path: Path) -> None:
    """So the test above says something."""
    with isa.compiling_for(cast(isa.Isa, Nonsense())), pytest.raises(AssertionError, match="vector_"):
        _ = isa.target().vector_bytes


@pytest.mark.parametrize("folder", ["gpu", "tile", "tune"])
def test_imports_nothing_of_the_cpu(folder: str) -> None:
    for path in (ROOT / "lowering" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert not node.module.startswith("kiln.lowering.cpu"), f"{path}: {node.module}"
                assert node.module != "kiln.lowering" or all(n.name != "cpu" for n in node.names), path
