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
from collections.abc import Generator, Sequence

__all__ = ["import_compiler", "no_collections", "no_full_collections"]

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

#: What these import as late as they can, since they refer to each other, and nearly every graph needs.
_LATE = (
    "kiln.lowering.cpu.tile.reduction",
    "kiln.passes.expand_vector_math",
    "kiln.passes.patterns.replace",
)

_NEVER = 2**31 - 1
_FROZEN = 1000
"""Frozen objects from which on somebody has frozen them: Python 3.12 begins with some hundreds, PyTorch has 10^5."""
_lock = threading.RLock()  # a finalizer may run anywhere, and compile
_blocks, _thresholds = 0, (0, 0, 0)


def import_compiler() -> None:
    """Import everything that registers. Signals are handled in the main thread, so the imports run in another one,
    which an interrupt of the waiting caller does not stop; the next caller waits for it.

    Raises what the imports raise.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with no_collections(_MODULES):
                for module in (*_MODULES, *_LATE):
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
def no_collections(modules: Sequence[str]) -> Generator[None, None, None]:
    """No collection of garbage: modules make objects that stay, among which collections find nothing, and they would
    take longer than the imports themselves. Without effect once `modules` are imported.
    """
    if not gc.isenabled() or all(name in sys.modules for name in modules):
        yield
        return
    gc.disable()
    try:
        yield
        _count_as_old()
    finally:
        gc.enable()


@contextlib.contextmanager
def no_full_collections() -> Generator[None, None, None]:
    """No collection of everything in the block, which compiles: graphs and code are many objects that stay as long as
    they are worked on, hence such collections. Each looks through all objects of the process, for half a second where
    other compilers have run, and finds next to nothing. Collections of young objects go on. Blocks may be nested, and
    in several threads.
    """
    global _blocks, _thresholds
    with _lock:
        if _blocks == 0 and gc.get_threshold()[2] != _NEVER:
            _thresholds = gc.get_threshold()
            gc.set_threshold(*_thresholds[:2], _NEVER)
        _blocks += 1
    try:
        yield
    finally:
        if _blocks == 1 and gc.isenabled():
            gc.collect(1)
            _count_as_old()  # else a collection of everything is due as soon as the threshold is back
        with _lock:
            _blocks -= 1
            if _blocks == 0 and gc.get_threshold()[2] == _NEVER:
                gc.set_threshold(*_thresholds)


def _count_as_old() -> None:
    """All objects are old, and none new. Does nothing where somebody has frozen objects: they would not stay so."""
    if gc.get_freeze_count() < _FROZEN:
        gc.freeze()
        gc.unfreeze()


def _load_registries() -> None:
    """The conversions, rules and patterns of their packages."""
    from kiln.passes.algebra.rules import all_rules
    from kiln.passes.patterns.registry import active_patterns
    from kiln.passes.torch_to_kiln.registry import load_rules

    load_rules()
    all_rules()
    active_patterns()
