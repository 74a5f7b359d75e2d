# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Files that nobody but this user and root can have written: what is read from them may be run.

A path is walked from the root of the file system, each folder opened by its name in the one before (links are resolved
first, and none is followed on the way), and what is open is looked at. Whoever could exchange a file behind a check
could write to a folder above it, which is refused. A folder that all may write to is allowed above others if it is
sticky, as /tmp is: what lies in it can be renamed by its owner only. These are the rules of OpenSSH for its keys, and
of sudo for its plugins, with sticky folders besides. Root trusts root alone.

Where the system has no users (Windows), everything is trusted.
"""

import contextlib
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

__all__ = ["UntrustedPathError", "folder", "opened"]

_HAS_USERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedPathError(OSError):
    """A file or folder that another user owns or may write to; the text says which, and what to do."""


@contextlib.contextmanager
def folder(path: Path, *, create: bool = False) -> Generator[int | None, None, None]:
    """A descriptor of a folder, for `dir_fd`; None where the system has no users.

    Args:
        create: make the folders of the path that are missing, for this user alone (0700).

    Raises:
        UntrustedPathError: others may have written to the folder, or put another in its place.
        FileNotFoundError: there is none.
    """
    if not _HAS_USERS:
        if create:
            path.mkdir(parents=True, exist_ok=True)
        yield None
        return
    real = Path(os.path.realpath(path))
    current = os.open(real.anchor, _FOLDER)
    try:
        _check(os.fstat(current), Path(real.anchor))
        at = Path(real.anchor)
        for part in real.parts[1:]:
            at /= part
            inner = _inner(part, current, create)
            os.close(current)
            current = inner
            _check(os.fstat(current), at)
        yield current
    finally:
        os.close(current)


@contextlib.contextmanager
def opened(path: Path) -> Generator[BinaryIO, None, None]:
    """A file for reading.

    Raises:
        UntrustedPathError: others may have written to it, or put it in another's place.
        FileNotFoundError: there is none.
    """
    with folder(path.parent) as inside:
        name = str(path) if inside is None else path.name
        # Not to wait for a writer, should it be a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(name, flags, dir_fd=inside)
    with os.fdopen(descriptor, "rb") as file:
        if _HAS_USERS:
            _check(os.fstat(file.fileno()), path)
        yield file


def _inner(name: str, outer: int, create: bool) -> int:
    """The folder `name` in the open folder `outer`."""
    try:
        return os.open(name, _FOLDER, dir_fd=outer)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):  # another process makes it as well
        os.mkdir(name, 0o700, dir_fd=outer)
    return os.open(name, _FOLDER, dir_fd=outer)


def _check(status: os.stat_result, path: Path) -> None:
    user, mode = os.geteuid(), status.st_mode
    if status.st_uid not in (0, user):
        raise UntrustedPathError(f"{path} belongs to user {status.st_uid}, not to this process's user {user}")
    is_shared = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    if mode & _OTHERS_WRITE and not is_shared:
        who = "all users" if mode & stat.S_IWOTH else f"group {status.st_gid}"
        raise UntrustedPathError(f"{path} ({stat.filemode(mode)}) may be written to by {who}: chmod go-w '{path}'")
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise UntrustedPathError(f"{path} ({stat.filemode(mode)}) is no file")
