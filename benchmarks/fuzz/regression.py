# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes a failing case as a test file."""

from pathlib import Path

import torch

from benchmarks.fuzz.generate import Case
from benchmarks.fuzz.program import Input
from benchmarks.fuzz.worker import Outcome

_HEAD = '''# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graph {number} of the fuzzer on {target}: {what}"""

{imports}import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

PROGRAM = Program(
    [
{inputs}
    ],
    [
{lines}
    ],
    {results},{numbers}
)


{mark}def test_graph_{number}() -> None:
    assert run(PROGRAM, {setting})
'''
_GPU = '@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")\n'


def write_test(case: Case, outcome: Outcome, target: str, folder: Path) -> Path:
    """A file that `pytest` runs: ready for test/property/regressions when the docstring says what the cause was."""
    needs_gpu = case.setting.device == "cuda"
    what = outcome.text.splitlines()[0][:80].rstrip() if outcome.text else outcome.kind
    text = _HEAD.format(
        number=case.number,
        target=target,
        what=what.replace('"', "'"),
        imports="import pytest\n" if needs_gpu else "",
        inputs="\n".join(f"        {_input(x)}," for x in case.program.inputs),
        lines="\n".join(f"        {line!r}," for line in case.program.lines),
        results=case.program.results,
        numbers=f"\n    numbers={case.program.numbers}," if case.program.numbers else "",
        mark=_GPU if needs_gpu else "",
        setting=repr(case.setting),
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test_{target.replace('-', '_')}_{case.number}.py"
    path.write_text(text)
    return path


def _input(x: Input) -> str:
    plain = Input(x.shape, torch.float32, 0)
    given = [repr(x.shape), repr(x.dtype), repr(x.seed)]
    names = ("layout", "special", "high", "values", "scale")
    given += [f"{name}={getattr(x, name)!r}" for name in names if getattr(x, name) != getattr(plain, name)]
    return f"Input({', '.join(given)})"
