# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Stages that somebody has edited, in place of those that passes make: ``KILN_OVERRIDE``.

The folder is a dump (``KILN_DUMP``). Of the graph that is compiled it holds the folder whose digest is that of the
graph; a file whose own digest has changed since takes the place of what the pass behind it makes.
"""

import logging
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kiln.errors import BackendOptionError
from kiln.passes.instruments.manifest import edited_files, folders_of, graph_digest, manifest
from kiln.passes.manager import PipelineStep

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes.replace_module import ReplaceModule

__all__ = ["check_unedited", "editable_files", "overridden"]

log = logging.getLogger("kiln")

_STEP = re.compile(r"(\d+)-(.+?)\.mlir$")
_KERNEL = re.compile(r"(.+?)\.(?:(vector|llvm)\.mlir|(ttir|ptx))$")
_FINAL = ("object", "ptx", "plan")
"""Stages that machine code, which is not in the IR, belongs to."""
_OF_KERNELS = ("vector", "llvm", "ttir")


def overridden(steps: Sequence[PipelineStep], module: "ir.Module", folder: str, graph: str) -> list[PipelineStep]:
    """The steps of a graph's pipeline with ``replace-module`` behind those whose dumped files were edited.

    module: the graph as it was imported. graph: "inference", "forward" or "backward".

    Raises BackendOptionError for an edited file that has no place in the pipeline.
    """
    found = _folder_of(Path(folder), graph_digest(module), graph)
    if found is None:
        text = f"kiln: {folder} holds no dump of the {graph} graph, which is compiled as it is"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return list(steps)
    places: list[tuple[int, PipelineStep]] = []
    for name in edited_files(found):
        index, replacing = _placed(found / name, steps)
        log.warning("kiln: the %s graph is compiled with %s, which was edited", graph, found / name)
        stage = steps[index - 1].stage if index else ""
        step = PipelineStep(replacing, f"edited after {stage or 'the import'}", stage)
        step.is_inserted = True
        places.append((index, step))
    result = list(steps)
    for index, step in reversed(places):  # those of the same place in the order of their names
        result.insert(index, step)
    return result


def check_unedited(folder: Path) -> None:
    """Raises BackendOptionError where a dump would write over files that were edited."""
    edited = edited_files(folder)
    if edited:
        raise BackendOptionError(
            f"{folder / edited[0]} was edited, and a dump would write over it: compile it with "
            f"KILN_OVERRIDE={folder.parent}, or dump to another folder"
        )


def editable_files(folder: Path) -> dict[str, str]:
    """The files of a graph's dump that may be edited, in their order, by what they hold: a stage, ``torch`` for the
    graph as it was imported, or ``KERNEL.vector`` and its like for one kernel's code.
    """
    found: dict[str, str] = {}
    for name in manifest(folder):
        numbered, of_kernel = _STEP.match(name), _KERNEL.match(name)
        if numbered is not None:
            stage = numbered[2].partition(".")[2] or ("torch" if int(numbered[1]) == 0 else "")
            if stage and stage not in (*_FINAL, *_OF_KERNELS):  # kernels have files of their own
                found[stage] = name
        elif of_kernel is not None:
            found[f"{of_kernel[1]}.{of_kernel[2] or of_kernel[3]}"] = name
    return found


def _folder_of(dump: Path, digest: str, graph: str) -> Path | None:
    """The folder of a graph; of those of equal graphs the first that has an edited file."""
    if not dump.is_dir():
        raise BackendOptionError(f"option 'override': there is no folder {dump}")
    same = [path for path, other in folders_of(dump) if other == digest and path.name.endswith(graph)]
    return next((path for path in same if edited_files(path)), same[0] if same else None)


def _placed(path: Path, steps: Sequence[PipelineStep]) -> tuple[int, "ReplaceModule"]:
    """Behind how many steps a file has its place, and the pass that puts it there."""
    from kiln.passes.replace_module import ReplaceModule  # loads what makes kernels of GPUs

    numbered, of_kernel = _STEP.match(path.name), _KERNEL.match(path.name)
    if numbered is not None:
        index, (name, _, stage) = int(numbered[1]), numbered[2].partition(".")
        if stage in _FINAL:
            raise _no_place(path, "machine code is not in the IR: edit an earlier stage")
        if index == 0:
            return 0, ReplaceModule(str(path), stage="torch")
        if index <= len(steps) and steps[index - 1].name.partition("{")[0] == name:
            return index, ReplaceModule(str(path), stage=steps[index - 1].stage)
        raise _no_place(path, f"step {index} of the pipeline is not {name}")
    if of_kernel is not None:
        name, stage = of_kernel[1], of_kernel[2] or of_kernel[3]
        last = max((i for i, step in enumerate(steps, 1) if step.stage == stage), default=0)
        if last:
            return last, ReplaceModule(str(path), kernel=name)
    raise _no_place(path, "it is made of an earlier stage: edit that one")


def _no_place(path: Path, reason: str) -> BackendOptionError:
    return BackendOptionError(f"{path}:1: this file was edited and cannot be compiled: {reason}")
