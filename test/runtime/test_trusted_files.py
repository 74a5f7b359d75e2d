# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Entries that another user owns, or may have written, are not read; what is made is the user's alone."""

import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from kiln.runtime import trusted_files
from kiln.runtime.disk_cache import DiskCache, seal
from kiln.runtime.trusted_files import UntrustedPathError

KEY = "ab" * 32


@pytest.fixture
def cache(tmp_path):
    """One entry three folders below a folder that is the user's alone; nothing hides modes."""
    before = os.umask(0)
    try:
        cache = DiskCache(tmp_path / "a" / "b" / "c", 1 << 20)
        assert cache.put(KEY, b"code")
        yield cache
    finally:
        os.umask(before)


def entry(cache: DiskCache) -> Path:
    return cache.folder / KEY[:2] / f"{KEY}.kiln"


def parts(cache: DiskCache) -> list[Path]:
    """The entry, and the folders that were made for it."""
    return [entry(cache), entry(cache).parent, cache.folder, cache.folder.parent, cache.folder.parent.parent]


def refused(cache: DiskCache, caplog: pytest.LogCaptureFixture, *texts: str) -> None:
    """Neither read nor written, with one warning for all tries."""
    with caplog.at_level(logging.WARNING, "kiln"):
        for _ in range(3):
            assert cache.get(KEY) is None
            cache.put("cd" * 32, b"other")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for text in ("KILN_CACHE_DIR", *texts):
        assert text in record.getMessage()


def someone_else() -> int:
    return os.geteuid() + 1234


def give_away(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Another user owns the path; without the right to do so, it looks as if."""
    if os.geteuid() == 0:
        os.chown(path, someone_else(), -1, follow_symlinks=False)
        return
    given, fstat = path.lstat().st_ino, os.fstat

    def looking(descriptor: int) -> os.stat_result:
        found = fstat(descriptor)
        if found.st_ino != given:
            return found
        return os.stat_result([*found[:4], someone_else(), *found[5:]])

    monkeypatch.setattr(trusted_files.os, "fstat", looking)


def test_what_is_made_is_the_users_alone(cache):
    assert [stat.S_IMODE(path.stat().st_mode) for path in parts(cache)] == [0o600, 0o700, 0o700, 0o700, 0o700]
    assert cache.get(KEY) == b"code"
    assert not [*cache.folder.rglob("*.part")]


@pytest.mark.parametrize("mode", [0o020, 0o002], ids=["group", "others"])
@pytest.mark.parametrize("place", range(5), ids=["entry", "inner", "folder", "parent", "grandparent"])
def test_what_others_may_write_to(cache, place, mode, caplog):
    path = parts(cache)[place]
    path.chmod(path.stat().st_mode | mode)
    refused(cache, caplog, f"chmod go-w '{path}'", "may be written to by")
    path.chmod(path.stat().st_mode & ~0o022)
    assert cache.get(KEY) == b"code"


@pytest.mark.parametrize("place", range(5), ids=["entry", "inner", "folder", "parent", "grandparent"])
def test_what_another_user_owns(cache, place, caplog, monkeypatch):
    path = parts(cache)[place]
    give_away(monkeypatch, path)
    refused(cache, caplog, f"{path} belongs to user {someone_else()}")


def test_a_sticky_folder_above(cache, caplog, monkeypatch):
    """/tmp: others may make folders there, and cannot take the place of this one. Of one that they made first, nothing
    is read."""
    cache.folder.parent.chmod(0o1777)
    assert cache.get(KEY) == b"code"
    assert cache.put(KEY, b"new") and cache.get(KEY) == b"new"
    give_away(monkeypatch, cache.folder)
    refused(cache, caplog, f"{cache.folder} belongs to user")


def test_the_users_link_to_a_folder(cache, tmp_path):
    (tmp_path / "link").symlink_to(cache.folder)
    assert DiskCache(tmp_path / "link", 1 << 20).get(KEY) == b"code"


def test_a_link_into_a_folder_of_others(cache, tmp_path, caplog, monkeypatch):
    (tmp_path / "link").symlink_to(cache.folder)
    give_away(monkeypatch, cache.folder)
    refused(DiskCache(tmp_path / "link", 1 << 20), caplog, f"{cache.folder} belongs to user")


def test_an_entry_that_is_a_link(cache, tmp_path, caplog):
    """However good the file is: links are no entries."""
    other = tmp_path / "other"
    other.write_bytes(seal(KEY, b"code"))
    entry(cache).unlink()
    entry(cache).symlink_to(other)
    with caplog.at_level(logging.WARNING, "kiln"):
        assert cache.get(KEY) is None
    assert cache.put(KEY, b"new") and cache.get(KEY) == b"new"
    assert other.read_bytes() == seal(KEY, b"code")


def test_a_folder_inside_that_is_a_link(cache, tmp_path, monkeypatch):
    inner = entry(cache).parent
    inner.rename(tmp_path / "moved")
    inner.symlink_to(tmp_path / "moved")
    assert cache.get(KEY) == b"code"  # resolved, and then looked at as any other
    give_away(monkeypatch, tmp_path / "moved")
    assert cache.get(KEY) is None


def test_a_pipe_is_not_waited_for(cache):
    entry(cache).unlink()
    os.mkfifo(entry(cache), 0o600)
    found = []
    reader = threading.Thread(target=lambda: found.append(cache.get(KEY)), daemon=True)
    reader.start()
    reader.join(20)
    assert found == [None]


def test_a_folder_exchanged_behind_the_look(cache, tmp_path):
    """What was looked at stays open: the path may lead elsewhere by then."""
    inner = entry(cache).parent
    with trusted_files.folder(inner) as opened:
        inner.rename(tmp_path / "moved")
        inner.mkdir()
        entry(cache).write_bytes(b"theirs")
        descriptor = os.open(entry(cache).name, os.O_RDONLY, dir_fd=opened)
        try:
            assert os.read(descriptor, 1 << 10) == seal(KEY, b"code")
        finally:
            os.close(descriptor)


def test_a_link_put_in_place_of_a_folder_is_not_followed(cache, tmp_path, monkeypatch):
    """Between the resolution of links and the walk."""
    real = os.path.realpath(entry(cache).parent)
    inner = entry(cache).parent
    inner.rename(tmp_path / "moved")
    inner.symlink_to(tmp_path / "moved")
    monkeypatch.setattr(trusted_files.os.path, "realpath", lambda path: real)
    with pytest.raises(OSError), trusted_files.opened(entry(cache)):
        pass


def test_root_trusts_root_alone_and_others_trust_root(cache, monkeypatch):
    """The same files, as they look to another user: those of root are read, those of a third are not."""
    other = someone_else()
    monkeypatch.setattr(trusted_files.os, "geteuid", lambda: other)
    if parts(cache)[0].stat().st_uid == 0:
        assert cache.get(KEY) == b"code"
    else:
        with pytest.raises(UntrustedPathError, match="belongs to user"), trusted_files.opened(entry(cache)):
            pass


def test_no_descriptor_is_left_open(cache):
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(3):
        cache.get(KEY)
        cache.put(KEY, b"code")
        cache.get("ef" * 32)
    cache.folder.chmod(0o777)
    cache.get(KEY)
    cache.put(KEY, b"code")
    assert count() == before


def test_a_system_without_users(cache, monkeypatch):
    monkeypatch.setattr(trusted_files, "_HAS_USERS", False)
    cache.folder.chmod(0o777)
    assert cache.get(KEY) == b"code"
    assert cache.put("cd" * 32, b"other") and cache.get("cd" * 32) == b"other"
