# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-reduce``: a smaller module that is broken in the same way, on stdout.

Broken is what ``kiln-bisect`` finds with the same options; with ``--test=CMD`` alone, what the command says of the
module itself, as with mlir-reduce. Ctrl-C ends the search with the smallest module so far. Exit status: 0 when there is
a module, 2 when nothing is broken, 1 for bad input.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kiln.tools.debugging import command_line as cl

__all__ = ["main"]


def reduce(
    input_: cl.INPUT = "-",
    pass_pipeline: cl.PIPELINE = [],  # noqa: B006 - typer's way
    pipeline: cl.PIPELINE_NAME = "",
    until: cl.UNTIL = "",
    load: cl.LOAD = [],  # noqa: B006 - typer reads the default and copies it
    verify_numerics: cl.NUMERICS = False,
    verify_kernels: cl.KERNELS = "",
    inputs: cl.INPUTS = "",
    test: cl.TEST = "",
    timeout: cl.TIMEOUT = 60.0,
    candidates: Annotated[int, typer.Option(help="how many smaller modules are tried at most")] = 2000,
    output: Annotated[Path | None, typer.Option("-o", help="write the module here instead of to stdout")] = None,
) -> None:
    """Shrink the ops, operands, results, regions, sizes and constants of a module while it stays broken."""
    from kiln.tools.debugging.breakage import why_broken
    from kiln.tools.debugging.reduction import reduce_module

    task = cl.make_task(pass_pipeline, pipeline, until, load, verify_numerics, inputs, test, timeout, verify_kernels)
    text = cl.read_module(input_)
    broken = why_broken(task, text)
    if broken is None:
        print("nothing is broken", file=sys.stderr)
        raise typer.Exit(2)
    reduced = reduce_module(text, broken, most=candidates)
    if output is not None:
        output.write_text(reduced, encoding="utf-8")
    else:
        print(reduced, end="" if reduced.endswith("\n") else "\n")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return cl.run_app("kiln-reduce", reduce, argv)


if __name__ == "__main__":
    sys.exit(main())
