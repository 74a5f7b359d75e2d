# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Write type stubs for MLIR's bindings, which come without, to ``typings/``: ``python -m kiln.tools.gen_typings``."""

import importlib
import shutil
import sys
from pathlib import Path

from kiln.tools.stubs import native, sources

__all__ = ["main"]

# Extension modules, and under what name Kiln imports them.
_NATIVE = {
    "_mlir": "_mlir_libs/_mlir/__init__",
    "_mlir.ir": "ir",
    "_mlir.passmanager": "passmanager",
    "_mlir.rewrite": "rewrite",
    "_mlirDialectsIRDL": "_mlir_libs/_mlirDialectsIRDL",
    "_mlirDialectsLLVM": "_mlir_libs/_mlirDialectsLLVM",
    "_mlirDialectsLinalg": "_mlir_libs/_mlirDialectsLinalg",
    "_mlirExecutionEngine": "_mlir_libs/_mlirExecutionEngine",
    "_torchMlir": "_mlir_libs/_torchMlir",
}

# The dialects that Kiln's sources import.
_DIALECTS = ("arith", "func", "irdl", "linalg", "llvm", "math", "memref", "scf", "tensor", "vector")

# Other modules of the bindings.
_MODULES = ("dialects/ext", "dialects/_ods_common", "execution_engine", "extras/fx_importer", "extras/meta")

# Libraries without annotations or whose annotations are of no use: what pyright infers of sympy is that all is a Basic.
_UNTYPED = (
    *("llvmlite/binding", "mpmath/__init__", "nanobind/stubgen", "sympy/__init__", "triton/__init__"),
    *("triton/backends/compiler", "triton/compiler/compiler"),
)
_ANY = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def main(root: str = ".") -> int:
    """Write `<root>/typings`: stubs of the bindings and of libraries without types. Returns the exit status."""
    typings = Path(root) / "typings"
    shutil.rmtree(typings, ignore_errors=True)
    try:
        found = native.generate()
    except ImportError as error:
        print(f"error: cannot generate stubs (is nanobind installed?): {error}", file=sys.stderr)
        return 1
    target = typings / "torch_mlir"
    for module, text in found.items():
        _write(target / f"{_NATIVE[module]}.pyi", native.correct(module, text))
    package = Path(str(importlib.import_module("torch_mlir.ir").__file__)).parent
    for name in (*_MODULES, *(part for dialect in _DIALECTS for part in _parts(dialect))):
        source = package / f"{name}.py"
        is_package = not source.exists()
        if is_package:
            source = package / name / "__init__.py"
        if source.exists():
            text = sources.stub_of(source.read_text(encoding="utf-8"), name.rpartition("/")[2])
            _write(target / (f"{name}/__init__.pyi" if is_package else f"{name}.pyi"), text)
    for folder in ("", "_mlir_libs", "dialects", "extras"):
        _write(target / folder / "__init__.pyi", "")
    for name in _UNTYPED:
        _write(typings / f"{name}.pyi", _ANY)
    for name in {str(Path(name).parent) for name in _UNTYPED} | {"triton/backends", "triton/compiler"}:
        _write(typings / name / "__init__.pyi", _ANY)
    return 0


def _parts(dialect: str) -> list[str]:
    """The modules of one dialect: what is generated from ODS, and what is written by hand."""
    return [f"dialects/_{dialect}_ops_gen", f"dialects/_{dialect}_enum_gen", f"dialects/{dialect}"]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
