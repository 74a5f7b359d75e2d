# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-cache``: show and clear the folders of compiled graphs and of tuned schedules."""

import sys
import time
from collections import Counter
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from kiln.errors import KilnError
from kiln.frontend import knobs
from kiln.notes import lines_in_location
from kiln.runtime.disk_cache import COMPILED, IMPORTED, DiskCache

__all__ = ["main"]

app = typer.Typer(
    help="Show and clear the cache of compiled graphs and tuned schedules.", no_args_is_help=True, add_completion=False
)


_ORIGINS: dict[int | None, str] = {COMPILED: "compiled here", IMPORTED: "load_cache_artifacts"}


def _caches() -> dict[str, DiskCache]:
    """The folders, by what an entry of each is called."""
    return {
        "graphs": DiskCache(knobs.cache_dir(), knobs.cache_mib() << 20),
        "tuned schedules": DiskCache(knobs.tuned_dir(), knobs.TUNED_BYTES),
    }


@app.command()
def show(all_: bool = typer.Option(False, "--all", help="list every entry, the last used first")) -> None:
    """Where the cache is and how much it holds."""
    console = Console(highlight=False, soft_wrap=True)
    for name, cache in _caches().items():
        entries = cache.entries()
        size = sum(entry.bytes for entry in entries)
        console.print(f"folder: {cache.folder}", markup=False)
        console.print(f"{len(entries)} {name}, {size / 2**20:.1f} MiB of at most {cache.max_bytes / 2**20:.0f} MiB")
        if all_ and entries:
            held = ("model", "kernels") if name == "graphs" else ()
            table = Table("key", "KiB", "last used", "from", *held)
            for entry in reversed(entries):
                used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.used))
                origin = _ORIGINS.get(cache.origin(entry.key), "unknown")
                row = [entry.key[:16], f"{entry.bytes / 1024:.1f}", used, origin]
                table.add_row(*row, *(_held(cache, entry.key) if held else ()))
            console.print(table)


def _held(cache: DiskCache, key: str) -> tuple[str, str]:
    """The lines of the model that a graph came from, and its kernels."""
    from kiln.frontend.cache.stored_graph import StoredGraph

    data = cache.get(key, is_use=False)
    try:
        report = StoredGraph.from_bytes(data or b"").report
    except KilnError:
        return "", ""  # of another version
    lines: dict[str, set[int]] = {}
    for decision in report["decisions"]:
        for file, line in lines_in_location(decision.location):
            lines.setdefault(Path(file).name, set()).add(line)
    model = ", ".join(f"{file}:{min(found)}-{max(found)}" for file, found in lines.items())
    kernels = Counter(kernel.name.rpartition("_")[0] for kernel in report["kernels"])
    return model, ", ".join(name if count == 1 else f"{count} {name}" for name, count in kernels.items())


@app.command()
def clear(
    tuned: bool = typer.Option(True, help="remove the tuned schedules as well, which take longest to find again"),
) -> None:
    """Remove every graph, and every tuned schedule."""
    count = freed = 0
    for name, cache in _caches().items():
        if name == "graphs" or tuned:
            files, size = cache.clear()
            count, freed = count + files, freed + size
    print(f"{count} files removed, {freed / 2**20:.1f} MiB freed")


def main() -> int:
    """Entry point; returns the exit status."""
    try:
        app(prog_name="kiln-cache")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
