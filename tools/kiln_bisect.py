# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-bisect``: the first pass of a pipeline, and in it the first rewrite, that breaks a module.

Broken is what the verifier rejects, what a pass raises, a process that dies or hangs, numbers that a pass changes
(``--verify-numerics``), or what a command says (``--test``). Exit status: 0 when something is found, 2 when nothing is
broken, 1 for bad input.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kiln.tools.debugging import command_line as cl

__all__ = ["main"]


def bisect(
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
    output: Annotated[Path | None, typer.Option("-o", help="write the module before that pass here")] = None,
) -> None:
    """Name the first pass that breaks a module, and the first of its rewrites that does."""
    from kiln.tools.debugging.bisection import bisect as find

    task = cl.make_task(pass_pipeline, pipeline, until, load, verify_numerics, inputs, test, timeout, verify_kernels)
    found = find(task, cl.read_module(input_))
    if found is None:
        print("nothing is broken")
        raise typer.Exit(2)
    finding = found.finding
    print(f"first pass: {finding.name} (step {finding.step + 1} of {len(task.steps())})")
    print(f"{finding.kind}: {finding.message}")
    if found.rewrite is not None:
        print(f"first rewrite: {found.rewrite} (of {found.count})")
    else:
        print(f"no rewrite: {found.why}")
    if output is not None:
        output.write_text(found.before, encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return cl.run_app("kiln-bisect", bisect, argv)


if __name__ == "__main__":
    sys.exit(main())
