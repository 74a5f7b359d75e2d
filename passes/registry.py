# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finding passes by name, importing as little as possible.

``fuse-elementwise`` is looked for among the registered passes, then in ``kiln/passes/fuse_elementwise.py``; only
when neither has it, and MLIR does not know the name, is every module of the package imported.
"""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

from kiln.entry_points import PASSES
from kiln.errors import KilnError
from kiln.inserts import installed
from kiln.passes.core import Pass, registered_passes

__all__ = ["all_passes", "find_pass", "import_all", "load_passes_from", "pass_names"]


def find_pass(name: str, *, everywhere: bool = True) -> type[Pass] | None:
    """The class of the Kiln pass ``name``, or None.

    ``everywhere=False`` stops at the module that the naming rule gives, so that asking for a pass of MLIR is cheap.
    """
    found = registered_passes().get(name)
    if found is not None:
        return found
    module = f"kiln.passes.{name.replace('-', '_')}"
    if name.replace("-", "_").isidentifier() and importlib.util.find_spec(module) is not None:
        _import(module)
        if name in registered_passes():
            return registered_passes()[name]
    if everywhere:
        import_all()
    return registered_passes().get(name)


def import_all() -> dict[str, str]:
    """Import every module of ``kiln.passes``, and the passes of installed packages.

    Returns what could not be imported, module name to reason.
    """
    import kiln.passes

    failures: dict[str, str] = {}
    for info in pkgutil.iter_modules(kiln.passes.__path__):
        if not info.name.startswith("_"):
            try:
                _import(f"kiln.passes.{info.name}")
            except KilnError as error:
                failures[f"kiln.passes.{info.name}"] = str(error)
    try:
        installed()  # whose modules register their passes
    except KilnError as error:
        failures[PASSES] = str(error)
    return failures


def all_passes() -> dict[str, type[Pass]]:
    """Every Kiln pass by name, sorted; imports the whole package.

    Raises :class:`KilnError` naming the module when one cannot be imported.
    """
    for message in import_all().values():
        raise KilnError(message)
    return dict(sorted(registered_passes().items()))


def pass_names() -> list[str]:
    """Names for suggestions: leaves out what cannot be imported."""
    import_all()
    return sorted(registered_passes())


def load_passes_from(path: str) -> list[str]:
    """Run the Python file ``path`` so that the passes it defines are registered; returns their names."""
    before = set(registered_passes())
    file = Path(path)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise KilnError(f"cannot load passes from {path!r}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        # Before it runs: dataclasses look their module up there.
        sys.modules.setdefault(file.stem, module)
        spec.loader.exec_module(module)
    except Exception as error:
        raise KilnError(f"cannot load passes from {path!r}: {type(error).__name__}: {error}") from error
    return sorted(set(registered_passes()) - before)


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except KilnError:
        raise
    except Exception as error:
        raise KilnError(f"cannot import {module}: {type(error).__name__}: {error}") from error
