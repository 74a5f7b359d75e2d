# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every pass does to the example in its docstring what the docstring says, and has a FileCheck test of its own."""

from pathlib import Path

import pytest

from kiln.lowering.cpu.isa import host
from kiln.passes.core import Pass
from kiln.passes.registry import all_passes
from kiln.tools.pass_examples import canonical, example_of, result_of

TESTS = Path(__file__).resolve().parent
VECTOR_BYTES = {"AVX-512": 64, "AVX2": 32}
PASSES = {name: cls for name, cls in all_passes().items() if cls.__module__.startswith("kiln.passes.")}

#: Passes whose examples show that nothing happens, and why; their FileCheck tests show what does.
UNCHANGED = {
    "apply-schedules": "schedules are chosen by rules from outside",
    "replace-module": "the result is a file's",
}


@pytest.mark.parametrize("name", list(PASSES))
def test_example(name: str) -> None:
    example = example_of(PASSES[name])
    if example.machine and host().vector_bytes != VECTOR_BYTES[example.machine]:
        pytest.skip(f"the example is that of a machine with {example.machine}")
    assert name in example.pipeline
    assert result_of(example) == canonical(example.after), (
        f"run python -m kiln.tools.pass_examples {name}, and look at what it changed"
    )


@pytest.mark.parametrize("name", list(PASSES))
def test_example_changes_something(name: str) -> None:
    example = example_of(PASSES[name])
    assert (canonical(example.before) == canonical(example.after)) == (name in UNCHANGED)


@pytest.mark.parametrize("name", list(PASSES))
def test_there_is_a_filecheck_test(name: str) -> None:
    stem = name.replace("-", "_")
    files = [path for path in TESTS.rglob("*.mlir") if stem in (path.parent.name, path.stem) or _of(path.stem, stem)]
    assert any(_runs(path, name) for path in files), f"test/passes/{stem}.mlir is missing"


def _of(file: str, stem: str) -> bool:
    return file.startswith(f"{stem}_")


def _runs(path: Path, name: str) -> bool:
    text = path.read_text(encoding="utf-8")
    return any("RUN:" in line and name in line and "filecheck" in line for line in text.splitlines())


def test_a_docstring_without_an_example_is_refused() -> None:
    class Bare(Pass):
        """Do nothing."""

        name = "bare"

    with pytest.raises(ValueError, match="needs one block 'Before::' and one block 'After::'"):
        example_of(Bare)
