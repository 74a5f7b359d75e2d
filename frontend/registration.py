# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Make ``backend="kiln"`` known to Dynamo where the entry point is not installed (a plain checkout).

This module imports no torch: where torch is not loaded yet, a finder waits for Dynamo's backend registry.
"""

import importlib.abc
import importlib.machinery
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

__all__ = ["ensure_registered"]

_REGISTRY = "torch._dynamo.backends.registry"
_ENTRY = EntryPoint(name="kiln", value="kiln.frontend.backend:kiln", group="torch_dynamo_backends")


def ensure_registered() -> None:
    """Idempotent. An installed entry point of the same name replaces ours: Dynamo reads it later."""
    module = sys.modules.get(_REGISTRY)
    if module is not None:
        _add(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _add(registry: ModuleType) -> None:
    backends: dict[str, Any] = registry._BACKENDS
    backends.setdefault("kiln", _ENTRY)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the registry module once, through the other finders, and adds the entry after it has run."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _add(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
