# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-trace package.module:function``: a model at every stage of the compiler, as one HTML file.

``function`` takes nothing and returns the model with its inputs: ``(model, inputs)`` or ``(model, inputs, kwargs)``.
"""

import argparse
import sys
from pathlib import Path

from kiln.errors import KilnError
from kiln.tools.models import error_text, load_model

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status (1 for bad input, with one line on stderr)."""
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
    arguments = parser.parse_args(argv)
    try:
        model, inputs, kwargs = load_model(arguments.target)
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    import torch

    from kiln.frontend.report.trace.notebook import trace

    options = {"target": arguments.for_target} if arguments.for_target else {}
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
        found.save(arguments.output)
    except Exception as error:  # of the model, or of what makes it
        print(f"error: {arguments.target} fails: {error_text(error)}", file=sys.stderr)
        return 1
    size = Path(arguments.output).stat().st_size
    print(f"{arguments.output}: {len(found.graphs)} graphs, {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
