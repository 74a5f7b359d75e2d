# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the command lines of ``kiln-bisect`` and ``kiln-reduce`` have in common."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kiln.errors import KilnError
from kiln.tools.short_lived import collect_rarely

if TYPE_CHECKING:
    from kiln.passes.manager import PipelineStep
    from kiln.tools.debugging.attempts import Task

__all__ = [
    "INPUT",
    "INPUTS",
    "KERNELS",
    "LOAD",
    "NUMERICS",
    "PIPELINE",
    "PIPELINE_NAME",
    "TEST",
    "TIMEOUT",
    "UNTIL",
    "make_task",
    "read_module",
    "run_app",
]

INPUT = Annotated[str, typer.Argument(help="input file; - reads standard input")]
PIPELINE = Annotated[list[str], typer.Option("--pass-pipeline", help="passes to run; may be repeated")]
PIPELINE_NAME = Annotated[str, typer.Option("--pipeline", help="the whole pipeline of a target: cpu or gpu")]
UNTIL = Annotated[str, typer.Option("--until", help="stop the named pipeline when this stage is complete")]
LOAD = Annotated[list[Path], typer.Option("--load", help="a Python file that registers more passes")]
NUMERICS = Annotated[
    bool, typer.Option("--verify-numerics", help="run the module before and after each pass, and compare numbers")
]
INPUTS = Annotated[str, typer.Option("--inputs", help="compare numbers on these inputs as well (a list of tensors)")]
KERNELS = Annotated[
    str, typer.Option("--verify-kernels", help="behind the pipeline, run the kernels of a target: cpu, tt-cpu or cuda")
]
TEST = Annotated[
    str,
    typer.Option(
        "--test",
        help="a command that is given a module's file; exit status 0: it is fine, any other, a signal or a hang: it is "
        "broken",
    ),
]
TIMEOUT = Annotated[float, typer.Option("--timeout", help="seconds after which one attempt counts as hung")]


def make_task(
    pass_pipeline: Sequence[str],
    pipeline: str,
    until: str,
    load: Sequence[Path],
    numerics: bool,
    inputs: str,
    test: str,
    timeout: float,
    kernels: str = "",
) -> "Task":
    """The task that the options describe. Raises KilnError for options that do not fit, passes that do not exist."""
    from kiln.dialects import create_context
    from kiln.passes.numerics.sample import load_sample
    from kiln.passes.registry import load_passes_from
    from kiln.tools.debugging.attempts import Task

    for path in load:
        load_passes_from(str(path))
    samples = [load_sample(Path(inputs))] if inputs else []

    def steps() -> "list[PipelineStep]":
        from kiln.passes.manager import until as up_to
        from kiln.passes.pipeline_parser import parse_pipeline
        from kiln.passes.pipelines import named_pipeline

        found: list[PipelineStep] = []
        if pipeline:
            found += up_to(named_pipeline(pipeline), "sched")
            found = up_to(found, until) if until else found
        for text in pass_pipeline:
            found += parse_pipeline(text)
        return found

    with create_context():
        steps()
    if kernels not in ("", "cpu", "tt-cpu", "cuda"):
        raise KilnError(f"--verify-kernels: no target {kernels!r}; there are cpu, tt-cpu and cuda")
    return Task(steps, numerics, samples=samples, command=test, kernels=kernels, timeout=timeout)


def read_module(path: str) -> str:
    """The text of a file, or of standard input. Raises KilnError where it cannot be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KilnError(f"cannot read {path}: {error}") from error


def run_app(name: str, command: Callable[..., None], argv: list[str] | None) -> int:
    """Runs a command with its errors as one line on stderr; returns the exit status."""
    if argv is None:
        collect_rarely()
    # Children are forked, and OpenMP's threads do not survive that.
    os.environ["OMP_NUM_THREADS"] = "1"
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        status = app(args=argv, prog_name=name, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except KilnError as error:
        print(f"{name}: error: {error}", file=sys.stderr)
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's own errors of usage have a text for people
            raise
        print(f"{name}: error: {error.format_message()}", file=sys.stderr)  # type: ignore[attr-defined] - checked above
    return 1
