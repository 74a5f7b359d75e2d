# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Instructions of a kernel and the lines of IR that they come from.

Kernels run without debug info. For a trace LLVM compiles a kernel once more with a table of lines, and the table is
used only where the instructions are the same.
"""

import re
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from kiln.dialects import create_context, parse
from kiln.errors import CompileError
from kiln.frontend.report.trace.locations import located_lines
from kiln.lowering.cpu import jit
from kiln.lowering.cpu.disassembly import disassembled
from kiln.lowering.gpu.sass import PTX_LINE

__all__ = ["Instruction", "assembly", "hot_loop", "ptx", "sass", "triton_stage"]

_LINE = re.compile(r"^(?:; )?-:(\d+)")
_TOLD = re.compile(r"^; |^[\w.$]+\(\):$")
"""What disassemblers write between instructions where lines are asked for: the function they are in."""
_ADDRESS = re.compile(r"^\s+([0-9a-f]+):\s+(.*)$")
_JUMP = re.compile(r"^j\w+\s+(?:0x)?([0-9a-f]+)\b")
_LABEL = re.compile(r"^((?:\$|\.)?L\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$?L\w+)|\bBRA(?:\.\w+)*\s.*`\((\.L\w+)\)")
_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)")
_PLACE = re.compile(r'":(\d+):\d+')
_DEBUG = re.compile(r", !dbg !(\d+)$")
_DEBUG_LINE = re.compile(r"^!(\d+) = !DILocation\(line: (\d+)", re.M)
_SASS_ADDRESS = re.compile(r"^/\*[0-9a-f]+\*/\s+")
_WORK = re.compile(
    r"^(?:v\w*(?:ps|pd|ss|sd|ph)\b|vp\w*dp\w*|tdp\w+"  # x86
    r"|f\w*ml\w*|fma|mma|wgmma|mul|add|ld|st"  # Arm, PTX
    r"|(?:@!?U?P\w+ )?(?:[FHD](?:FMA2?|MUL2?|ADD2?|SETP)|MUFU|\w*MMA|LD|ST))"  # SASS
)


@dataclass(frozen=True)
class Instruction:
    """A line of assembly, and the line (from 1) of the IR that it comes from; 0 where that is not known."""

    text: str
    line: int = 0


def assembly(code: str, llvm: str, name: str, level: int) -> tuple[list[Instruction], str]:
    """The lines of a CPU kernel's disassembly.

    Args:
        code: the disassembly of what runs.
        llvm: the kernel's module in the LLVM dialect, as text without locations.
        name: the kernel's. level: LLVM's -O level that it is compiled with.

    Returns:
        The instructions, and why their lines are not known; empty: they are.
    """
    plain = [Instruction(line) for line in code.splitlines()]
    try:
        with create_context(), ir.Location.unknown():
            module = parse(llvm)
            scopes = PassManager.parse("builtin.module(ensure-debug-info-scope-on-llvm-func)")
            scopes.run(module.operation)
            data = jit.object_bytes(module, f"{name}_entry", level)
    except (CompileError, ir.MLIRError) as error:
        return plain, f"the kernel does not compile with a table of lines: {error}"
    if disassembled(data) != code:
        return plain, "with a table of lines LLVM chooses other instructions"
    found: list[Instruction] = []
    line = 0
    for text in (disassembled(data, lines=True) or "").splitlines():
        told = _LINE.match(text)
        if told is not None:
            line = int(told[1])
        elif not _TOLD.match(text):
            found.append(Instruction(text, line if _ADDRESS.match(text) else 0))
            line = 0 if text.endswith(">:") else line
    if [i.text for i in found] != code.splitlines():
        return plain, "the disassembler writes other text with lines"
    return found, ""


def ptx(code: str) -> list[Instruction]:
    """The lines of PTX without ``.loc``; each instruction has the line of Triton's input that the last one names."""
    return [found for found in _ptx(code) if not _LOC.match(found.text)]


def _ptx(code: str) -> list[Instruction]:
    """All lines of PTX. LLVM counts on behind the line of an inline assembly for each line in it: the first holds."""
    found: list[Instruction] = []
    line, is_inline, is_named = 0, False, False
    for text in code.splitlines():
        told = _LOC.match(text)
        if told is not None:
            if not (is_inline and is_named):
                line = int(told[1])
            is_named = True
        elif "// begin inline asm" in text:
            is_inline, is_named = True, False
        elif "// end inline asm" in text:
            is_inline = False
        is_instruction = told is None and text.startswith("\t") and not text.lstrip().startswith((".", "//"))
        found.append(Instruction(text, line if is_instruction else 0))
    return found


def sass(code: str, assembly: str) -> list[Instruction]:
    """The lines of SASS (`kiln.lowering.gpu.sass`); each instruction has the line (from 1) of what `ptx` returns.

    assembly: the PTX that it was assembled from.
    """
    numbers: dict[int, int] = {}
    for number, found in enumerate(_ptx(assembly), 1):
        if not _LOC.match(found.text):
            numbers[number] = len(numbers) + 1
    lines: list[Instruction] = []
    for text in code.splitlines():
        told = PTX_LINE.search(text)
        line = numbers.get(int(told[1]), 0) if told is not None else 0
        lines.append(Instruction(PTX_LINE.sub("", text), line))
    return lines


def triton_stage(code: str) -> list[Instruction]:
    """The lines of TTGIR, or of Triton's LLVM IR; both name lines of Triton's input."""
    scopes = {number: int(line) for number, line in _DEBUG_LINE.findall(code)}
    if scopes:  # LLVM IR
        found = [(text, scopes.get(at[1], 0) if (at := _DEBUG.search(text)) else 0) for text in code.splitlines()]
        return [Instruction(_DEBUG.sub("", text), line) for text, line in found]
    lines = located_lines(code)
    numbers = [_PLACE.findall(line.location) for line in lines]
    return [Instruction(line.text, int(at[-1]) if at else 0) for line, at in zip(lines, numbers, strict=True)]


def hot_loop(lines: list[str]) -> tuple[int, int] | None:
    """First and last line (from 0) of the most deeply nested loop, and of these the one with most arithmetic on
    vectors; None without a loop.

    A loop is what a jump back leads around. How often each runs is not known, so that this is a guess.
    """
    loops = _loops(lines)
    around = {a: [b for b in loops if b != a and b[0] <= a[0] and a[1] <= b[1]] for a in loops}
    inner = [a for a in loops if not any(a in outer for outer in around.values())]
    return max(inner, key=lambda a: (len(around[a]), _work(lines[a[0] : a[1] + 1])), default=None)


def _loops(lines: list[str]) -> list[tuple[int, int]]:
    places: dict[str, int] = {}
    found: set[tuple[int, int]] = set()
    for i, text in enumerate(lines):
        if text.endswith(">:"):
            places.clear()  # another function: addresses may begin anew
        label, address = _LABEL.match(text), _ADDRESS.match(text)
        if label is not None:
            places[label[1]] = i
        instruction = _SASS_ADDRESS.sub("", text.strip())
        if address is not None:
            places[address[1]] = i
            instruction = address[2]
        jump = _JUMP.match(instruction) or _BRANCH.search(instruction)
        to = next(filter(None, jump.groups()), "") if jump is not None else ""
        if to in places:
            found.add((places[to], i))
    return sorted(found)


def _work(lines: list[str]) -> int:
    plain = (_SASS_ADDRESS.sub("", line.strip()) for line in lines)
    texts = (found[2] if (found := _ADDRESS.match(line)) else line for line in plain)
    return sum(1 for text in texts if _WORK.match(text))
