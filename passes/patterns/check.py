# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What is known of a pattern from outside when it is registered: its functions are called on fake tensors."""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from kiln.errors import KilnError
from kiln.passes.patterns.graph import trace_example
from kiln.passes.patterns.registry import RewritePattern

__all__ = ["check"]


def check(entry: RewritePattern) -> None:
    """Raise KilnError, naming the pattern, where at an example the replacement cannot stand for the pattern."""
    if not entry.example_inputs():
        raise KilnError(f"pattern {entry.name!r}: there is no example")
    for example in entry.example_inputs():
        with FakeTensorMode() as mode, torch.no_grad():
            arguments = pytree.tree_map_only(torch.Tensor, mode.from_tensor, example)
            wanted = _results(entry, "pattern", entry.pattern, arguments)
            if entry.condition is not None and _call(entry, "condition", entry.condition, arguments) is not None:
                continue  # the replacement need not take these
            found = _results(entry, "replacement", entry.replacement, arguments)
        if wanted != found:
            raise KilnError(
                f"pattern {entry.name!r}: the pattern gives {_text(wanted)}, its replacement {_text(found)}"
            )
        _call(entry, "pattern", lambda *given: trace_example(entry, given), example, " and symbols for sizes")


def _results(
    entry: RewritePattern, what: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """Dtypes and sizes of what a function gives."""
    results = pytree.tree_leaves(_call(entry, what, function, arguments))
    if not results or not all(isinstance(result, torch.Tensor) for result in results):
        raise KilnError(f"pattern {entry.name!r}: the {what} must give tensors, found {results!r}")
    kept = [value for value in pytree.tree_leaves(arguments) if isinstance(value, torch.Tensor) and not value._version]
    if what == "pattern" and any(result is value for result in results for value in kept):
        raise KilnError(f"pattern {entry.name!r}: the pattern gives one of its arguments as it is")
    return [(result.dtype, tuple(result.shape)) for result in results]


def _call(
    entry: RewritePattern, what: str, function: Callable[..., Any], arguments: tuple[Any, ...], beside: str = ""
) -> Any:
    """What a function of the user gives, its errors with the pattern's name."""
    try:
        return function(*arguments)
    except KilnError:
        raise
    except DataDependentOutputException as error:
        reason = f"the {what} reads an element of a tensor ({error.func}), which is not known when a graph is compiled"
        raise KilnError(f"pattern {entry.name!r}: {reason}") from error
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        example = f"the example of {len(arguments)} arguments{beside}"
        reason = f"the {what} fails with {example}: {type(error).__name__}: {first}"
        raise KilnError(f"pattern {entry.name!r}: {reason}") from error


def _text(results: list[tuple[torch.dtype, tuple[int, ...]]]) -> str:
    return ", ".join(f"{str(dtype).removeprefix('torch.')}{list(shape)}" for dtype, shape in results)
