# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What passes have to say in PyTorch's logs: ``TORCH_LOGS="kiln_fusion,kiln_schedule,kiln_code"``.

Python's loggers have no topics, and TORCH_LOGS takes names of modules alone: a topic is an empty module of its name
(`topics/`), and what it shows is shown by names of single passes, too: ``TORCH_LOGS="+kiln.passes.schedule_cpu"``, say.
``+kiln`` alone shows neither schedules nor code, which would hide its other lines.
"""

import logging
from collections.abc import Callable

__all__ = ["CODE", "SCHEDULES", "is_logged", "log_of"]

Log = Callable[..., None]
SCHEDULES = ("schedule-cpu", "schedule-gpu")
CODE = ("emit-kernels", "lower-to-llvm")
"""Passes behind which kernels are code that is worth reading: loops of vectors or Triton IR, and LLVM's dialect."""
_TOPICS = {"kiln_fusion": ("fuse",), "kiln_schedule": SCHEDULES, "kiln_code": CODE}


def log_of(name: str, *, is_long: bool = False) -> Log | None:
    """Takes what a pass has to say, if somebody asked for its topic or for the pass; `is_long`: asked for by name."""
    topics = (logging.getLogger(topic) for topic, names in _TOPICS.items() if name in names)
    # A level of its own: an application that shows the INFO of everything did not ask for code.
    asked = next(
        (topic for topic in topics if topic.level != logging.NOTSET and topic.isEnabledFor(logging.INFO)), None
    )
    if asked is not None:
        return asked.info
    own = logging.getLogger(f"kiln.passes.{name.replace('-', '_')}")
    is_hidden = is_long and logging.getLogger("kiln").isEnabledFor(logging.DEBUG)
    return own.debug if own.isEnabledFor(logging.DEBUG) and not is_hidden else None


def is_logged() -> bool:
    """Whether somebody wants to see schedules or code, which the cache does not have."""
    return any(log_of(name, is_long=True) for name in (*SCHEDULES, *CODE))
