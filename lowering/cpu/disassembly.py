# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Object files as assembly, for people: LLVM writes objects only, and these are what runs."""

import shutil
import subprocess
import tempfile

__all__ = ["DISASSEMBLERS", "disassembled"]

DISASSEMBLERS = ("llvm-objdump", "objdump")
"""Programs that disassemble, of LLVM and of GNU, which know all instructions that LLVM chooses."""


def disassembled(data: bytes, *, lines: bool = False) -> str | None:
    """The code of an object file, with its symbols and relocations; None where no program is there to tell.

    lines: in front of instructions, the line of the source that they come from, as the object's table of lines says.
    """
    program = next(filter(None, map(shutil.which, DISASSEMBLERS)), None)
    if program is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(data)
        file.flush()
        command = [program, "-d", "-r", "--no-show-raw-insn", *(["-l"] if lines else []), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    _, _, code = done.stdout.partition("Disassembly of section ")
    return "Disassembly of section " + code if code else None
