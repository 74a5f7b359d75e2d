# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A number of the CPU as a tensor of a GPU, which kernels can read.

Eager hands the value of a CPU tensor without dims to a GPU's kernel when it launches it. A copy would wait for the GPU,
or read pinned memory after the caller has changed it; ``full`` takes the value now and waits for nothing.
"""

import torch

__all__ = ["NUMBER_ON"]

NUMBER_ON = "kiln.number_on.default"
"""``number_on(Tensor value, Device device) -> Tensor``: a new tensor without dims on ``device``."""

_library = torch.library.Library("kiln", "FRAGMENT")
_library.define("number_on(Tensor value, Device device) -> Tensor")


def _number_on(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    if value.dtype is torch.uint64:  # numbers of `full` are signed
        return value.to(device)
    return torch.full((), value.item(), dtype=value.dtype, device=device)


_library.impl("number_on", _number_on, "CompositeExplicitAutograd")
