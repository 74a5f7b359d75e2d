# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes that no tile divides, through the whole compiler: on a GPU where there is one, and as loops on the CPU.

What ends the process costs one program: the loops run in a process that is started anew behind it.
"""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ragged_programs import DTYPES, PROGRAMS, verdict

SCRIPT = Path(__file__).with_name("ragged_programs.py")
ROOT = SCRIPT.parents[3]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("tensor_maps", [True, False], ids=["tensor maps", "pointers"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_a_gpu(name: str, dtype: str, tensor_maps: bool) -> None:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert not verdict(name, DTYPES[dtype], "cuda", tensor_maps=tensor_maps)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_loops(name: str) -> None:
    assert _as_loops()[name] == ""


@functools.cache
def _as_loops() -> dict[str, str]:
    """What is wrong with each program in bf16; f16 takes the same ways."""
    found: dict[str, str] = {}
    while missing := [name for name in PROGRAMS if name not in found]:
        command = [sys.executable, str(SCRIPT), "bf16", *missing]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        begun = missing[0]
        for line in process.stdout.splitlines():
            event, _, rest = line.partition("\t")
            if event == "begin":
                begun = rest
            elif event == "end":
                name, _, reason = rest.partition("\t")
                found[name] = reason
        if begun not in found:
            last = (process.stderr.strip() or "no output").splitlines()[-1]
            found[begun] = f"the process ended with status {process.returncode}: {last}"
    return found
