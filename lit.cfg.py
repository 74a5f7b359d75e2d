# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# Configuration of lit: `lit test` from the root, in a checkout or with an installed kiln-mlir.

import importlib.util
import os
import platform
import sys
from pathlib import Path

import lit.formats
import llvmlite.binding

root = Path(__file__).resolve().parent
bin_dir = Path(sys.executable).parent

config.name = "Kiln"
config.test_format = lit.formats.ShTest(execute_external=False)
# Other Python files under test/ are pytest's.
config.suffixes = [".mlir", ".lit.py", ".test"]
config.excludes = ["Inputs", "Output", "__pycache__", "conftest.py", "build", "kiln"]
# The root, not test/: `lit test` names folders relative to where this file is.
config.test_source_root = str(root)
config.test_exec_root = str(root / "build" / "lit")
# Instruction sets that schedules written into a test may need, by LLVM's names.
config.available_features |= {name for name, is_there in llvmlite.binding.get_host_cpu_features().items() if is_there}
if platform.machine() in ("x86_64", "AMD64"):
    config.available_features.add("x86")
# Kernels for GPUs are compiled by Triton, with or without a GPU.
if importlib.util.find_spec("triton") is not None:
    config.available_features.add("triton")

# The tools of this Python first.
config.environment["PATH"] = os.pathsep.join([str(bin_dir), os.environ.get("PATH", "")])
# A checkout is tested as it stands, also beside an installation.
config.environment["KILN_MACHINE"] = "none"
config.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "KILN_CACHE_DIR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# Set on the command itself: lit's built-in `cat` replaces PYTHONPATH for what follows it.
python = f"env PYTHONPATH={config.environment['PYTHONPATH']} {sys.executable}"
# Whole words only, so that file names and options which hold them stay.
config.substitutions += [
    (r"(?<![\w./-])kiln-opt(?![\w.-])", f"{python} -m kiln.tools.kiln_opt"),
    (r"(?<![\w./-])kiln-explain(?![\w.-])", f"{python} -m kiln.tools.kiln_explain"),
    (r"(?<![\w./-])kiln-bisect(?![\w.-])", f"{python} -m kiln.tools.kiln_bisect"),
    (r"(?<![\w./-])kiln-reduce(?![\w.-])", f"{python} -m kiln.tools.kiln_reduce"),
    (r"(?<![\w./-])filecheck(?![\w.-])", f"{python} -m filecheck"),
    ("%python", python),
]
