# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder that reproduces one kernel: its IR, what it read and wrote, and how it was compiled.

======================= =========================================================================================
``kernel.mlir``         the kernel's reference: a function @main with the fusion, its layouts and its schedule
``tensors.pt``          `torch.save` of {"operands": [...], "symbols": [...], "results": [...]}, results as found
``settings.json``       what the kernel was compiled for
``README``              the command that runs it again
======================= =========================================================================================
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kiln.errors import KilnError
from kiln.runtime.checked.reference import Reference

__all__ = ["Reproduction", "command", "read_folder", "write_folder"]

Tensor = torch.Tensor


class Reproduction:
    """A folder's contents."""

    def __init__(self, text: str, tensors: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.text, self.settings = text, settings
        self.operands: list[Tensor] = tensors["operands"]
        self.symbols: list[int] = tensors["symbols"]
        self.results: list[Tensor] = tensors["results"]


def command(folder: Path) -> str:
    """What runs the kernel of a folder again."""
    return f"python -m kiln.tools.kiln_check {folder}"


def write_folder(
    parent: Path,
    name: str,
    reference: Reference,
    operands: Sequence[Tensor],
    symbols: Sequence[int],
    results: Sequence[Tensor],
    settings: Mapping[str, Any],
) -> Path:
    """A new folder `parent/name-N`; returns its path."""
    for number in range(1 << 20):
        path = parent / (f"{name}-{number}" if number else name)
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
    else:
        raise KilnError(f"{parent} has no room for another folder of {name}")
    (path / "kernel.mlir").write_text(reference.text, encoding="utf-8")
    torch.save(
        {"operands": [_own(x) for x in operands], "symbols": list(symbols), "results": [_own(x) for x in results]},
        path / "tensors.pt",
    )
    (path / "settings.json").write_text(json.dumps(dict(settings), indent=2, sort_keys=True), encoding="utf-8")
    (path / "README").write_text(f"{command(path)}\n", encoding="utf-8")
    return path


def read_folder(path: Path) -> Reproduction:
    """Inverse of `write_folder`.  Raises KilnError for a folder that holds no kernel."""
    try:
        text = (path / "kernel.mlir").read_text(encoding="utf-8")
        settings = json.loads((path / "settings.json").read_text(encoding="utf-8"))
        tensors = torch.load(path / "tensors.pt", map_location="cpu", weights_only=True)
    except (OSError, ValueError) as error:
        raise KilnError(f"{path} holds no kernel of a check: {error}") from error
    return Reproduction(text, tensors, settings)


def _own(x: Tensor) -> Tensor:
    """A copy with the same sizes and strides, in memory of its own."""
    x = x.detach()
    if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True)):
        dims = [0 if s == 0 else slice(None) for s in x.stride()]
        return x[tuple(dims)].clone().as_strided(x.shape, x.stride()) if x.numel() else x.clone()
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
