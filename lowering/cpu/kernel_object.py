# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a kernel of the CPU is once it is compiled, and while LLVM compiles it."""

import hashlib
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from kiln.lowering.cpu.disassembly import disassembled
from kiln.runtime.plan import Expr, Kernel, Site

__all__ = ["KernelObject", "PendingKernel"]


@dataclass(frozen=True)
class KernelObject:
    """A compiled kernel. `entry` is the symbol `void entry(int64_t* blk)` (see lowering/cpu/abi.py)."""

    name: str
    object_bytes: bytes
    pointers: int
    symbols: int
    scratch_bytes: str | None = None  # affine map text ()[symbols] -> (bytes per thread); None: no scratch
    work: str | None = None  # affine map text ()[symbols] -> (elementary operations); None: unknown
    checks: tuple[str, ...] = ()  # ops whose indices it checks; the address to tell so at is one more symbol
    sites: tuple[Site, ...] = ()  # what may report something; where, and for which launch, are two more symbols

    @property
    def entry(self) -> str:
        """The symbol that the host calls."""
        return f"{self.name}_entry"

    @property
    def digest(self) -> str:
        """Hash of the machine code, in hexadecimal."""
        return hashlib.sha256(self.object_bytes).hexdigest()

    def result(self) -> "KernelObject":
        """The kernel itself."""
        return self

    def launch_fields(self, over_plan: Callable[[str, int], Expr]) -> dict[str, Any]:
        """Fields of `Launch`; `over_plan(map, result)` puts a launch's symbols in a map."""
        return {
            "scratch": 0 if self.scratch_bytes is None else over_plan(self.scratch_bytes, 0),
            "work": -1 if self.work is None else over_plan(self.work, 0),
            "checks": self.checks,
            "sites": self.sites,
        }

    def finish(self, number: int, kind: str) -> tuple[Kernel, bytes]:
        """The kernel of a plan, and its object, both by `number`."""
        return Kernel(self.name, self.entry, number, kind, self.pointers, self.symbols), self.object_bytes

    def texts(self) -> dict[str, str]:
        """The object as assembly, where there is a program that disassembles it."""
        text = disassembled(self.object_bytes)
        return {} if text is None else {"s": text}

    def binary(self) -> tuple[str, bytes]:
        """The object, which defines `entry`."""
        return "o", self.object_bytes


@dataclass(frozen=True)
class PendingKernel:
    """A kernel that LLVM works on: `kernel` is what it will be, without the object."""

    kernel: KernelObject
    code: "Future[bytes]"
    keep: MutableMapping[str, KernelObject] | None = None
    """Where the compiled kernel is kept by its name, for the next graphs."""

    def result(self) -> KernelObject:
        """The compiled kernel; waits for LLVM. Raises CompileError when LLVM fails."""
        made = replace(self.kernel, object_bytes=self.code.result())
        if self.keep is not None:
            self.keep[made.name] = made
        return made

    def launch_fields(self, over_plan: Callable[[str, int], Expr]) -> dict[str, Any]:
        """Those of the kernel."""
        return self.kernel.launch_fields(over_plan)

    def finish(self, number: int, kind: str) -> tuple[Kernel, bytes]:
        """Those of the compiled kernel; waits for LLVM."""
        return self.result().finish(number, kind)

    def texts(self) -> dict[str, str]:
        """Those of the compiled kernel; waits for LLVM."""
        return self.result().texts()

    def binary(self) -> tuple[str, bytes]:
        """That of the compiled kernel; waits for LLVM."""
        return self.result().binary()
