# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""kiln-tune: what it shows, measures and refuses."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from kiln.errors import KilnError
from kiln.lowering.cpu.rates import CpuRates, generic, read_rates
from kiln.tools import kiln_tune
from kiln.tools.machine import cpu
from kiln.tools.machine.facts import Fact, write

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> str:
    found = CliRunner().invoke(kiln_tune.app, list(arguments), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_rates_in_use_are_shown() -> None:
    text = run()
    assert "file: none of this machine" in text and generic().name in text


def test_a_file_is_read_and_shown() -> None:
    assert "NVIDIA H200" in run("--check", str(ROOT / "lowering/gpu/machines/h200.toml"))


def test_wrong_arguments() -> None:
    with pytest.raises(KilnError, match="--device must be cpu or cuda, found 'tpu'"):
        run("--device", "tpu")
    with pytest.raises(KilnError, match="a file is written with --machine only"):
        run("mine.toml")
    with pytest.raises(KilnError, match="no machine's file"):
        run("--check", "gone.toml")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu(tmp_path: Path) -> None:
    with pytest.raises(KilnError, match="no NVIDIA GPU"):
        run("--machine", "--device", "cuda", str(tmp_path / "gpu.toml"))


def test_this_cpu_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One short run of each: what is found is positive, and nearer caches are no slower than farther ones."""
    monkeypatch.setattr(cpu, "_RUNS", 1)
    monkeypatch.setattr(cpu, "_SAMPLE", 1e-4)
    out = tmp_path / "folder" / "mine.toml"
    threads = torch.get_num_threads()
    assert f"written: {out}" in run("--machine", str(out))
    assert torch.get_num_threads() == threads
    found = read_rates(out)
    caches = ("l1_rate", "l2_rate", "l3_rate")  # 0 where the time is too short to tell
    assert all(getattr(found, f.name) > 0 for f in fields(CpuRates) if f.type is float and f.name not in caches)
    known = [rate for name in caches if (rate := getattr(found, name))]
    assert known == sorted(known, reverse=True)
    assert "kiln-tune, 20" in out.read_text()


def test_names_are_written_as_they_are(tmp_path: Path) -> None:
    facts = {f.name: Fact(getattr(generic(), f.name), 'a "source" \\') for f in fields(CpuRates)[2:]}
    write(tmp_path / "file.toml", CpuRates, 'the "best"', "znver5", facts)
    assert read_rates(tmp_path / "file.toml").name == 'the "best"'
