# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The files of lowering/gpu/machines: each fact has a source, and wrong files are refused."""

from pathlib import Path

import pytest

from kiln.errors import KilnError
from kiln.lowering.gpu.dot.machine import machine, machines, read_machine

FOLDER = Path(__file__).resolve().parents[4] / "lowering" / "gpu" / "machines"


def test_every_file_is_a_machine_of_its_own() -> None:
    assert len(machines()) == len(list(FOLDER.glob("*.toml"))) >= 5
    assert {"sm_80", "sm_89", "sm_90", "sm_100"} <= set(machines())


def test_peak_times_are_those_of_the_chip() -> None:
    times = [machine(arch).peak_time(1 << 31) for arch in ("sm_89", "sm_80", "sm_90", "sm_100")]
    assert times == sorted(times, reverse=True)
    assert machine("sm_90").peak_time(1 << 31) == pytest.approx(5369.3, abs=0.1)


def test_warpgroups_multiply_on_hopper_alone() -> None:
    archs = ("sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120", "gfx942")
    assert [arch for arch in archs if machine(arch).warpgroups] == ["sm_90", "sm_90a"]


@pytest.mark.parametrize(
    ("arch", "same_as"), [("sm_90a", "sm_90"), ("sm_86", "sm_80"), ("sm_75", "sm_80"), ("gfx90a", "gfx942")]
)
def test_other_architectures_are_as_the_nearest_older_one(arch, same_as):
    assert machine(arch) == machine(same_as)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = { value = 132,", "sms = { value = 1.5,", "sms must be a .*int.*, found 1.5"),
        (', source = "data sheet"', "", "sms must be { value = ..., source"),
        ("float8 =", "float9 =", "float8 must be .*, found None"),
        ('arch = "sm_90"', 'arch = "sm_90"\nwarps = 4', "unknown warps"),
        ('name = "NVIDIA H200"\n', "", "name must be a .*str.*, found None"),
    ],
)
def test_wrong_files_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (FOLDER / "h200.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "wrong.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(KilnError, match=message):
        read_machine(tmp_path / "wrong.toml")
