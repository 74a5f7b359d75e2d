# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-debug package.module:function``: from a model that is wrong to a test of a few ops.

``function`` takes nothing and returns the model with its inputs, as for ``kiln-explain``. Eager is compared with each
stage of each graph: the import, every pass, every kernel, the host's plan. The first that is wrong is named, with the
rewrite where it is a pass, and a lit test that fails while it is wrong is written. Exit status: 0 when something is
found, 2 when nothing is wrong, 1 for bad input.
"""

import ast
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kiln.errors import KilnError
from kiln.tools.debugging import command_line as cl

if TYPE_CHECKING:
    from kiln.frontend.report.capture import CapturedGraph
    from kiln.tools.debugging.diagnosis import Diagnosis

__all__ = ["main"]


def debug(
    model: Annotated[str, typer.Argument(help="module:function, importable from here; it returns (model, inputs)")],
    target: Annotated[str, typer.Option(help="cpu, tt-cpu or cuda; by default where the tensors are")] = "",
    pipeline: Annotated[str, typer.Option("--pass-pipeline", help="in place of the target's passes")] = "",
    load: cl.LOAD = [],  # noqa: B006 - typer's way
    backward: Annotated[bool, typer.Option(help="train: look at forward and backward graphs")] = False,
    dynamic: Annotated[bool, typer.Option(help="with symbolic sizes")] = False,
    option: Annotated[list[str], typer.Option(help="an option of the backend, as name=value; name alone: True")] = [],  # noqa: B006 - typer reads the default and copies it
    timeout: cl.TIMEOUT = 60.0,
    output: Annotated[
        Path | None, typer.Option("-o", help="the test's file; named by what is wrong if not given")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="the folder for the test; this one if not given")] = None,
) -> None:
    """Name the pass, rewrite or kernel that makes a model wrong, and write a small test that shows it."""
    from kiln.passes.registry import load_passes_from
    from kiln.tools.debugging.diagnosis import capture, diagnose
    from kiln.tools.models import load_model

    start = time.monotonic()
    for path in load:
        load_passes_from(str(path))
    given: dict[str, Any] = dict(_option(text) for text in option) | ({"target": target} if target else {})
    graphs = capture(lambda: load_model(model), given, backward=backward, dynamic=dynamic, timeout=max(timeout, 300.0))
    for number, graph in enumerate(graphs):
        if pipeline:
            graph = _with_pipeline(graph, pipeline)
        print(f"graph {number} ({graph.kind}, for {graph.target}): {len(graph.steps)} passes", flush=True)
        found = diagnose(graph, timeout)
        if found is not None:
            _report(found, load, _place(found, output, out))
            print(_times(start))
            return
    print(f"nothing is wrong with these inputs ({_times(start)})")
    raise typer.Exit(2)


def _times(start: float) -> str:
    """Seconds since `start`, and those that this process and its children computed, which no other load lengthens."""
    return f"{time.monotonic() - start:.1f} s, {sum(os.times()[:4]):.1f} s computed"


def _option(text: str) -> tuple[str, Any]:
    """A name and a value: a Python literal, or else text."""
    name, equals, value = text.partition("=")
    try:
        return name, ast.literal_eval(value) if equals else True
    except (ValueError, SyntaxError):
        return name, value


def _with_pipeline(graph: "CapturedGraph", text: str) -> "CapturedGraph":
    """The graph with other passes. Those of a pipeline's text complete no stage."""
    from dataclasses import replace

    from kiln.dialects import create_context
    from kiln.passes.pipeline_parser import parse_pipeline

    with create_context():
        steps = parse_pipeline(text)
    return replace(graph, steps=[(step.pass_.spec(), "fused" * (step.name == "fuse")) for step in steps])


def _report(found: "Diagnosis", load: list[Path], path: Path) -> None:
    from kiln.dialects import create_context, parse
    from kiln.tools.debugging.editing import size_of

    print(f"wrong: {found.culprit}")
    print(f"  {found.message}")
    if not found.module:
        print("no test was written: no piece of the graph fails by itself")
        return
    with create_context():
        count = size_of(parse(found.module))
    options = [*(f"--load={file.resolve()}" for file in load), *found.options]
    command = " ".join(shlex.quote(option) for option in options)
    header = f"// {' '.join(found.culprit.split())}\n// {' '.join(found.message.split())}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{header}// RUN: kiln-opt {command} %s -o /dev/null\n\n{found.module}", encoding="utf-8")
    except OSError as error:
        raise KilnError(f"cannot write {path}: {error.strerror}") from error
    print(f"test: {path} ({count} ops); it fails while this is wrong: kiln-opt {command} {path} -o /dev/null")


def _place(found: "Diagnosis", file: Path | None, folder: Path | None) -> Path:
    return file or (folder or Path()) / f"{_file_name(found)}.mlir"


def _file_name(found: "Diagnosis") -> str:
    words = found.culprit.split(",")[0].removeprefix("pass ").removeprefix("kernel ").split("{")[0]
    return "wrong-" + "".join(c if c.isalnum() else "-" for c in words).strip("-")[:40]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return cl.run_app("kiln-debug", debug, argv)


if __name__ == "__main__":
    sys.exit(main())
