# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Importing the compiler so that an interrupt does not leave it half imported.

Modules register what they define: dialects and ops with MLIR's bindings, passes, conversions, rules and patterns with
Kiln. The bindings can neither take that back nor take it twice. Python forgets a module whose import was interrupted,
and the next one would run it again: "Dialect namespace 'torch' is already registered", until the process ends.
"""

import contextlib
import gc
import importlib
import sys
import threading
from collections.abc import Iterator, Sequence

__all__ = ["few_collections", "import_compiler"]

#: What registers something, by itself or through what it imports, and is needed to compile any graph.
_MODULES = (
    "torch_mlir.dialects.builtin",
    "torch_mlir.dialects.complex",
    "torch_mlir.dialects.linalg",
    "torch_mlir.dialects.tensor",
    "torch_mlir.dialects.torch",
    "kiln.dialects.kiln",
    "kiln.dialects.reference",
    "kiln.dialects.tt",
    "kiln.frontend.native",
)

_LARGE_PART = 4
"""What is imported is looked through for garbage if it is more than one of so many parts of all objects: then a
collection of everything is what Python's own rule would start soon, in the middle of the first compilation."""


def import_compiler() -> None:
    """Import everything that registers. Signals are handled in the main thread, so the imports run in another one,
    which an interrupt of the waiting caller does not stop; the next caller waits for it.

    Raises what the imports raise.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with few_collections(_MODULES):
                for module in _MODULES:
                    importlib.import_module(module)
                _load_registries()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            failures.append(error)

    thread = threading.Thread(target=work, name="kiln-import")
    thread.start()
    thread.join()
    for failure in failures:
        raise failure


@contextlib.contextmanager
def few_collections(modules: Sequence[str]) -> Iterator[None]:
    """At most one collection of garbage, behind the block: modules make objects that stay, among which collections
    find nothing, and they would take longer than the imports themselves. Without effect once `modules` are imported."""
    if not gc.isenabled() or all(name in sys.modules for name in modules):
        yield
        return
    gc.disable()
    try:
        yield
        made = gc.get_count()[0]
        if made * _LARGE_PART > len(gc.get_objects()):
            gc.collect()
    finally:
        gc.enable()


def _load_registries() -> None:
    """The conversions, rules and patterns of their packages."""
    from kiln.passes.algebra.rules import all_rules
    from kiln.passes.patterns.registry import active_patterns
    from kiln.passes.torch_to_kiln.registry import load_rules

    load_rules()
    all_rules()
    active_patterns()
