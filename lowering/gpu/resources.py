# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a compiled kernel needs of a multiprocessor, for people to read and for tests of spills."""

import importlib.util
import re
import subprocess
import tempfile
from pathlib import Path

from kiln.lowering.gpu.compile import Artifacts

__all__ = ["resources", "stack_bytes"]


def resources(made: Artifacts) -> str:
    """One line: warps, bytes of shared memory and of a thread's stack, and the blocks of tensor maps."""
    data = made.metadata
    parts = [f"{data['num_warps']} warps", f"{data['shared']} bytes of shared memory"]
    stack = stack_bytes(made)
    if stack is not None:
        parts.append(f"{stack} bytes of stack")
    blocks = [str(list(m["block_size"])) for m in data.get("tensordesc_meta") or ()]
    if blocks:
        parts.append(f"tensor maps of {' '.join(blocks)}")
    return ", ".join(parts)


def stack_bytes(made: Artifacts) -> int | None:
    """Bytes of stack that a thread of a cubin uses: what registers do not hold is spilled there.

    None where the kernel is for other GPUs, or Triton came without `cuobjdump`.
    """
    if made.cubin is None or ".target sm_" not in made.assembly:
        return None
    found = importlib.util.find_spec("triton.backends.nvidia")
    folders = found.submodule_search_locations if found is not None else None
    tool = Path(folders[0] if folders else "") / "bin" / "cuobjdump"
    if not tool.exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(made.cubin)
        shown = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    used = re.search(r"STACK:(\d+)", shown)
    return None if used is None else int(used[1])
