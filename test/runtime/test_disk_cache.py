# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The cache's folder: several processes, killed writers, damaged files, folders that cannot be written."""

import hashlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kiln.runtime.disk_cache import DiskCache


def key(text):
    return hashlib.sha256(text.encode()).hexdigest()


def path_of(cache, name):
    return cache.folder / name[:2] / f"{name}.kiln"


@pytest.fixture
def cache(tmp_path):
    return DiskCache(tmp_path / "cache", 1 << 20)


def test_round_trip(cache):
    assert cache.get(key("a")) is None
    assert cache.put(key("a"), b"payload")
    assert cache.put(key("empty"), b"")
    assert cache.get(key("a")) == b"payload"
    assert cache.get(key("empty")) == b""
    assert {e.key for e in cache.entries()} == {key("a"), key("empty")}
    cache.put(key("a"), b"other")
    assert cache.get(key("a")) == b"other"


def test_the_folder_is_the_users_alone(cache):
    cache.put(key("a"), b"payload")
    assert path_of(cache, key("a")).parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["truncate", "flip", "header", "empty", "version", "rename"])
def test_a_damaged_entry_is_discarded_with_a_note(cache, damage, caplog):
    name, other = key("a"), key("b")
    cache.put(name, os.urandom(1000))
    path = path_of(cache, name)
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        data = data[:-1]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "header":
        data = data[:20]
    elif damage == "empty":
        data = b""
    elif damage == "version":
        data[8] += 1
    path.write_bytes(data)
    if damage == "rename":  # an entry under another's name
        path_of(cache, other).parent.mkdir(parents=True, exist_ok=True)
        path = path.rename(path_of(cache, other))
        name = other
    with caplog.at_level(logging.WARNING, "kiln"):
        assert cache.get(name) is None
    assert "discarded" in caplog.text
    assert not path.exists()
    assert cache.put(name, b"again")
    assert cache.get(name) == b"again"


def test_least_recently_used_go_first(tmp_path):
    cache = DiskCache(tmp_path, 50_000)
    names = [key(str(i)) for i in range(4)]
    for age, name in zip((400, 300, 200, 100), names, strict=True):
        cache.put(name, os.urandom(10_000))
        then = time.time() - age
        os.utime(path_of(cache, name), (then, then))
    assert cache.get(names[0]) is not None  # now the last used
    cache.put(key("large"), os.urandom(15_000))
    left = {entry.key for entry in cache.entries()}
    assert names[1] not in left
    assert {names[0], key("large")} <= left
    assert sum(entry.bytes for entry in cache.entries()) <= 50_000


def test_clear(cache):
    for i in range(3):
        cache.put(key(str(i)), bytes(100))
    count, freed = cache.clear()
    assert count == 3
    assert freed > 300
    assert cache.entries() == []
    assert cache.get(key("0")) is None


WRITER = """
import sys, os, hashlib
from pathlib import Path
from kiln.runtime.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), 400_000)
names = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(8)]
print("ready", flush=True)
sys.stdin.readline()
bad = 0
for turn in range(int(sys.argv[2])):
    for i, name in enumerate(names):
        cache.put(name, bytes([i]) * (20_000 + 1000 * i))
        data = cache.get(names[(i + turn) % 8])
        j = (i + turn) % 8
        bad += data is not None and data != bytes([j]) * (20_000 + 1000 * j)
print(bad)
"""


def start_writer(folder, turns):
    command = [sys.executable, "-c", WRITER, str(folder), str(turns)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def environment():
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}


def test_two_processes_at_once(tmp_path):
    writers = [start_writer(tmp_path, 40) for _ in range(2)]
    for writer in writers:
        writer.stdin.write("\n")
        writer.stdin.flush()
    outputs = [writer.communicate(timeout=60) for writer in writers]
    assert [out.strip() for out, _ in outputs] == ["0", "0"]
    assert all("discarded" not in err for _, err in outputs)
    assert len(DiskCache(tmp_path, 1 << 20).entries()) == 8


def test_a_killed_writer_leaves_no_entry_that_is_read(tmp_path):
    for delay in (0.005, 0.02, 0.05):
        writer = start_writer(tmp_path, 1_000_000)
        writer.stdin.write("\n")
        writer.stdin.flush()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    cache = DiskCache(tmp_path, 1 << 20)
    for i, name in enumerate(hashlib.sha256(str(i).encode()).hexdigest() for i in range(8)):
        data = cache.get(name)
        assert data is None or data == bytes([i]) * (20_000 + 1000 * i)


def test_a_killed_writers_file_goes_when_the_cache_is_bounded(tmp_path):
    cache = DiskCache(tmp_path, 10_000)
    cache.put(key("a"), bytes(100))
    part = path_of(cache, key("a")).with_name(".0123-1-abc.part")
    part.write_bytes(bytes(500))
    os.utime(part, (time.time() - 7200,) * 2)
    cache.put(key("b"), bytes(12_000))
    assert not part.exists()


@pytest.fixture
def tmpfs(tmp_path):
    """A file system of 64 KiB; remounted read-only by calling it."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if made.returncode:
        pytest.skip("this user cannot mount a file system")
    yield folder, lambda: subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_keeps_what_was_there(tmpfs, caplog):
    folder, _ = tmpfs
    cache = DiskCache(folder, 1 << 20)
    assert cache.put(key("small"), b"kept")
    with caplog.at_level(logging.WARNING, "kiln"):
        assert not cache.put(key("large"), os.urandom(100_000))
        assert not cache.put(key("small"), os.urandom(100_000))
    assert caplog.text.count("cannot write to the cache") == 1
    assert cache.get(key("small")) == b"kept"
    assert cache.get(key("large")) is None
    assert not list(folder.glob("**/*.part"))


def test_a_read_only_folder_is_read(tmpfs, caplog):
    folder, make_read_only = tmpfs
    cache = DiskCache(folder, 1 << 20)
    cache.put(key("a"), b"kept")
    make_read_only()
    with caplog.at_level(logging.WARNING, "kiln"):
        assert cache.get(key("a")) == b"kept"
        assert not cache.put(key("b"), b"new")
    assert "Read-only" in caplog.text
    assert cache.clear() == (0, 0)


def test_a_folder_that_is_a_file(tmp_path, caplog):
    path = tmp_path / "file"
    path.write_text("")
    cache = DiskCache(path, 1 << 20)
    with caplog.at_level(logging.WARNING, "kiln"):
        assert cache.get(key("a")) is None
        assert not cache.put(key("a"), b"x")
    assert cache.entries() == []
