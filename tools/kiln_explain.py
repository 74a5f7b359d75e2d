# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-explain package.module:function``: what Kiln makes of a model.

``function`` takes nothing and returns the model with its inputs: ``(model, inputs)`` or ``(model, inputs, kwargs)``.
"""

import argparse
import sys
import traceback
from typing import Any

from kiln.errors import KilnError
from kiln.tools.models import error_text, load_model, root_of
from kiln.tools.short_lived import collect_rarely

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status (1 for bad input, with one line on stderr)."""
    if argv is None:
        collect_rarely()
    parser = argparse.ArgumentParser(prog="kiln-explain", description="Report which way each op of a model went.")
    parser.add_argument(
        "target", help="module:function, importable from here; the function returns (model, inputs[, kwargs])"
    )
    parser.add_argument("--dynamic", action="store_true", help="compile with symbolic sizes")
    parser.add_argument("--backward", action="store_true", help="compile for training instead of inference")
    parser.add_argument(
        "--verbose", action="store_true", help="list every op, with its place in the model; tracebacks of errors"
    )
    parser.add_argument("--time", action="store_true", help="also call the model, and list how long each kernel takes")
    parser.add_argument("--mode", default=None, help="as in torch.compile")
    arguments = parser.parse_args(argv)
    try:
        model, inputs, kwargs = load_model(arguments.target)
        print(_run(arguments, model, inputs, kwargs), end="")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # of the model, or of what makes it
        if arguments.verbose:
            traceback.print_exc()
        print(f"error: {arguments.target} fails: {error_text(root_of(error))}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace, model: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    import torch

    from kiln.frontend.options import Options
    from kiln.frontend.report.explain import explain
    from kiln.frontend.report.profile import profile

    Options.build(arguments.mode, None)  # an unknown mode is an error here, rather than one inside of Dynamo
    with torch.set_grad_enabled(arguments.backward):
        explanation = explain(model, *inputs, mode=arguments.mode, dynamic=arguments.dynamic or None, **kwargs)
        text = explanation.to_text(verbose=arguments.verbose)
        if arguments.time:
            times = profile(model, *inputs, mode=arguments.mode, dynamic=arguments.dynamic or None, **kwargs)
            text += times.to_text(verbose=arguments.verbose)
    return text


if __name__ == "__main__":
    sys.exit(main())
