# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The models that tools are given as ``package.module:function``."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from kiln.errors import KilnError, did_you_mean

__all__ = ["error_text", "load_model", "root_of"]


def load_model(target: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
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
        raise KilnError(f"cannot import {module_name!r}: {error_text(error)}") from error
    if not hasattr(module, function_name):
        hint = did_you_mean(function_name, [name for name in dir(module) if not name.startswith("_")])
        raise KilnError(f"module {module_name!r} has no function {function_name!r}{hint}")
    made: Any = getattr(module, function_name)()
    if not isinstance(made, tuple) or len(cast(tuple[Any, ...], made)) not in (2, 3):
        raise KilnError(
            f"{target} must return (model, inputs) or (model, inputs, kwargs), found {type(cast(Any, made)).__name__}"
        )
    given = cast(tuple[Any, ...], made)
    inputs = cast(Sequence[Any], given[1]) if isinstance(given[1], (tuple, list)) else (given[1],)
    return given[0], tuple(inputs), dict(given[2]) if len(given) == 3 else {}


def error_text(error: BaseException) -> str:
    """The class and the first line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def root_of(error: BaseException) -> BaseException:
    """What Dynamo's own exceptions were raised for."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error
