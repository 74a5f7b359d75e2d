# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln: a ``torch.compile`` backend in which every pass is Python on real MLIR.

``torch.compile(model, backend="kiln")`` compiles a model; :func:`kiln.explain` reports what became of each op,
:func:`kiln.profile` how long each kernel takes, and :func:`kiln.trace` keeps the graph at every stage.
Attributes are loaded on first use, so that ``import kiln`` (and ``kiln-opt``) does not import torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from kiln.frontend.registration import ensure_registered

if TYPE_CHECKING:
    from kiln import patterns, schedules
    from kiln.frontend.backend import kiln as backend
    from kiln.frontend.report.explain import explain
    from kiln.frontend.report.profile import profile
    from kiln.frontend.report.trace.notebook import trace
    from kiln.inserts import Insert

__version__ = "0.2.0"

__all__ = ["Insert", "__version__", "backend", "explain", "patterns", "profile", "schedules", "trace"]

# Public name -> (module, attribute there; None: the module itself).
_LAZY: dict[str, tuple[str, str | None]] = {
    "Insert": ("kiln.inserts", "Insert"),
    "backend": ("kiln.frontend.backend", "kiln"),
    "explain": ("kiln.frontend.report.explain", "explain"),
    "patterns": ("kiln.patterns", None),
    "profile": ("kiln.frontend.report.profile", "profile"),
    "schedules": ("kiln.schedules", None),
    "trace": ("kiln.frontend.report.trace.notebook", "trace"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kiln' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = importlib.import_module(module)
    if attribute is not None:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


# An installation announces the backend through the entry-point group ``torch_dynamo_backends``; this makes
# ``backend="kiln"`` resolvable from a checkout as well. It imports no torch.
ensure_registered()
