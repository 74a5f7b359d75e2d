# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-trace package.module:function``: a model at every stage of the compiler, as one HTML file.

``function`` takes nothing and returns the model with its inputs: ``(model, inputs)`` or ``(model, inputs, kwargs)``.
With ``--serve`` a server shows the same page, compiles again when a file is saved, and takes edits (docs/live.md).
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from kiln.errors import KilnError
from kiln.inserts import Insert
from kiln.tools.models import error_text, load_model, root_of

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status (1 for bad input, with one line on stderr)."""
    arguments = _parser().parse_args(argv)
    try:
        return _serve(arguments) if arguments.serve else _write(arguments)
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kiln-trace", description="Write the trace of a model's compilation.")
    parser.add_argument(
        "target", help="module:function, importable from here; the function returns (model, inputs[, kwargs])"
    )
    parser.add_argument("-o", "--output", default="trace.html", help="the HTML file (trace.html)")
    parser.add_argument("--for", dest="for_target", default="", help="a target: cpu, cuda or tt-cpu")
    parser.add_argument("--dynamic", action="store_true", help="compile with symbolic sizes")
    parser.add_argument("--training", action="store_true", help="compile for training, and run backward")
    parser.add_argument("--mode", default=None, help="as in torch.compile")
    parser.add_argument("--calls", type=int, default=5, help="calls to measure kernels by; 0: none (5)")
    parser.add_argument(
        "--load", action="append", default=[], metavar="FILE.py", help="a Python file that registers passes; repeatable"
    )
    for where in ("after", "before"):
        parser.add_argument(
            f"--insert-{where}", action=_Inserts, dest="inserts", default=[], metavar="PASS:TEXT",
            help=f"passes {where} a pass, or a stage, of the pipeline; repeatable",
        )  # fmt: skip
    parser.add_argument("--serve", action="store_true", help="serve the page, and compile when a file is saved")
    parser.add_argument("--port", type=int, default=0, help="the server's port of 127.0.0.1 (any that is free)")
    return parser


class _Inserts(argparse.Action):
    """Pipeline text, "after" or "before", and a pass or a stage."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        place, colon, text = str(values).partition(":")
        if not (place and colon and text):
            parser.error(f"{option_string} expects PASS:TEXT, found {values!r}")
        namespace.inserts = [*namespace.inserts, (text, str(option_string).removeprefix("--insert-"), place)]


def _serve(arguments: argparse.Namespace) -> int:
    from kiln.tools.live.jobs import Job

    job = Job(
        arguments.target, "", "", arguments.load, arguments.inserts, arguments.for_target, arguments.mode,
        arguments.dynamic, arguments.training, arguments.calls,
    )  # fmt: skip
    try:
        from kiln.tools.live.server import serve
    except ImportError as error:
        raise KilnError(f"{error}; pip install 'kiln-mlir[live]' has what is needed") from error
    try:
        serve(job, arguments.port)
    except OSError as error:
        raise KilnError(f"cannot serve at port {arguments.port}: {error.strerror}") from error
    return 0


def _write(arguments: argparse.Namespace) -> int:
    model, inputs, kwargs = load_model(arguments.target)
    import torch

    from kiln.frontend.report.trace.notebook import trace
    from kiln.passes.registry import load_passes_from

    for file in arguments.load:
        load_passes_from(file)
    options: dict[str, Any] = {"target": arguments.for_target} if arguments.for_target else {}
    if arguments.inserts:
        options["passes"] = [Insert(text, **{where: place}) for text, where, place in arguments.inserts]
    try:
        with torch.set_grad_enabled(arguments.training):
            found = trace(
                model,
                *inputs,
                mode=arguments.mode,
                options=options,
                dynamic=arguments.dynamic or None,
                calls=arguments.calls,
                backward=arguments.training,
                **kwargs,
            )
        if not found.graphs:
            raise KilnError("no graph was compiled: warnings say why, or the call runs no tensor code")
        found.save(arguments.output)
    except Exception as error:  # of the model, or of what makes it
        print(f"error: {arguments.target} fails: {error_text(root_of(error))}", file=sys.stderr)
        return 1
    size = Path(arguments.output).stat().st_size
    print(f"{arguments.output}: {len(found.graphs)} graphs, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
