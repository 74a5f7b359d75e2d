# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The file of a run: a line of JSON about the run, then one for each row."""

import importlib.metadata
import json
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from benchmarks.gpu.breadth.row import Row

__all__ = ["about_run", "read", "write"]

_PACKAGES = ("torch", "triton", "transformers", "timm", "torchvision", "x-transformers")


def about_run(device: str, commit: str, dynamic: bool = False) -> dict[str, Any]:
    """Date, commit, machine, versions, and which sizes the compiler knew. commit: "" asks git."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "-"
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    about = {"date": date, "commit": commit or _commit(), "machine": _machine(device), "versions": versions}
    return about | {"sizes": "unknown" if dynamic else "known"}


def read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """What the run was, and its rows."""
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
    return next((line["run"] for line in lines if "run" in line), {}), [line for line in lines if "job" in line]


def write(file: TextIO, lines: Iterable[Any]) -> None:
    for line in lines:
        file.write(json.dumps(line) + "\n")
    file.flush()


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    return found.stdout.strip() or "unknown"


def _machine(device: str) -> str:
    if device == "cpu":
        return "CPU"
    import torch

    return torch.cuda.get_device_name()
