# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The kernels of one plan: equal fusions share one."""

import hashlib
import re
from collections.abc import Callable, MutableMapping
from typing import Any

from torch_mlir import ir

from kiln.lowering.cpu.codegen import KernelObject, PendingKernel, start_kernel
from kiln.runtime.plan import Expr, Kernel, Plan

__all__ = ["KernelCompiler", "KernelSet", "fusion_key"]

KernelCompiler = Callable[[ir.OpView, str], ir.Module | None]
"""`(fusion, name)` -> a module with the kernel `name` at the vector stage; None leaves it without code."""

_IRRELEVANT = ("name", "offsets")


def fusion_key(fusion: ir.Operation) -> str:
    """Text that is equal for fusions with equal kernels: without names, locations and pointer offsets."""
    saved = {key: fusion.attributes[key] for key in _IRRELEVANT if key in fusion.attributes}
    for key in saved:
        del fusion.attributes[key]
    try:
        return fusion.get_asm(
            print_generic_op_form=True, use_local_scope=True, enable_debug_info=False, assume_verified=True
        )
    finally:
        for key, value in saved.items():
            fusion.attributes[key] = value


class KernelSet:
    """Compiles fusions on first sight. A kernel's name is the fusion's with a hash of what it computes.

    Without a compiler kernels are named only. `cache` (by name) outlives the plan: the name says what the kernel does,
    so equal kernels of later graphs are not compiled again.
    """

    marks_alignment = False
    """Whether code depends on which addresses are multiples of 16 bytes (`unaligned` of a fusion)."""

    def __init__(
        self,
        compiler: KernelCompiler | None,
        dump: Callable[[str, ir.Module], None] | None = None,
        cache: MutableMapping[str, KernelObject] | None = None,
    ) -> None:
        self._compiler, self._dump = compiler, dump
        self._cache: MutableMapping[str, KernelObject] = {} if cache is None else cache
        self._known: dict[str, int] = {}
        self._codes: list[KernelObject | PendingKernel] = []
        self._kinds: list[str] = []

    def compile_cost(self, fusion: ir.Operation) -> float:
        """How long a fusion's kernel takes to compile, in any unit. Those that take longest are added first, where
        several are compiled at once: the last one to end is then none that began late."""
        return 0.0

    def add(self, fusion: ir.Operation) -> int:
        """The kernel of a fusion, by number."""
        key = fusion_key(fusion)
        if key not in self._known:
            stem = re.sub(r"\W", "_", ir.StringAttr(fusion.attributes["name"]).value)[:48]
            name = f"{stem}_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
            kind = ir.StringAttr(fusion.attributes["kind"]).value
            self._known[key] = len(self._known)
            self._make(fusion, name, kind)
        return self._known[key]

    def add_library(self, name: str) -> int:
        """The kernel that stands for a function of a library, by number."""
        key = f"library {name}"
        if key not in self._known:
            self._known[key] = len(self._known)
            self._kinds.append("library")
            self._reserve(name)
        return self._known[key]

    def _reserve(self, name: str) -> None:
        """Adds a kernel without code."""
        self._codes.append(KernelObject(name, b"", 0, 0))

    def _make(self, fusion: ir.Operation, name: str, kind: str) -> None:
        """Adds the next kernel."""
        # One look-up: a cache that other threads share may drop the kernel at any time.
        code = None if self._dump is not None else self._cache.get(name)
        self._codes.append(self._compile(fusion, name, kind) if code is None else code)
        self._kinds.append(kind)

    def _compile(self, fusion: ir.Operation, name: str, kind: str) -> KernelObject | PendingKernel:
        """LLVM goes on with it while the next kernels are emitted."""
        dump = self._dump
        if self._compiler is None:
            return KernelObject(name, b"", 0, 0)
        module = self._compiler(fusion.opview, name)
        if module is None:
            return KernelObject(name, b"", 0, 0)
        level = self._optimization_level(module)
        if dump is None:
            return start_kernel(module, name, kind=kind, opt_level=level)
        dump(f"{name}.vector", module)
        return start_kernel(module, name, kind=kind, opt_level=level, dump=lambda stage, m: dump(f"{name}.{stage}", m))

    def _optimization_level(self, module: ir.Module) -> int | None:
        """LLVM's level for a kernel; None: by its kind."""
        return None

    def launch_fields(self, kernel: int, over_plan: Callable[[str, int], Expr]) -> dict[str, Any]:
        """Fields of `Launch` that the kernel decides; `over_plan(map, result)` puts a launch's symbols in a map."""
        code = self._codes[kernel]
        if isinstance(code, PendingKernel):
            code = code.kernel
        return {
            "scratch": 0 if code.scratch_bytes is None else over_plan(code.scratch_bytes, 0),
            "work": -1 if code.work is None else over_plan(code.work, 0),
            "checks": code.checks,
            "sites": code.sites,
        }

    def meanwhile(self, plan: Plan) -> None:
        """What can be done for a plan while its kernels compile in other threads; called before `finish`."""

    def finish(self) -> tuple[list[Kernel], list[bytes]]:
        """The plan's kernels and objects. Raises CompileError where LLVM failed."""
        codes = [self._finished(code) for code in self._codes]
        kernels = [
            Kernel(code.name, code.entry, i, kind, code.pointers, code.symbols)
            for i, (code, kind) in enumerate(zip(codes, self._kinds, strict=True))
        ]
        return kernels, [code.object_bytes for code in codes]

    def _finished(self, code: KernelObject | PendingKernel) -> KernelObject:
        if isinstance(code, PendingKernel):
            code = code.result()  # a failure is reported for each graph anew
            self._cache[code.name] = code
        return code
