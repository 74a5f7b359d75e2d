# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Keeping AOTAutograd's traces (``frontend/cache/autograd_cache_hooks.py``), where this PyTorch has what that needs.

The hooks are private to PyTorch. Where one is missing, graphs are traced in each process, and Kiln's own cache works.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from kiln.frontend.options import Options

__all__ = ["keeping_traces", "savable", "serializable"]

log = logging.getLogger("kiln")


@functools.cache
def _hooks() -> ModuleType | None:
    """``autograd_cache_hooks.py``; None, and a line in the log, where it cannot work with this PyTorch."""
    try:
        from kiln.frontend.cache import autograd_cache_hooks
    except (ImportError, AttributeError) as missing:
        log.info("AOTAutograd's traces are not kept: %s", missing)
        return None
    return autograd_cache_hooks


def serializable(compiler: Callable[..., Any], options: Options) -> Callable[..., Any]:
    """A compiler whose results AOTAutograd may keep, from one that publishes a report of what it compiles."""
    hooks = _hooks()
    return compiler if hooks is None else hooks.serializable(compiler, options)


def keeping_traces(inputs: Sequence[Any], options: Options) -> contextlib.AbstractContextManager[None]:
    """While AOTAutograd runs in the block with compilers of ``serializable``, it looks its result up and keeps it."""
    hooks = _hooks()
    return contextlib.nullcontext() if hooks is None else hooks.keeping_traces(inputs, options)


def savable(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What AOTAutograd made with compilers of ``serializable``, for ``aot_compile``."""
    hooks = _hooks()
    return compiled if hooks is None else hooks.savable(compiled)
