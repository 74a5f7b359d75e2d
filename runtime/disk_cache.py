# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A folder of byte strings by key that several processes may read and write at once.

An entry is one file: a magic, a version, where it came from, a SHA-256 digest over that, the key and the payload, the
payload (``seal``). It is written
under another name and renamed, so a reader sees all of it or nothing; what a killed writer or a failing disk leaves
does not match its digest and is discarded. Nothing in it is unpickled. The least recently used entries go when the
folder outgrows its bound.

Entries hold machine code: those that another user may have written are not read (``runtime/trusted_files.py``), and a
folder in which others may write is neither read nor written.

Nothing here raises for the state of the disk: a cache that cannot be read is empty, one that cannot be written stays
as it is, and a note in the log (``logging.getLogger("kiln")``) says so once.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kiln.runtime import trusted_files
from kiln.runtime.trusted_files import UntrustedPathError

__all__ = ["COMPILED", "IMPORTED", "DiskCache", "Entry", "seal", "unseal"]

log = logging.getLogger("kiln")

_MAGIC = b"KILNCACH"
_VERSION = 2
_HEADER = struct.Struct("<8sII32s")
_SUFFIX = ".kiln"
_PART = ".part"
_STALE_SECONDS = 3600.0
"""Age at which a file that was never renamed is taken for a killed writer's."""
_LOW_WATER = 0.9
"""Share of the bound that eviction leaves, so that not every write evicts."""


COMPILED, IMPORTED = range(2)
"""Where an entry came from: this machine's compilations, or artifacts that were loaded (of another machine, say)."""


@dataclass(frozen=True)
class Entry:
    """One stored entry: its key, bytes on the disk, and when it was last used (seconds since the epoch)."""

    key: str
    bytes: int
    used: float


class DiskCache:
    """Byte strings in ``folder``, together not above ``max_bytes`` for long.

    Keys are names of files: hexadecimal digests, at least two characters. ``refusal``: why an entry was not read, or
    the folder not used, where others may have written to it; empty if nothing was refused.
    """

    refusal = ""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self._noted: set[str] = set()
        self._size: int | None = None  # as far as this process knows; None before its first write
        self._lock = threading.Lock()

    def get(self, key: str, *, is_use: bool = True) -> bytes | None:
        """The payload of ``key``, or None if there is none that is whole. ``is_use``: note that it was used now."""
        path = self._path(key)
        try:
            with trusted_files.opened(path) as file:
                data = file.read()
                with contextlib.suppress(OSError):  # read-only folders forget what was used last
                    if is_use:
                        os.utime(file.fileno() if os.utime in os.supports_fd else path)
        except FileNotFoundError:
            return None
        except UntrustedPathError as refusal:
            self._refuse(refusal)
            return None
        except OSError as error:
            self._note(f"cannot read the cache in {self.folder}: {error.strerror or error}")
            return None
        payload = unseal(key, data)
        if payload is None:
            self.discard(key, "it is cut off, damaged or of another version")
            return None
        return payload

    def has(self, key: str) -> bool:
        """Whether there is an entry, whole or not."""
        return self._path(key).exists()

    def origin(self, key: str) -> int | None:
        """Where an entry came from; None if that cannot be read."""
        try:
            with self._path(key).open("rb") as file:
                found = _HEADER.unpack(file.read(_HEADER.size))
        except (OSError, struct.error):
            return None
        return found[2] if found[:2] == (_MAGIC, _VERSION) else None

    def put(self, key: str, payload: bytes, origin: int = COMPILED) -> bool:
        """Store ``payload``, replacing what was there. Returns whether it could be."""
        path = self._path(key)
        part = f".{key[:16]}-{os.getpid()}-{secrets.token_hex(4)}{_PART}"
        try:
            with trusted_files.folder(path.parent, create=True) as inside:
                _write(path.parent, inside, part, path.name, seal(key, payload, origin))
        except UntrustedPathError as refusal:
            self._refuse(refusal)
            return False
        except OSError as error:
            self._note(f"cannot write to the cache in {self.folder}: {error.strerror or error}")
            return False
        self._bound(_HEADER.size + len(payload))
        return True

    def discard(self, key: str, reason: str) -> None:
        """Remove an entry, with a note."""
        log.warning("kiln: cache entry %s is discarded: %s", key, reason)
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def entries(self) -> list[Entry]:
        """What is stored, the least recently used first."""
        found = [Entry(path.name.removesuffix(_SUFFIX), size, used) for path, size, used in self._files(_SUFFIX)]
        return sorted(found, key=lambda entry: (entry.used, entry.key))

    def clear(self) -> tuple[int, int]:
        """Remove everything. Returns how many files went and their bytes; those that cannot be removed stay."""
        count = freed = 0
        for suffix in (_SUFFIX, _PART):
            for path, size, _ in list(self._files(suffix)):
                with contextlib.suppress(OSError):
                    path.unlink()
                    count, freed = count + 1, freed + size
        self._size = None
        return count, freed

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{_SUFFIX}"

    def _files(self, suffix: str) -> Iterator[tuple[Path, int, float]]:
        """(path, bytes, time of last use); files that vanish meanwhile are left out."""
        for path in self.folder.glob(f"??/*{suffix}") if suffix == _SUFFIX else self.folder.glob(f"??/.*{suffix}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield path, status.st_size, status.st_mtime

    def _bound(self, added: int) -> None:
        """Count what was written; above the bound, remove the least recently used entries and killed writers' files."""
        with self._lock:
            self._size = sum(e.bytes for e in self.entries()) if self._size is None else self._size + added
            if self._size <= self.max_bytes:
                return
            for path, _, used in list(self._files(_PART)):
                if time.time() - used > _STALE_SECONDS:
                    with contextlib.suppress(OSError):
                        path.unlink()
            entries = self.entries()  # other processes write as well
            size = sum(e.bytes for e in entries)
            for entry in entries:
                if size <= self.max_bytes * _LOW_WATER:
                    break
                with contextlib.suppress(OSError):
                    self._path(entry.key).unlink(missing_ok=True)
                size -= entry.bytes
            self._size = size

    def _refuse(self, refusal: UntrustedPathError) -> None:
        before, self.refusal = self.refusal, str(refusal)
        if before:
            return  # one warning is enough: other entries are others' as well
        self._note(
            f"the cache in {self.folder} is not used, since others could have it run their code: {refusal}; or set "
            "KILN_CACHE_DIR to a folder of your own (KILN_CACHE=0 keeps nothing)"
        )

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            log.warning("kiln: %s", text)


def _write(path: Path, inside: int | None, part: str, name: str, data: bytes) -> None:
    """A file `name` in the folder `path`, which is open as `inside` if it can be, by way of `part`."""
    source, target = (part, name) if inside is not None else (str(path / part), str(path / name))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(source, flags, 0o600, dir_fd=inside), "wb") as file:
            file.write(data)
        os.replace(source, target, src_dir_fd=inside, dst_dir_fd=inside)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(source, dir_fd=inside)
        raise


def seal(key: str, payload: bytes, origin: int = COMPILED) -> bytes:
    """The bytes of an entry's file."""
    return _HEADER.pack(_MAGIC, _VERSION, origin, _digest(key, origin, payload)) + payload


def unseal(key: str, data: bytes) -> bytes | None:
    """The payload of an entry's file, or None for anything else."""
    if len(data) < _HEADER.size:
        return None
    magic, version, origin, digest = _HEADER.unpack_from(data)
    payload = data[_HEADER.size :]
    is_whole = (magic, version) == (_MAGIC, _VERSION) and digest == _digest(key, origin, payload)
    return payload if is_whole else None


def _digest(key: str, origin: int, payload: bytes) -> bytes:
    digest = hashlib.sha256(f"{key}\0{origin}\0".encode())
    digest.update(payload)
    return digest.digest()
