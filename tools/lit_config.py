# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""lit for tests of passes, Kiln's own and others'. A whole ``lit.cfg.py``::

from kiln.tools.lit_config import configure

configure(config, __file__)
"""

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["configure"]

_TOOLS = ("opt", "explain", "bisect", "reduce", "debug", "check")


def configure(config: Any, file: str, *, name: str = "passes", loads: Sequence[str] = ()) -> None:
    """Fill lit's ``config`` for RUN lines with Kiln's tools, ``filecheck`` (of PyPI) and ``%python``, of this Python.

    Features for REQUIRES: instruction sets of this CPU by LLVM's names, ``x86``, ``triton``, ``objdump``.

    Args:
        file: the ``lit.cfg.py``. Tests lie in its folder and below, their output in ``build/lit`` there; modules in it
            can be imported.
        name: the suite's, for reports.
        loads: Python files that register passes, which every ``kiln-opt`` loads.
    """
    formats: Any = importlib.import_module("lit.formats")
    root = Path(file).resolve().parent
    config.name = name
    config.test_format = formats.ShTest(execute_external=False)
    # Other Python files may be pytest's.
    config.suffixes = [".mlir", ".lit.py", ".test"]
    config.excludes = ["Inputs", "Output", "__pycache__", "conftest.py", "build", "kiln"]
    config.test_source_root = str(root)
    config.test_exec_root = str(root / "build" / "lit")
    config.available_features |= _features()
    # The tools of this Python first.
    config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # A checkout is tested as it stands, also beside an installation.
    config.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    config.environment["KILN_MACHINE"] = "none"
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "KILN_CACHE_DIR"):
        if variable in os.environ:
            config.environment[variable] = os.environ[variable]
    # Set on the command itself: lit's built-in `cat` replaces PYTHONPATH for what follows it.
    python = f"env PYTHONPATH={config.environment['PYTHONPATH']} {sys.executable}"
    loaded = "".join(f" --load={root / path}" for path in loads)
    commands = {f"kiln-{tool}": f"{python} -m kiln.tools.kiln_{tool}" for tool in _TOOLS}
    commands["kiln-opt"] += loaded
    commands["filecheck"] = f"{python} -m filecheck"
    # Whole words only, so that file names and options which hold them stay.
    config.substitutions += [(rf"(?<![\w./-]){name}(?![\w.-])", command) for name, command in commands.items()]
    config.substitutions.append(("%python", python))


def _features() -> set[str]:
    import llvmlite.binding

    from kiln.lowering.cpu.disassembly import DISASSEMBLERS

    # Instruction sets that schedules written into a test may need, by LLVM's names.
    found = {name for name, is_there in llvmlite.binding.get_host_cpu_features().items() if is_there}
    if platform.machine() in ("x86_64", "AMD64"):
        found.add("x86")
    # Kernels for GPUs are compiled by Triton, with or without a GPU.
    if importlib.util.find_spec("triton") is not None:
        found.add("triton")
    if any(map(shutil.which, DISASSEMBLERS)):
        found.add("objdump")
    return found
