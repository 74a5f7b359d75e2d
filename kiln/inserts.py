# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Own passes in a target's pipeline (docs/first-pass.md). Needs no MLIR: graphs from the cache name them in their keys.

torch.compile(model, backend="kiln", options={"passes": [kiln.Insert(MyPass(), after="fuse")]})
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kiln import entry_points
from kiln.errors import KilnError

if TYPE_CHECKING:
    from kiln.passes.core import Pass

__all__ = ["Insert", "installed"]


@dataclass(frozen=True)
class Insert:
    """A pass, or pipeline text, and where it stands in the pipeline of each target.

    ``after`` and ``before`` name a pass, or a stage ("fused"). Where a name occurs several times, ``after`` means the
    last one and ``before`` the first one. A pass that stands behind a stage has to keep the stage's invariant.

    Raises KilnError unless exactly one of the two is given.
    """

    passes: "Pass | str"
    after: str = ""
    before: str = ""

    def __post_init__(self) -> None:
        if bool(self.after) == bool(self.before):
            raise KilnError(f"{self.passes}: say either after= or before= which pass or stage it is to stand")

    @property
    def place(self) -> str:
        """Where it stands, as a person says."""
        return f"after {self.after}" if self.after else f"before {self.before}"


@functools.cache
def installed() -> tuple[Insert, ...]:
    """Those of installed packages. Raises KilnError for an entry point that is something else."""
    found: list[Insert] = []
    for name, value in entry_points.load(entry_points.PASSES):
        several = cast(Sequence[object], value if isinstance(value, list | tuple) else [value])
        for insert in several:
            if not isinstance(insert, Insert):
                raise KilnError(f"entry point {name!r} of {entry_points.PASSES} is no kiln.Insert, but {insert!r}")
            found.append(insert)
    return tuple(found)
