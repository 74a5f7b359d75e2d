# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Files with the IR at each step or stage."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.dialects import to_text
from kiln.errors import KilnError
from kiln.passes.instruments.base import Instrument
from kiln.passes.instruments.manifest import MANIFEST, graph_digest, record

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes.manager import PipelineStep

__all__ = ["StageDump"]


class StageDump(Instrument):
    """Write the module to ``directory``: ``00-input.mlir``, then ``NN-<pass>.mlir`` after each pass that ran.

    The file of a step that completes a stage ends in that stage: ``07-fuse-elementwise.fused.mlir``. With
    ``stages_only`` just those are written, and what own passes left. Files are complete on disk before the next pass
    starts, so that they survive a crash of the process. Values have the names that the model has for them, with
    ``debug_info``. ``digests.txt`` says which graph it is, and what was written (``manifest.py``).

    A folder that cannot be written to is a KilnError.
    """

    def __init__(self, directory: str | Path, *, stages_only: bool = False, debug_info: bool = False) -> None:
        self.directory = Path(directory)
        self.files: list[Path] = []
        self._stages_only, self._debug_info = stages_only, debug_info
        self._count = 0

    @override
    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if not self._count:
                (self.directory / MANIFEST).write_text(f"graph {graph_digest(module)}\n", encoding="utf-8")
        except OSError as error:
            raise self._failure(error) from error
        if not self._count:  # a later run goes on with the same module
            self._write("00-input.mlir", module)

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        self._count += 1
        if step.stage or step.is_inserted or not self._stages_only:
            stage = f".{step.stage}" if step.stage else ""
            self._write(f"{self._count:02d}-{_file_name(step.name)}{stage}.mlir", module)

    def _write(self, name: str, module: "ir.Module") -> None:
        path = self.directory / name
        try:
            text = to_text(module, enable_debug_info=self._debug_info, use_name_loc_as_prefix=self._debug_info)
            record(path, text.encode())
        except OSError as error:
            raise self._failure(error) from error
        self.files.append(path)

    def _failure(self, error: OSError) -> KilnError:
        return KilnError(f"cannot write stages to {self.directory}: {error.strerror}")


def _file_name(pass_name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in pass_name)
    return kept.strip("-")[:60]
