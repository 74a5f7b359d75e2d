# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The host's description."""

from pathlib import Path

from kiln.lowering.cpu.isa import host, read_caches


def test_host_is_consistent() -> None:
    isa = host()
    assert isa.vector_bytes in (16, 32, 64)
    assert isa.vector_registers in (16, 32)
    assert isa.l2_bytes >= 1 << 16
    assert isa.cores >= 1
    assert isa.has("avx512f") == (isa.vector_bytes == 64)
    assert not isa.has("no-such-feature")
    assert host() is isa


def _write(folder: Path, index: int, **values: str) -> None:
    (folder / f"index{index}").mkdir()
    for name, value in values.items():
        (folder / f"index{index}" / name).write_text(value + "\n")


def test_caches_from_sysfs(tmp_path: Path) -> None:
    _write(tmp_path, 0, type="Data", level="1", size="48K")
    _write(tmp_path, 1, type="Instruction", level="1", size="64K")
    _write(tmp_path, 2, type="Unified", level="2", size="2M")
    _write(tmp_path, 3, type="Unified", level="3", size="32768K")
    assert read_caches(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 32 << 20}


def test_caches_that_are_not_told(tmp_path: Path) -> None:
    assert read_caches(tmp_path / "missing") == {}
    _write(tmp_path, 0, type="Data", level="1")
    _write(tmp_path, 1, type="Unified", level="x", size="1M")
    assert read_caches(tmp_path) == {}
