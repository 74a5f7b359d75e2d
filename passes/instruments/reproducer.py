# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A failing pass leaves the IR it was given, and the command that runs it on that IR again."""

import hashlib
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import parse, to_text
from kiln.passes.instruments.base import Instrument
from kiln.passes.registry import registered_passes

if TYPE_CHECKING:
    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["Reproducer"]


class Reproducer(Instrument):
    """On failure writes ``<pass>-<hash>.mlir`` to ``directory`` (the system's temporary folder unless given).

    The pipeline's input is kept as text; the IR before the failing pass is made from it by running the earlier passes
    once more (passes are deterministic), so that a run that does not fail pays for one print alone. If that does not
    work out, the file holds the input and the command the whole pipeline up to the failing pass.
    The error's ``reproducer`` and ``command`` are set. The file name depends on the contents only.
    """

    kernel_by_kernel = True

    def __init__(self, directory: str | Path | None = None, *, command: str = "kiln-opt") -> None:
        self._directory = Path(directory) if directory is not None else Path(tempfile.gettempdir()) / "kiln-reproducers"
        self._command = command
        self._input = ""
        self._steps: list[PipelineStep] = []

    @override
    def before_pipeline(self, module: ir.Module, steps: "Sequence[PipelineStep]") -> None:
        self._input = _text(module)
        self._steps = list(steps)

    @override
    def pass_failed(self, index: int, step: "PipelineStep", module: ir.Module, error: "CompileError") -> None:
        if error.reproducer is not None:
            return
        text, steps = self._before(index, module.context)
        pipeline = ",".join(s.pass_.spec() for s in steps)
        digest = hashlib.sha256((pipeline + text).encode()).hexdigest()[:10]
        name = "".join(c if c.isalnum() or c == "-" else "-" for c in step.name).strip("-")[:40]
        path = self._directory / f"{name}-{digest}.mlir"
        options = [*_loads(steps), *error.options, f"--pass-pipeline={pipeline}"]
        option = " ".join(shlex.quote(option) for option in options)
        header = f"// {' '.join(error.message.split())}\n// RUN: {self._command} {option} %s\n"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            path.write_text(header + text, encoding="utf-8")
        except OSError:
            # A disk that cannot be written must not hide the error that is being reported.
            return
        error.set_reproducer(str(path), f"{self._command} {option} {shlex.quote(str(path))}")

    def _before(self, index: int, context: ir.Context) -> "tuple[str, list[PipelineStep]]":
        try:
            with context, ir.Location.unknown():
                module = parse(self._input)
                for step in self._steps[:index]:
                    step.pass_.run(module)
                return _text(module), [self._steps[index]]
        except Exception:
            return self._input, self._steps[: index + 1]


def _loads(steps: "Sequence[PipelineStep]") -> list[str]:
    """``--load`` options for the registered passes that are no part of Kiln: the files that define them."""
    found = [type(step.pass_) for step in steps if not type(step.pass_).__module__.startswith("kiln.")]
    known = set(registered_passes().values())
    files = [Path(cls.run.__code__.co_filename).resolve() for cls in found if cls in known]
    return list(dict.fromkeys(f"--load={file}" for file in files))


def _text(module: ir.Module) -> str:
    return to_text(module, enable_debug_info=True)
