# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Printing IR before and after passes, in the format of ``mlir-opt --mlir-print-ir-after-all``."""

import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TextIO

from typing_extensions import override

from kiln.dialects import to_text
from kiln.passes.instruments.base import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["PrintIR"]


class PrintIR(Instrument):
    """Print the module before or after passes.

    ``before`` and ``after`` are pass names, or ``None`` for all passes. With ``only_changed`` a print after a pass
    that left the text as it was is skipped. ``out`` is stderr unless given.
    """

    def __init__(
        self,
        *,
        before: Collection[str] | None = (),
        after: Collection[str] | None = (),
        only_changed: bool = False,
        debug_info: bool = False,
        generic: bool = False,
        out: TextIO | None = None,
    ) -> None:
        self._before, self._after = before, after
        self._only_changed = only_changed
        self._debug_info, self._generic = debug_info, generic
        self._out = out
        self._last = ""

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        self._last = self._text(module) if self._only_changed else ""

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if self._before is None or step.name in self._before:
            self._print("Before", step, self._text(module))

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        selected = self._after is None or step.name in self._after
        if not selected and not self._only_changed:
            return
        text = self._text(module)
        if selected and not (self._only_changed and text == self._last):
            self._print("After", step, text)
        self._last = text

    @override
    def pass_failed(self, index: int, step: "PipelineStep", module: "ir.Module", error: "CompileError") -> None:
        if self._after is None or step.name in self._after:
            self._print("After", step, self._text(module, generic=True), " Failed")

    def _text(self, module: "ir.Module", generic: bool = False) -> str:
        # Generic form prints invalid IR as well.
        return to_text(
            module,
            enable_debug_info=self._debug_info,
            print_generic_op_form=self._generic or generic,
            assume_verified=generic,
        ).rstrip("\n")

    def _print(self, when: str, step: "PipelineStep", text: str, suffix: str = "") -> None:
        out = self._out or sys.stderr
        print(f"// -----// IR Dump {when} {step.name}{suffix} //----- //\n{text}\n", file=out, flush=True)
