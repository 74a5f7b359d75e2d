# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Make Kiln known to PyTorch: ``backend="kiln"`` to Dynamo where the entry point is not installed (a plain checkout),
and Kiln's entries to ``torch.compiler.load_cache_artifacts``.

This module imports no torch: where torch is not loaded yet, a finder waits for the two modules of it.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

__all__ = ["ensure_registered"]

_ENTRY = EntryPoint(name="kiln", value="kiln.frontend.backend:kiln", group="torch_dynamo_backends")


def ensure_registered() -> None:
    """Idempotent. An installed entry point of the same name replaces ours: Dynamo reads it later."""
    waiting: dict[str, Callable[[ModuleType], None]] = {}
    for name, act in (("torch._dynamo.backends.registry", _add_backend), ("torch.compiler._cache", _add_artifacts)):
        module = sys.modules.get(name)
        if module is not None:
            act(module)
        else:
            waiting[name] = act
    if waiting and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(waiting))


def _add_backend(registry: ModuleType) -> None:
    backends: dict[str, Any] = registry._BACKENDS
    backends.setdefault("kiln", _ENTRY)


def _add_artifacts(cache: ModuleType) -> None:
    """Registers the type of Kiln's artifacts, where this PyTorch has such."""
    if hasattr(cache, "CacheArtifactFactory"):
        importlib.import_module("kiln.frontend.cache.artifacts")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds each of some modules once, through the other finders, and does something after it has run."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self.waiting = waiting

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        act = self.waiting.pop(fullname, None)
        if act is None:
            return None
        if not self.waiting:
            sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            act(module)

        loader.exec_module = exec_module
        return spec
