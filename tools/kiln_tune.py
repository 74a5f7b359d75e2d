# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-tune``: show the rates that decisions are made by, and measure those of the machine at hand."""

import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kiln.errors import KilnError
from kiln.lowering.machine_files import folder, is_of_gpu, user_file

__all__ = ["main"]

app = typer.Typer(add_completion=False)
Out = Annotated[Path | None, typer.Argument(help="file to write; by default the one that Kiln reads")]
Measures = Annotated[bool, typer.Option("--machine", help="measure the machine at hand, and write its file")]
Device = Annotated[str, typer.Option(help="what to measure: cpu or cuda")]
Check = Annotated[Path | None, typer.Option(help="read a machine's file, and say what is wrong with it")]


@app.command()
def tune(
    out: Out = None,
    machine: Measures = False,
    device: Device = "cpu",
    check: Check = None,
) -> None:
    """Show the rates that decisions are made by, or measure those of this machine (about a minute)."""
    console = Console(highlight=False, soft_wrap=True)
    if device not in ("cpu", "cuda"):
        raise KilnError(f"--device must be cpu or cuda, found {device!r}")
    if out is not None and not machine:
        raise KilnError("a file is written with --machine only")
    if check is not None:
        _print(console, read(check), f"file: {check}")
    elif machine:
        measure(console, out or folder() / ("cpu.toml" if device == "cpu" else "gpu.toml"), device)
    else:
        show(console)


def show(console: Console) -> None:
    """The CPU's rates in use, and the user's GPU if there is a file of it."""
    from kiln.lowering.cpu.isa import host
    from kiln.lowering.cpu.rates import known, measured

    own = user_file("cpu")
    _print(console, measured(), f"file: {own or 'none of this machine; `kiln-tune --machine` writes one'}")
    for other in known():
        if other.arch == host().name:
            _print(console, other, f"measured before, on a processor of this kind ({other.arch})")
    gpu = user_file("gpu")
    if gpu is not None:
        _print(console, read(gpu), f"file: {gpu}")


def measure(console: Console, path: Path, device: str) -> None:
    """Measures, writes the file, and reads it again."""
    start = time.perf_counter()

    def tell(what: str) -> None:
        console.print(f"{time.perf_counter() - start:5.1f} s  {what}")

    if device == "cpu":
        from kiln.tools.machine.cpu import measure_cpu, write_cpu

        write_cpu(path, measure_cpu(tell))
    else:
        from kiln.tools.machine.gpu import measure_gpu, write_gpu

        write_gpu(path, measure_gpu(tell))
    _print(console, read(path), f"written: {path}")


def read(path: Path) -> Any:
    """The machine of a file: `CpuRates` or a GPU's `Machine`. Raises KilnError for what is no such file."""
    if is_of_gpu(path):
        from kiln.lowering.gpu.dot.machine import read_machine

        return read_machine(path)
    from kiln.lowering.cpu.rates import read_rates

    return read_rates(path)


def _print(console: Console, machine: Any, title: str) -> None:
    console.print(title, markup=False)
    table = Table("fact", "value")
    for field in fields(machine):
        value = getattr(machine, field.name)
        table.add_row(field.name, "not known" if field.type is float and not value else str(value))
    console.print(table)


def main() -> int:
    """Entry point; returns the exit status."""
    try:
        app(prog_name="kiln-tune")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
