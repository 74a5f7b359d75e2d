# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The one place that makes an MLIR context for Kiln."""

import threading

from torch_mlir import ir
from torch_mlir._mlir_libs import _mlir

# Not from torch_mlir.dialects.torch: the bindings import that large module when the first torch op is looked at.
from torch_mlir._mlir_libs._torchMlir import register_dialect as register_torch

# Where the bindings look for the classes of a dialect's ops. Without it every view of a kiln op searches the file
# system for `torch_mlir.dialects.kiln` again (0.2 ms each).
_mlir.globals.append_dialect_search_prefix("kiln.dialects")

_loading = threading.RLock()  # while a dialect is loaded, its class holds what it is loaded from


def create_context(*, tt: bool = True) -> ir.Context:
    """Return a new context with the `torch`, `kiln` and `tt` dialects loaded.

    tt: False leaves out the last one, which no graph for the CPU has; loading it takes as long as the other two.

    Multithreading is off: Python-defined verifiers and interfaces deadlock with it on, as the worker threads wait
    for an interpreter lock that the main thread holds.  Unregistered dialects are rejected, so that a misspelt op is
    an error where it is parsed.
    """
    # Imported here, not above: `kiln.dialects.kiln` modules import this package.
    from kiln.dialects.kiln import Kiln
    from kiln.dialects.tt import Tt

    context = ir.Context()
    context.enable_multithreading(False)
    context.allow_unregistered_dialects = False
    register_torch(context)
    with _loading, context, ir.Location.unknown():
        for dialect in (Kiln, Tt) if tt else (Kiln,):
            dialect.load()
            # The class keeps the module that defines its ops, and so the context, with all that graphs leave in it.
            dialect._mlir_module = None
    return context
