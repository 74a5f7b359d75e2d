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

# sympy has no annotations, and what pyright infers (everything is a Basic) is of no use.
_SYMPY = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def main(root: str = ".") -> int:
    """Write ``<root>/typings/torch_mlir/*.pyi`` with nanobind's generator. Returns the exit status."""
    # The stub generator imports the extension; loading the package first finds its libraries.
    importlib.import_module("torch_mlir.ir")
    target = Path(root) / "typings" / "torch_mlir"
    target.mkdir(parents=True, exist_ok=True)
    sympy = target.with_name("sympy") / "__init__.pyi"
    sympy.parent.mkdir(exist_ok=True)
    sympy.write_text(_SYMPY, encoding="utf-8")
    with tempfile.TemporaryDirectory() as work:
        command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-r", "-m", _BINDINGS, "-O", work]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or ["no output"]
            print(f"error: cannot generate stubs (is nanobind installed?): {reason[0]}", file=sys.stderr)
            return 1
        for module in _MODULES:
            text = (Path(work) / "_mlir" / f"{module}.pyi").read_text(encoding="utf-8")
            if module == "ir":
                text = _loosen(text)
            # The package by its public name; in ir.pyi itself by nothing.
            text = text.replace("import _mlir.ir\n", "" if module == "ir" else "import torch_mlir.ir\n")
            text = text.replace("_mlir.ir.", "" if module == "ir" else "torch_mlir.ir.")
            (target / f"{module}.pyi").write_text(text.replace("torch_torch_mlir.", "torch_mlir."), encoding="utf-8")
    return 0


def _loosen(text: str) -> str:
    """Correct what the generator cannot know: the bindings hand out the most derived class of each of these."""
    for name in ("AffineExpr", "Attribute", "Type"):
        head = f"\nclass {name}:\n"
        assert head in text, name
        text = text.replace(head, f"{head}    def __getattr__(self, name: str, /) -> Any: ...\n\n")
    # A block argument's owner is a block; code that has ruled that out should not need to say so.
    text = text.replace("def owner(self) -> OpView | Block:", "def owner(self) -> Any:")
    # Read only: a dict of any kind of attribute will do.
    text = text.replace("attributes: dict[str, Attribute]", "attributes: Mapping[str, Attribute]")
    text = text.replace("from collections.abc import Callable", "from collections.abc import Callable, Mapping")
    return text.replace("from typing import Final", "from typing import Any, Final")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
