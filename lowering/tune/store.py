# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What tuning found, in memory and on the disk, for later graphs and processes."""

import hashlib
import json
from dataclasses import asdict, dataclass, field

from kiln.dialects.schedules import Schedule, from_plain, to_plain
from kiln.runtime.disk_cache import DiskCache

__all__ = ["Found", "LibraryVerdict", "TriedSchedule", "TunedSchedules"]

_VERSION = 2


@dataclass(frozen=True)
class TriedSchedule:
    """One candidate: what differs from the default, and its time in seconds, or why it has none."""

    label: str
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class LibraryVerdict:
    """Whether a library is faster than a kernel of its own.

    candidate: which of the library's algorithms, by its own ranking. parts: into how many the own kernel's sums are
    split; parts_seconds: the time of that.
    """

    library: bool
    candidate: int = 0
    parts: int = 1
    parts_seconds: float = 0.0


@dataclass(frozen=True)
class Found:
    """The schedule to use for a kernel; `label` is "default" where that was not beaten.

    `default` and `seconds`: the times of the default's kernel and of this one in the last comparison.
    """

    schedule: Schedule | LibraryVerdict
    label: str
    default: float
    seconds: float
    tried: list[TriedSchedule] = field(default_factory=list[TriedSchedule])

    @property
    def kernel_schedule(self) -> Schedule:
        """The schedule, of what is no verdict about a library."""
        assert isinstance(self.schedule, Schedule), "the key of a kernel is that of no verdict"
        return self.schedule


class TunedSchedules:
    """`Found` by key.

    Args:
        cache: a folder for other processes to find them in; None: in memory only.
        salt: text that is part of each key: what times depend on besides the kernel (versions of the compiler).
    """

    def __init__(self, cache: DiskCache | None = None, salt: str = "") -> None:
        self._cache, self._salt = cache, salt
        self._memory: dict[str, Found] = {}

    def key(self, *parts: object) -> str:
        """The key of all that a schedule was chosen for."""
        return hashlib.sha256("\0".join([str(_VERSION), self._salt, *map(str, parts)]).encode()).hexdigest()

    def get(self, key: str) -> Found | None:
        """What was found for `key`. An entry of the disk that is no such thing is discarded."""
        if key not in self._memory and self._cache is not None:
            data = self._cache.get(key)
            if data is not None:
                try:
                    self._memory[key] = _decoded(data)
                except (ValueError, TypeError, KeyError) as error:
                    self._cache.discard(key, f"no tuned schedule: {error}")
        return self._memory.get(key)

    def put(self, key: str, found: Found) -> None:
        """Keep what was found."""
        self._memory[key] = found
        if self._cache is not None:
            self._cache.put(key, _encoded(found))


def _encoded(found: Found) -> bytes:
    schedule = found.schedule
    plain = {"verdict": asdict(schedule)} if isinstance(schedule, LibraryVerdict) else {"schedule": to_plain(schedule)}
    plain |= {"label": found.label, "default": found.default, "seconds": found.seconds}
    return json.dumps(plain | {"tried": [asdict(t) for t in found.tried]}, sort_keys=True).encode()


def _decoded(data: bytes) -> Found:
    fields = json.loads(data)
    tried = [TriedSchedule(str(t["label"]), float(t["seconds"]), str(t["reason"])) for t in fields["tried"]]
    schedule = LibraryVerdict(**fields["verdict"]) if "verdict" in fields else from_plain(fields["schedule"])
    return Found(schedule, str(fields["label"]), float(fields["default"]), float(fields["seconds"]), tried)
