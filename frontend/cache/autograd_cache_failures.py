# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Failures of AOTAutograd's cache: the graph runs, its trace is not kept, and its report says why.

The cache is private to PyTorch and asserts what Inductor's results have. A cache must not end a program that runs
without one, except where the user asked for code that can be saved (``strict_autograd_cache``, set by ``aot_compile``).

Source: torch/_functorch/_aot_autograd/graph_compile.py.
"""

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from torch._functorch import config
from torch._functorch._aot_autograd import graph_compile

from kiln.errors import KilnError
from kiln.frontend.report import CompileReport

__all__ = ["guards", "is_saving_asked_for", "keeping_no_traces", "not_kept"]

log = logging.getLogger("kiln")

Place = tuple[Any, str, Any]


def is_saving_asked_for() -> bool:
    """Whether a trace that cannot be kept is an error."""
    return bool(config.strict_autograd_cache)


def keeping_no_traces() -> contextlib.AbstractContextManager[Any]:
    """AOTAutograd's cache is off in the block."""
    return cast(contextlib.AbstractContextManager[Any], config.patch(enable_autograd_cache=False))


def guards(reports: list[CompileReport]) -> Sequence[Place]:
    """What to patch around the functions that make AOTAutograd's entries, as far as this PyTorch has them.

    Args:
        reports: of the graphs that are compiled meanwhile, which are told of failures.
    """
    places: list[tuple[Any, str, functools.partial[Any]]] = []
    for name, guard in (("_cache_inference_info", _inference), ("_cache_autograd_info", _autograd)):
        original = getattr(graph_compile, name, None)
        if original is not None:
            places.append((graph_compile, name, functools.partial(guard, original, reports)))
    return places


def not_kept(reports: list[CompileReport], error: BaseException, *, rewritten: bool = True) -> None:
    """Say in the reports that traces of these graphs are not kept, and warn where the frontend did not rewrite them."""
    cause = f"{type(error).__name__}: {error}"
    reason = f"not kept: {cause}"
    if rewritten:
        log.warning("kiln: AOTAutograd's trace of a graph is %s", reason)
    else:
        text = f"kiln: a graph is compiled as PyTorch traced it: a rewrite of it failed: {cause}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    for report in reports:
        report.trace = reason


def _inference(original: Callable[..., Any], reports: list[CompileReport], *args: Any, **kwargs: Any) -> Any:
    """The entry of an inference graph, or None."""
    return _entry(original, reports, *args, **kwargs)


def _autograd(original: Callable[..., Any], reports: list[CompileReport], *args: Any, **kwargs: Any) -> Any:
    """(the function that makes the entry when the backward graph is compiled, the entry if it is compiled by now)."""
    found = _entry(original, reports, *args, **kwargs)
    if found is None:
        return None, None
    later, entry = found
    return later if later is None else functools.partial(_entry, later, reports), entry


def _entry(make: Callable[..., Any], reports: list[CompileReport], *args: Any, **kwargs: Any) -> Any:
    try:
        return make(*args, **kwargs)
    except KilnError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a cache runs into
        if is_saving_asked_for():
            raise
        not_kept(reports, error)
        return None
