# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Machine code of kernels, beside the IR: an attribute names it, and a table of the context holds it.

MLIR keeps the bytes of `dense_resource` attributes in the same way. Machine code is in the table before it is there:
`assemble` puts what LLVM or Triton still works on.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from torch_mlir import ir

from kiln.dialects.kiln import KernelOp
from kiln.dialects.memo import PerContext
from kiln.errors import BackendOptionError, CompileError, KilnError, UnsupportedError
from kiln.lowering.cpu.codegen import not_lowered
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.runtime.plan import Expr, Kernel, Site

__all__ = [
    "EDITED",
    "Code",
    "PlannedKernels",
    "code_of",
    "describe",
    "described",
    "mark_unsupported",
    "set_code",
    "unmark_unsupported",
]

EDITED = "edited"
"""Attribute of a kernel whose code somebody wrote: the path of the file."""

OverPlan = Callable[[str, int], Expr]
"""From the text of a map over a kernel's symbols and the number of a result: that over the plan's symbols."""


class Code(Protocol):
    """A kernel's machine code, while it is made and then. Plain data: it must not hold on to IR."""

    def launch_fields(self, over_plan: OverPlan) -> dict[str, Any]:
        """Fields of `Launch` that the kernel decides."""
        ...

    def finish(self, number: int, kind: str) -> tuple[Kernel, bytes]:
        """The kernel of a plan, and its object, both by `number`; waits for the compiler. Raises CompileError or
        UnsupportedError where that refuses the kernel.
        """
        ...

    def texts(self) -> dict[str, str]:
        """What the compiler made on the way, by the ending of its file; waits for the compiler."""
        ...

    def binary(self) -> tuple[str, bytes]:
        """The ending of the file of the machine code, and that; waits for the compiler."""
        ...


_CODES = PerContext()


def set_code(kernel: KernelOp, code: Code) -> None:
    """Makes `code` the machine code of a kernel."""
    _CODES.of(kernel.operation.context)[kernel.symbol] = code
    kernel.operation.attributes["object"] = ir.StringAttr.get(kernel.symbol)


def code_of(kernel: KernelOp) -> Code | None:
    """The machine code that `set_code` gave the kernel; None for one without."""
    attributes = kernel.operation.attributes
    if "object" not in attributes:
        return None
    return _CODES.of(kernel.operation.context).get(ir.StringAttr(attributes["object"]).value)


def mark_unsupported(kernel: KernelOp, error: Exception) -> None:
    """Says on a kernel why it has no code, in place of what code it has.

    Raises BackendOptionError for code that somebody wrote in a file, which is wrong.
    """
    attributes = kernel.operation.attributes
    if EDITED in attributes:
        raise BackendOptionError(f"{ir.StringAttr(attributes[EDITED]).value}:1: {error}") from None
    is_limit = isinstance(error, UnsupportedError)
    text = str(error) if isinstance(error, KilnError) else f"{type(error).__name__}: {error}"
    attributes["unsupported"] = ir.StringAttr.get(error.reason if is_limit else text)
    attributes["unsupported_op"] = ir.StringAttr.get(error.op if is_limit else "kiln.fusion")
    if not is_limit:
        attributes["defect"] = ir.UnitAttr.get()
    if "object" in attributes:
        del attributes["object"]


def unmark_unsupported(kernel: KernelOp) -> None:
    """Takes the marks of `mark_unsupported` away, with what code there is, so that the kernel is emitted again."""
    for key in ("unsupported", "unsupported_op", "defect", "rejected"):
        if key in kernel.operation.attributes:
            del kernel.operation.attributes[key]
    kernel.drop_code()


def describe(kernel: KernelOp, found: KernelObject) -> None:
    """Keeps on a kernel how its lowered code is called."""
    attributes = kernel.operation.attributes
    i64 = ir.IntegerType.get_signless(64)
    attributes["pointers"] = ir.IntegerAttr.get(i64, found.pointers)
    attributes["symbols"] = ir.IntegerAttr.get(i64, found.symbols)
    for key, map_ in (("scratch", found.scratch_bytes), ("work", found.work)):
        if map_ is not None:
            attributes[key] = ir.Attribute.parse(map_)
    if found.checks:
        attributes["checks"] = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in found.checks])
    if found.sites:
        attributes["sites"] = ir.ArrayAttr.get(
            [
                ir.ArrayAttr.get([ir.StringAttr.get(t) for t in (site.kind, site.op, site.source, site.detail)])
                for site in found.sites
            ]
        )


def described(kernel: KernelOp) -> KernelObject:
    """What `describe` kept; without the object."""
    attributes = kernel.operation.attributes
    checks = list(ir.ArrayAttr(attributes["checks"])) if "checks" in attributes else []
    sites = list(ir.ArrayAttr(attributes["sites"])) if "sites" in attributes else []
    return KernelObject(
        kernel.symbol,
        b"",
        ir.IntegerAttr(attributes["pointers"]).value,
        ir.IntegerAttr(attributes["symbols"]).value,
        str(attributes["scratch"]) if "scratch" in attributes else None,
        str(attributes["work"]) if "work" in attributes else None,
        tuple(ir.StringAttr(name).value for name in checks),
        tuple(Site(*(ir.StringAttr(text).value for text in ir.ArrayAttr(site))) for site in sites),
    )


class PlannedKernels:
    """The kernels of a plan, by number: those of the module in order, then functions of libraries."""

    def __init__(self, kernels: Sequence[KernelOp]) -> None:
        self._kernels = list(kernels)
        self._codes = [code_of(kernel) for kernel in kernels]
        self._numbers = {kernel.symbol: i for i, kernel in enumerate(kernels)}
        self._kinds = [ir.StringAttr(kernel.fusion.operation.attributes["kind"]).value for kernel in kernels]
        self.has_code = any(code is not None for code in self._codes)

    def number(self, symbol: str) -> int:
        """The number of a kernel of the module."""
        return self._numbers[symbol]

    def add_library(self, name: str) -> int:
        """The kernel that stands for a function of a library."""
        if name not in self._numbers:
            self._numbers[name] = len(self._numbers)
            self._kinds.append("library")
            self._codes.append(None)
        return self._numbers[name]

    def launch_fields(self, number: int, over_plan: OverPlan) -> dict[str, Any]:
        """Fields of `Launch` that the kernel decides."""
        code = self._codes[number]
        return {} if code is None else code.launch_fields(over_plan)

    def finish(self) -> tuple[list[Kernel], list[bytes]]:
        """The plan's kernels and objects; waits for the compilers. Kernels that these refuse are marked."""
        kernels: list[Kernel] = []
        objects: list[bytes] = []
        for i, (name, kind, code) in enumerate(zip(self._numbers, self._kinds, self._codes, strict=True)):
            kernel, data = Kernel(name, "", i, kind, 0, 0), b""
            if code is not None:
                try:
                    kernel, data = code.finish(i, kind)
                except (CompileError, UnsupportedError) as error:
                    self._reject(self._kernels[i], error)
            kernels.append(kernel)
            objects.append(data)
        return kernels, objects

    def _reject(self, kernel: KernelOp, error: Exception) -> None:
        is_cpu = "pointers" in kernel.operation.attributes
        mark_unsupported(kernel, (not_lowered(kernel.code, kernel.symbol) if is_cpu else None) or error)
        kernel.operation.attributes["rejected"] = ir.UnitAttr.get()
