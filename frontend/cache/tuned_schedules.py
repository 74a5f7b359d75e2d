# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where ``mode="max-autotune"`` keeps the schedules that it found."""

import functools
from pathlib import Path

from kiln.frontend import knobs
from kiln.frontend.cache.graph_key import version_text
from kiln.frontend.options import Options
from kiln.lowering.tune.store import TunedSchedules
from kiln.runtime.disk_cache import DiskCache

__all__ = ["tuned_schedules"]


def tuned_schedules(options: Options) -> TunedSchedules:
    """Those of this process, and with the persistent cache on those of other processes with the same versions."""
    return _opened(knobs.tuned_dir() if options.cache else None)


@functools.lru_cache(maxsize=8)
def _opened(folder: Path | None) -> TunedSchedules:
    return TunedSchedules(DiskCache(folder, knobs.TUNED_BYTES) if folder is not None else None, version_text())
