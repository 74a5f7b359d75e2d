# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The tutorial docs/first-pass.md works as written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest
from torch_mlir import ir

from kiln.dialects import affine, create_context, parse
from kiln.dialects import kiln as dialect
from kiln.passes.registry import registered_passes

ROOT = Path(__file__).resolve().parent.parent


def blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "first-pass.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tutorial's files: in.mlir, the pass, its lit test."""
    program, _, test = blocks("mlir")
    (tmp_path / "in.mlir").write_text(program)
    (tmp_path / "drop_double_transpose.py").write_text(blocks("python")[0])
    (tmp_path / "test.mlir").write_text(test)
    return tmp_path


def kiln_opt(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kiln.tools.kiln_opt", "--load=drop_double_transpose.py", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return forked_python.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def run(code: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    forked_python.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True, timeout=120)


def test_the_op_that_is_made_computes_the_same_where_it_says(folder: Path) -> None:
    merge = next(block for block in blocks("py") if block.startswith("def merge"))
    namespace = {"ir": ir, "kiln": dialect, "affine": affine}
    exec(merge, namespace)  # as a file that imports these
    with create_context(), ir.Location.unknown():
        module = parse((folder / "in.mlir").read_text())
        function = module.body.operations[0].regions[0].blocks[0].operations
        places = [str(op.location) for op in function]
        namespace["merge"](function[0], function[1])
        assert module.operation.verify()
        assert [str(op.location) for op in function] == places
        assert str(function[1].map.value) == "(d0, d1) -> (d0, d1)"


def test_a_suite_of_ones_own(folder: Path) -> None:
    config = next(block for block in blocks("py") if "configure" in block)
    (folder / "lit.cfg.py").write_text(config)
    tool = Path(sys.executable).with_name("lit")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = forked_python.run(
        [tool, "-v", "-j1", "test.mlir"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "PASS: passes :: test.mlir" in done.stdout, done.stdout + done.stderr


def test_in_the_pipeline_of_a_model(folder: Path) -> None:
    insert = next(block for block in blocks("py") if "kiln.Insert" in block)
    code = (
        "import torch, kiln\n"
        "from kiln.frontend.report import collect\n"
        "from drop_double_transpose import DropDoubleTranspose\n"
        "model = lambda x: x.transpose(0, 1).exp().transpose(0, 1)\n"
        f"exec({insert!r})\n"
        "x = torch.randn(3, 4)\n"
        "with collect() as reports:\n"
        "    found = torch.compile(model, backend='kiln', options={**options, 'fallback': False, 'cache': False})(x)\n"
        "torch.testing.assert_close(found, x.exp())\n"
        "assert any(name.startswith('drop-double-transpose') for name in reports[0].stages), reports[0].stages\n"
    )
    run(code, folder)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("kiln-opt")]


def test_the_result_is_as_printed(folder: Path) -> None:
    done = kiln_opt(commands()[0], folder)
    assert done.stderr == ""
    assert done.stdout == blocks("mlir")[1]


@pytest.mark.parametrize("arguments", commands()[1:], ids=" ".join)
def test_other_commands(arguments: list[str], folder: Path) -> None:
    done = kiln_opt(arguments, folder)
    assert done.returncode == 0, done.stderr
    if "--statistics" in arguments:
        assert "drop-double-transpose: matched=1" in done.stderr
    if "--list-passes" in arguments:
        assert "max-rank=<int> (default: 8)  leave tensors of a higher rank alone" in done.stdout


def test_the_example_in_the_docstring_is_what_it_does(folder: Path) -> None:
    """As `test/passes/test_docstring_examples.py` asks of each pass in `passes/`."""
    code = (
        "from kiln.passes.registry import load_passes_from, registered_passes\n"
        "from kiln.tools.pass_examples import canonical, example_of, result_of\n"
        "load_passes_from('drop_double_transpose.py')\n"
        "example = example_of(registered_passes()['drop-double-transpose'])\n"
        "assert canonical(example.before) != result_of(example) == canonical(example.after)\n"
    )
    run(code, folder)


def test_the_lit_test_passes(folder: Path) -> None:
    line = re.search(r"RUN: kiln-opt (.*) %s \| filecheck %s", (folder / "test.mlir").read_text())
    assert line is not None
    done = kiln_opt([*shlex.split(line[1]), "test.mlir"], folder)
    assert done.returncode == 0, done.stderr
    check = [sys.executable, "-m", "filecheck", "test.mlir"]
    forked_python.run(check, cwd=folder, input=done.stdout, text=True, check=True, timeout=60)


def test_the_pass_is_not_part_of_kiln() -> None:
    assert "drop-double-transpose" not in registered_passes()
