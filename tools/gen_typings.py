# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Write type stubs for MLIR's bindings, which come without, to ``typings/``: ``python -m kiln.tools.gen_typings``."""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["main"]

_BINDINGS = "torch_mlir._mlir_libs._mlir"
_MODULES = ("ir", "passmanager", "rewrite")


def main(root: str = ".") -> int:
    """Write ``<root>/typings/torch_mlir/*.pyi`` with nanobind's generator. Returns the exit status."""
    # The stub generator imports the extension; loading the package first finds its libraries.
    importlib.import_module("torch_mlir.ir")
    target = Path(root) / "typings" / "torch_mlir"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-r", "-m", _BINDINGS, "-O", work]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
            print(f"error: cannot generate stubs (is nanobind installed?): {reason[0]}", file=sys.stderr)
            return 1
        for module in _MODULES:
            text = (Path(work) / "_mlir" / f"{module}.pyi").read_text(encoding="utf-8")
            # The package by its public name; in ir.pyi itself by nothing.
            text = text.replace("import _mlir.ir\n", "" if module == "ir" else "import torch_mlir.ir\n")
            text = text.replace("_mlir.ir.", "" if module == "ir" else "torch_mlir.ir.")
            (target / f"{module}.pyi").write_text(text.replace("torch_torch_mlir.", "torch_mlir."), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
