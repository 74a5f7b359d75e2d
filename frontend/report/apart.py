# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiling a model for a report of it, apart from what the program itself compiles."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Generator
from typing import Any, cast

import torch
from torch.fx import GraphModule

__all__ = ["compile_apart", "compiling_apart"]


@functools.cache
def _own_entries() -> dict[str, Any]:
    """Where PyTorch has it (2.13): entries of one `torch.compile` do not count as recompilations of another."""
    has = "isolate_recompiles" in inspect.signature(cast("Callable[..., Any]", torch.compile)).parameters
    return {"isolate_recompiles": True} if has else {}


def compile_apart(
    model: Callable[..., Any], backend: Callable[[GraphModule, Any], Callable[..., Any]], dynamic: bool | None
) -> Callable[..., Any]:
    """What ``torch.compile`` gives, by a backend that no other compilation has; call it in `compiling_apart`."""
    return cast("Callable[..., Any]", torch.compile)(model, backend=backend, dynamic=dynamic, **_own_entries())


@contextlib.contextmanager
def compiling_apart() -> Generator[None, None, None]:
    """A block in which graphs are compiled that no cache of Dynamo's has or keeps.

    Dynamo runs a function that it has compiled 8 times with eager, and each report of a model is one more time.
    """
    with torch._dynamo.config.patch(
        caching_precompile=False, recompile_limit=sys.maxsize, accumulated_recompile_limit=sys.maxsize
    ):
        yield
