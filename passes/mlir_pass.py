# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""MLIR's own passes as Kiln passes: a pipeline string that ``torch_mlir.passmanager`` runs."""

import functools
import importlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_mlir import ir
from torch_mlir.passmanager import PassManager as MlirPassManager

from kiln.passes.core import Pass

__all__ = ["MlirPass", "check_mlir_pipeline", "mlir_pass_names"]


@dataclass
class MlirPass(Pass):
    """A pass pipeline of MLIR, anchored on ``builtin.module``: ``builtin.module(func.func(canonicalize),cse)``."""

    pipeline: str = "builtin.module()"
    label: str = ""

    @property
    def name(self) -> str:  # type: ignore[override] - a field of other passes
        """The text the pipeline was written with."""
        return self.label or self.pipeline

    def spec(self) -> str:
        """The pipeline text, as written."""
        return self.name

    def run(self, module: ir.Module) -> None:
        """Run it. Raises ``ir.MLIRError`` with MLIR's diagnostics."""
        manager = MlirPassManager.parse(self.pipeline)
        # Verification between passes belongs to the VerifyEach instrument.
        manager.enable_verifier(False)
        manager.run(module.operation)


@functools.lru_cache(maxsize=1024)
def check_mlir_pipeline(pipeline: str) -> str | None:
    """None when MLIR accepts the pipeline, else its complaint on one line."""
    # Importing it registers torch-mlir's passes; upstream's come with ``torch_mlir.ir``.
    importlib.import_module("torch_mlir._mlir_libs._torchMlir")
    # A context of its own: the answer depends on the registered passes alone, not on loaded dialects.
    try:
        with ir.Context():
            MlirPassManager.parse(pipeline)
    except ValueError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = "; ".join(line for line in lines if set(line) != {"^"})
        return text or "MLIR rejects it without a reason"
    return None


def mlir_pass_names() -> list[str]:
    """Names of MLIR's passes for suggestions, asked of ``torch-mlir-opt``; empty when that tool is not there."""
    tool = Path(sys.executable).with_name("torch-mlir-opt")
    path = str(tool) if tool.exists() else shutil.which("torch-mlir-opt")
    if path is None:
        return []
    try:
        text = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    # Passes stand six columns in, their options eight.
    names = [line.split()[0][2:] for line in text.splitlines() if line.startswith("      --")]
    return [name for name in names if "=" not in name]
