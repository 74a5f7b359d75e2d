# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Files of CPUs: read, checked, found, and what depends on them."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from kiln.errors import KilnError
from kiln.lowering import machine_files
from kiln.lowering.cpu import isa, rates
from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.dot import machine
from kiln.lowering.options import PipelineOptions

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT / "lowering" / "cpu" / "machines" / "core.toml"
H200 = ROOT / "lowering" / "gpu" / "machines" / "h200.toml"
MEMORIES = (machine_files.user_file, rates.measured, isa.host, machine.machines, machine.machine)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Nothing is remembered of the user's files; their folder is empty."""
    monkeypatch.setattr(machine_files, "folder", lambda: tmp_path)
    monkeypatch.delenv("KILN_MACHINE")
    for function in MEMORIES:
        function.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    for function in MEMORIES:
        function.cache_clear()


def changed(path: Path, old: str, new: str, to: Path) -> Path:
    text = path.read_text(encoding="utf-8")
    assert old in text
    to.write_text(text.replace(old, new, 1), encoding="utf-8")
    return to


def test_every_file_is_a_machine_of_its_own() -> None:
    files = list(CORE.parent.glob("*.toml"))
    assert len({r.arch for r in rates.known()}) == len(files) >= 2
    assert rates.generic() in rates.known()


def test_caches_that_are_nearer_are_faster() -> None:
    for known in rates.known():
        if known != rates.generic():
            found = [rate for rate in (known.l1_rate, known.l2_rate, known.l3_rate) if rate]
            assert found and found == sorted(found, reverse=True)
            assert known.int8_rate > 0 and known.bf16_rate > 0
            assert known.cache_rate > known.memory_rate


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory_rate = { value = 10.0", 'memory_rate = { value = "10"', "memory_rate must be a float, found '10'"),
        ("memory_rate = { value = 10.0", "memory_rate = { value = 0.0", "memory_rate must be more than 0"),
        ("memory_rate = { value = 10.0", "memory_rate = { value = -1.0", "memory_rate must be a positive number"),
        ("memory_rate = { value = 10.0", "memory_rate = { value = nan", "memory_rate must be a positive number"),
        ("memory_rate = { value = 10.0, source", "memory_rate = { value = 10.0, by", "memory_rate must be { value"),
        ("memory_rate", "memory_speed", "memory_rate must be { value = ..., source = ... }, found None"),
        ("cache_bytes = { value = 1048576", "cache_bytes = { value = 1.5", "cache_bytes must be a int, found 1.5"),
        ('arch = "generic"', "arch = 3", "arch must be text"),
        ('arch = "generic"', 'arch = "sm_90"', "a CPU's file expected, found that of a GPU"),
        ('arch = "generic"', 'arch = "generic"\nsms = 3', "unknown sms"),
        ('arch = "generic"', "arch =", "no machine's file"),
    ],
)
def test_wrong_files_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(KilnError, match=message):
        rates.read_rates(changed(CORE, old, new, tmp_path / "wrong.toml"))


def test_without_a_file_decisions_are_the_same_everywhere(fresh: Path) -> None:
    assert rates.measured() == rates.generic() == isa.host().rates
    assert machine_files.digest() == ""
    assert "fuse" in [step.text for step in CpuTarget().fuse(PipelineOptions())]


def test_the_file_of_the_folder_is_read(fresh: Path) -> None:
    changed(CORE, "memory_rate = { value = 10.0", "memory_rate = { value = 20.0", fresh / "cpu.toml")
    assert isa.host().rates == dataclasses.replace(rates.generic(), memory_rate=20.0)
    assert len(machine_files.digest()) == 64
    assert "fuse{measured=true}" in [step.text for step in CpuTarget().fuse(PipelineOptions())]


def test_the_variable_names_a_file_of_a_cpu_or_a_gpu(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(CORE, "10.0", "20.0", fresh / "cpu.toml")
    own = changed(H200, "sms = { value = 132", "sms = { value = 66", fresh / "half.toml")
    monkeypatch.setenv("KILN_MACHINE", str(own))
    assert machine.machine("sm_90").sms == 66
    assert isa.host().rates == rates.generic()


def test_none_leaves_the_files_alone(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(CORE, "10.0", "20.0", fresh / "cpu.toml")
    monkeypatch.setenv("KILN_MACHINE", "none")
    assert isa.host().rates == rates.generic() and machine_files.digest() == ""


def test_a_file_that_is_not_there_is_an_error(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KILN_MACHINE", str(fresh / "gone.toml"))
    with pytest.raises(KilnError, match="there is no file .*gone.toml; `kiln-tune --machine"):
        isa.host()


def test_cached_graphs_depend_on_the_file(fresh: Path) -> None:
    from kiln.frontend.cache.graph_key import version_text

    version_text.cache_clear()
    before = version_text()
    for function in (*MEMORIES, version_text):
        function.cache_clear()
    changed(CORE, "10.0", "20.0", fresh / "cpu.toml")
    after = version_text()
    version_text.cache_clear()
    assert before != after
