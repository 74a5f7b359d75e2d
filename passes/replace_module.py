# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A module from a file in place of the one that the pipeline has made."""

import re
from dataclasses import dataclass
from pathlib import Path

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import parse
from kiln.dialects.kiln import KernelOp
from kiln.errors import BackendOptionError, KilnError
from kiln.lowering.gpu.ttir import from_ttir
from kiln.lowering.host.gpu_kernels import GpuCode, kernel_function
from kiln.lowering.host.kernels import kernels_of
from kiln.lowering.host.objects import EDITED, code_of, set_code
from kiln.passes.core import Pass, register_pass
from kiln.passes.file_positions import positions
from kiln.passes.invariants import check_stage

__all__ = ["ReplaceModule"]


@register_pass
@dataclass
class ReplaceModule(Pass):
    """Replace the module, or the code of one kernel, by what a file holds, and say so.

    What follows in the pipeline compiles the file: `KILN_OVERRIDE` (docs/driver.md) puts this pass behind the one whose
    dumped result was edited. Without a file nothing happens.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }

    After::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          return %x : tensor<4xf32>
        }
    """

    name = "replace-module"

    file: str = ""
    """The file's path."""
    kernel: str = ""
    """The kernel whose code the file is, in MLIR, as Triton's text (`.ttir`) or as PTX; empty: it is the module."""
    stage: str = ""
    """The stage whose invariant the file has to keep; empty: none."""

    @override
    def run(self, module: ir.Module) -> None:
        if not self.file:
            return
        try:
            text = Path(self.file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BackendOptionError(f"cannot read {self.file}: {error}") from error
        if self.kernel:
            self._replace_kernel(self._kernel(module), text)
        else:
            self._replace_module(module, self._parsed(text, self.stage))
        first = next(iter(module.body))
        self.note(first, f"replaced by {self.file}")
        self.count("replaced")

    def _parsed(self, text: str, stage: str) -> ir.Module:
        """Raises BackendOptionError, without a cause, whose place would be one in the model, with the file's line."""

        def check(found: ir.Module) -> None:
            if stage:
                check_stage(found, stage)

        try:
            found = parse(text)
            check(found)
        except (ir.MLIRError, KilnError) as error:
            wrong = next(iter(positions(text, check)), None)
            if wrong is None:
                raise BackendOptionError(f"{self.file}: {error}") from error
            place = f":{wrong.line}:{wrong.column}" if wrong.line else ""
            raise BackendOptionError(f"{self.file}{place}: {wrong.message}") from None
        return found

    def _replace_module(self, module: ir.Module, found: ir.Module) -> None:
        old, new = _signature(module), _signature(found)
        if old != new:
            line = self._line_of("func.func @main")
            raise BackendOptionError(f"{self.file}:{line}: @main is {new or 'missing'}, and has to be {old}")
        for op in reversed(list(module.body)):
            op.operation.erase()
        for op in list(found.body):
            module.body.append(op.operation.detach_from_parent())
        attributes = module.operation.attributes
        for key in list(attributes):
            del attributes[key]
        for key in found.operation.attributes:
            attributes[key] = found.operation.attributes[key]

    def _kernel(self, module: ir.Module) -> KernelOp:
        kernel = next((k for k in kernels_of(module) if k.symbol == self.kernel), None)
        if kernel is None or kernel.code is None:
            names = [k.symbol for k in kernels_of(module)]
            message = f"{self.file}:1: there is no code of a kernel {self.kernel!r} here"
            raise BackendOptionError(message, self.kernel, names)
        return kernel

    def _replace_kernel(self, kernel: KernelOp, text: str) -> None:
        kernel.operation.attributes[EDITED] = ir.StringAttr.get(self.file)
        if self.file.endswith(".ptx"):
            self._assemble(kernel, text)
            return
        is_triton = self.file.endswith(".ttir")
        found = self._parsed(from_ttir(text) if is_triton else text, "")
        old, new = _functions(kernel.code), _functions(found)
        if old != new:
            raise BackendOptionError(f"{self.file}:1: the functions are {new}, and have to be {old}")
        if is_triton:
            self._describe_launch(kernel_function(kernel.code), kernel_function(found))
        kernel.put_code(found)

    def _describe_launch(self, old: ir.Operation, new: ir.Operation) -> None:
        """Give Triton IR the attributes that say how it is launched, which Triton is not given."""
        if "kiln.specialized" in old.attributes:
            message = "Kiln schedules this kernel itself, as TTGIR of a template: edit an earlier stage"
            raise BackendOptionError(f"{self.file}:1: {message}")
        types = [str(function.attributes["function_type"]) for function in (old, new)]
        if types[0] != types[1]:
            raise BackendOptionError(f"{self.file}:1: the kernel is {types[1]}, and has to be {types[0]}")
        for name in old.attributes:
            if name not in new.attributes:
                new.attributes[name] = old.attributes[name]

    def _assemble(self, kernel: KernelOp, text: str) -> None:
        code = code_of(kernel)
        if not isinstance(code, GpuCode):
            raise BackendOptionError(f"{self.file}:1: there is no machine code of a GPU here")
        try:
            set_code(kernel, code.with_ptx(text))
        except KilnError as error:
            found = re.search(r"line (\d+): ", str(error))
            raise BackendOptionError(f"{self.file}:{found[1] if found else 1}: {error}") from None

    def _line_of(self, text: str) -> int:
        lines = Path(self.file).read_text(encoding="utf-8").splitlines()
        return next((number for number, line in enumerate(lines, 1) if text in line), 1)


def _signature(module: ir.Module) -> str:
    """The type of @main: what the caller hands over and gets back."""
    main = next((op for op in module.body if op.operation.name == "func.func"), None)
    return "" if main is None else str(main.operation.attributes["function_type"])


def _functions(module: ir.Module) -> str:
    return ", ".join(str(op.operation.attributes["sym_name"]) for op in _code_ops(module))


def _code_ops(module: ir.Module) -> list[ir.OpView]:
    return [op for op in module.operation.regions[0].blocks[0].operations if "sym_name" in op.operation.attributes]
