# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-explain package.module:function``: what Kiln makes of a model.

``function`` takes nothing and returns the model with its inputs: ``(model, inputs)`` or ``(model, inputs, kwargs)``.
"""

import argparse
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from kiln.errors import KilnError, did_you_mean

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status (1 for bad input, with one line on stderr)."""
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
        model, inputs, kwargs = _load(arguments.target)
        print(_run(arguments, model, inputs, kwargs), end="")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # of the model, or of what makes it
        if arguments.verbose:
            traceback.print_exc()
        print(f"error: {arguments.target} fails: {_text(_root(error))}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace, model: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    import torch

    from kiln.frontend.explain import explain
    from kiln.frontend.options import Options
    from kiln.frontend.profile import profile

    Options.build(arguments.mode, None)  # an unknown mode is an error here, rather than one inside of Dynamo
    with torch.set_grad_enabled(arguments.backward):
        explanation = explain(model, *inputs, mode=arguments.mode, dynamic=arguments.dynamic or None, **kwargs)
        text = explanation.to_text(verbose=arguments.verbose)
        if arguments.time:
            times = profile(model, *inputs, mode=arguments.mode, dynamic=arguments.dynamic or None, **kwargs)
            text += times.to_text(verbose=arguments.verbose)
    return text


def _load(target: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Import and call the function that makes the model and its inputs."""
    module_name, colon, function_name = target.partition(":")
    if not colon or not function_name:
        raise KilnError(f"expected module:function, found {target!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise KilnError(f"cannot import {module_name!r}: {error}") from error
    except Exception as error:  # whatever the module does
        raise KilnError(f"cannot import {module_name!r}: {_text(error)}") from error
    if not hasattr(module, function_name):
        hint = did_you_mean(function_name, [name for name in dir(module) if not name.startswith("_")])
        raise KilnError(f"module {module_name!r} has no function {function_name!r}{hint}")
    made = getattr(module, function_name)()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise KilnError(f"{target} must return (model, inputs) or (model, inputs, kwargs), found {type(made).__name__}")
    inputs = made[1] if isinstance(made[1], (tuple, list)) else (made[1],)
    return made[0], tuple(inputs), dict(made[2]) if len(made) == 3 else {}


def _root(error: BaseException) -> BaseException:
    """What Dynamo's own exceptions were raised for."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def _text(error: BaseException) -> str:
    """The class and the first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
