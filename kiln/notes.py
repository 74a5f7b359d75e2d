# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a pass has to say about an op. Needs no MLIR: reports hold notes, in processes that only load code as well."""

from dataclasses import dataclass

__all__ = ["Note"]


@dataclass(frozen=True)
class Note:
    """One remark of a pass: strings only, since the op may be erased later."""

    pass_name: str
    op: str
    location: str
    reason: str

    def __str__(self) -> str:
        return f"{self.location}: {self.op}: {self.reason} [{self.pass_name}]"
