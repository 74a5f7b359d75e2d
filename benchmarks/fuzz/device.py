# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whose fault it is where a GPU stops to work for a process.

A kernel that reads memory that it may not read makes every later call of CUDA fail, and shows at any of them. So the
process waits for the GPU before and behind what eager computes, and ends when its GPU is gone.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class EagerBreaksDevice(RuntimeError):
    """A program's eager computation, and not the compiled one before it, has broken the GPU for this process."""


def settle(device: str) -> None:
    """Waits for a GPU; raises what its kernels have not told yet."""
    if device == "cuda":
        torch.cuda.synchronize()


def works(device: str) -> bool:
    """Whether this process can go on with a device."""
    try:
        settle(device)
    except RuntimeError:
        return False
    return True


@contextmanager
def computed_by_eager(device: str) -> Generator[None]:
    """What breaks the GPU in between is eager's: `EagerBreaksDevice`. What broke it before is raised as it is."""
    settle(device)
    try:
        yield
        settle(device)
    except RuntimeError as error:
        if works(device):
            raise
        raise EagerBreaksDevice(f"eager breaks the GPU: {str(error).splitlines()[0]}") from error


class LikeOnGpu(TorchFunctionMode):
    """Has calls on CPU tensors fail that would break a GPU.

    Eager's kernels for attention load 16 bytes at once, without a look at the address (pytorch/pytorch#183484).
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "attention" in getattr(func, "__name__", ""):
            tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            if not all(_takes_16_bytes(x) for x in tensors):
                raise RuntimeError("attention of operands that do not begin at multiples of 16 bytes")
        return func(*args, **(kwargs or {}))


def _takes_16_bytes(x: torch.Tensor) -> bool:
    size = x.itemsize
    if x.data_ptr() % 16:
        return False
    if x.dim() == 0 or x.shape[-1] * size % 16:  # PyTorch pads these rows
        return True
    return not any(step * size % 16 for step, n in zip(x.stride()[:-1], x.shape[:-1], strict=True) if n > 1)
