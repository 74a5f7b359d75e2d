# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""SASS: the instructions that a NVIDIA GPU runs, with the line of PTX that each comes from."""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["PTX_LINE", "disassembler", "sass"]

PTX_LINE = re.compile(r"\s+// ptx:(\d+)$")
"""What stands behind an instruction: the line of PTX, from 1, that ptxas made it of."""

_TOLD = re.compile(r'^\s*//## File "[^"]*", line (\d+)')
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*$")
_LABEL = re.compile(r"^\.L\w+:")
_COLUMN = 88


@functools.cache
def disassembler() -> str | None:
    """nvdisasm: that of TRITON_NVDISASM_PATH, of Triton's package, or of a CUDA toolkit; None where there is none."""
    given = os.environ.get("TRITON_NVDISASM_PATH", "")
    if given and Path(given).is_file():
        return given
    triton = importlib.util.find_spec("triton")
    for folder in triton.submodule_search_locations or () if triton is not None else ():
        shipped = Path(folder) / "backends" / "nvidia" / "bin" / "nvdisasm"
        if os.access(shipped, os.X_OK):
            return str(shipped)
    return shutil.which("nvdisasm")


def sass(cubin: bytes) -> str | None:
    """The instructions and labels of a cubin's function, ``// ptx:N`` behind those whose line of PTX is known.

    None where no disassembler is there, or it does not know the architecture.
    """
    program = disassembler()
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([program, "-c", "-gp", file.name], capture_output=True, text=True, check=False)
    return _tidied(done.stdout) if done.returncode == 0 else None


def _tidied(text: str) -> str:
    """Without directives of sections; a line of PTX holds until the next one is named."""
    found: list[str] = []
    line = ""
    for part in text.splitlines():
        told, instruction = _TOLD.match(part), _INSTRUCTION.match(part)
        if told is not None:
            line = told[1]
        elif instruction is not None:
            shown = f"/*{instruction[1]}*/  {instruction[2]}"
            found.append(f"{shown:<{_COLUMN}}  // ptx:{line}" if line else shown)
        elif _LABEL.match(part):
            found.append(part.rstrip())
    return "".join(f"{part}\n" for part in found)
