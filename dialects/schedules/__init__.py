# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The schedules of kernels, as they stand in text. `cpu.py` and `gpu.py` have the kernels, `base.py` how they are
read.
"""

from kiln.dialects.schedules import cpu as _cpu  # noqa: F401 - its classes register their kernels
from kiln.dialects.schedules import gpu as _gpu  # noqa: F401 - its classes register their kernels
from kiln.dialects.schedules.base import (
    InvalidSchedule,
    PartsSchedule,
    Schedule,
    field_texts,
    from_attribute,
    from_plain,
    kernels,
    pieces,
    to_attribute,
    to_plain,
)

__all__ = [
    "InvalidSchedule",
    "PartsSchedule",
    "Schedule",
    "field_texts",
    "from_attribute",
    "from_plain",
    "kernels",
    "pieces",
    "to_attribute",
    "to_plain",
]
