# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Inputs of a call that nothing else refers to."""

from typing import Any

__all__ = ["OwnedInputs"]


class OwnedInputs(list[Any]):
    """A list of inputs that the program of a plan empties, so that each tensor is freed behind the last step that reads
    it: what a forward graph saved goes while the backward graph runs. A list of another type stays as it is.
    """

    __slots__ = ()
