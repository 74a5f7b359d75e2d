# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory for kernels that are not trusted yet."""

import torch

__all__ = ["Guarded"]

_MARGIN = 4096  # bytes: more than a register tile or a row of tiles that begins or ends elsewhere than it should
_FILL = 0xA5
_LINE = 64


class Guarded:
    """Bytes that begin at a cache line, and a margin on both sides which tells whether something was written there."""

    def __init__(self, count: int) -> None:
        self._memory = torch.full((count + 2 * _MARGIN + _LINE,), _FILL, dtype=torch.uint8)
        self._start = -self._memory.data_ptr() % _LINE + _MARGIN
        self.bytes = self._memory[self._start : self._start + count]

    def is_intact(self) -> bool:
        """Whether the margins are as they were."""
        before, behind = self._memory[: self._start], self._memory[self._start + len(self.bytes) :]
        return bool((before == _FILL).all() and (behind == _FILL).all())
