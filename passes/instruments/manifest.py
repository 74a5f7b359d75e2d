# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which graph a folder of a dump is of, and which of its files somebody has edited since."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kiln.dialects import to_text

if TYPE_CHECKING:
    from torch_mlir import ir

__all__ = ["MANIFEST", "edited_files", "folders_of", "graph_digest", "manifest", "record", "write_edits"]

MANIFEST = "digests.txt"
"""A line ``graph DIGEST`` for the graph as it was imported, then ``NAME DIGEST`` for each file that was written."""


def graph_digest(module: "ir.Module") -> str:
    """The digest of a module without the lines of the model that its ops come from."""
    return hashlib.sha256(to_text(module).encode()).hexdigest()


def record(path: Path, data: bytes) -> None:
    """Write a file of a dump, and its digest."""
    path.write_bytes(data)
    with (path.parent / MANIFEST).open("a", encoding="utf-8") as lines:
        lines.write(f"{path.name} {hashlib.sha256(data).hexdigest()}\n")


def manifest(folder: Path) -> dict[str, str]:
    """Digests by the names of files, and by ``graph``; empty for a folder that is no dump."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    pairs = (line.rsplit(" ", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def edited_files(folder: Path) -> list[str]:
    """Names of files that are others than those written, in order; files that were deleted are left out."""
    known = manifest(folder)
    known.pop("graph", None)
    return sorted(
        name
        for name, digest in known.items()
        if (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    )


def write_edits(folder: Path, digest: str, files: dict[str, str]) -> None:
    """Make a folder that holds nothing but edited files of a graph, by their names in its dump. digest: the graph's."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    lines = [f"graph {digest}", *(f"{name} edited" for name in files)]
    (folder / MANIFEST).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def folders_of(dump: Path) -> Iterator[tuple[Path, str]]:
    """The folders of the graphs of a dump, with the digest of each graph."""
    for path in sorted(dump.glob(f"*/{MANIFEST}")):
        digest = manifest(path.parent).get("graph", "")
        if digest:
            yield path.parent, digest
