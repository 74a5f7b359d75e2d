# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiling through the persistent cache: a graph that some process has compiled is loaded, without MLIR.

The key is everything that the code depends on (``graph_key.py``), the value the plan with its machine code.
"""

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from kiln.errors import KilnError
from kiln.frontend import knobs
from kiln.frontend.cache.artifacts import record
from kiln.frontend.cache.graph_key import Uncacheable, graph_key
from kiln.frontend.cache.stored_graph import StoredGraph
from kiln.frontend.calls.boxed_graph import BoxedGraph
from kiln.frontend.compiler_import import import_compiler
from kiln.frontend.options import Options
from kiln.frontend.report import CompileReport
from kiln.frontend.report.log_topics import is_logged
from kiln.frontend.runners import make_runner
from kiln.runtime.disk_cache import DiskCache
from kiln.runtime.heap import give_back
from kiln.runtime.plan import AtenStep

__all__ = ["compile_cached", "graph_cache", "load_graph", "load_stored"]

ConstantsOf = Callable[[list[str]], dict[str, torch.Tensor]]


@functools.lru_cache(maxsize=8)
def _opened(folder: Path, max_bytes: int) -> DiskCache:
    return DiskCache(folder, max_bytes)


def graph_cache() -> DiskCache:
    """The cache that the knobs KILN_CACHE_DIR and KILN_CACHE_MIB describe."""
    return _opened(knobs.cache_dir(), knobs.cache_mib() << 20)


def compile_cached(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[Any]], list[Any]]:
    """Load the code for ``gm``, or compile and store it. ``report.cache`` tells which, or why neither.

    Raises what ``compile_native`` raises.
    """
    key = _key(gm, options, report)
    cache = graph_cache()
    if key:
        with report.stage("cache"):
            loaded = _load(cache, key, lambda names: _constants(gm, names), options, report)
        if loaded is not None:
            return loaded
    import_compiler()  # MLIR: only if something is to be compiled
    from kiln.frontend.native import compile_native

    graph = compile_native(gm, options, report)
    if key:
        reason = _why_not(graph.stored, graph.constants, gm)
        report.cache = f"not stored: {reason}" if reason else "stored"
        with report.stage("cache"):
            if not reason:
                data = graph.stored.to_bytes()
                if cache.put(key, data):
                    report.key = key
                    record(key, data)
                else:
                    report.cache = f"not stored: {cache.refusal or 'the cache cannot be written'}"
                del data
    run = graph.run
    del graph
    give_back()  # last: what is stored passes through memory, too
    return run


def load_graph(
    key: str, constants: Mapping[str, torch.Tensor], options: Options, report: CompileReport
) -> Callable[[list[Any]], list[Any]] | None:
    """The graph that ``compile_cached`` stored with a key, or None.

    Args:
        constants: at least the tensors lifted into the graph, by name.
    """
    with report.stage("cache"):
        return _load(graph_cache(), key, lambda names: {n: constants[n] for n in names}, options, report)


def _key(gm: GraphModule, options: Options, report: CompileReport) -> str:
    """The key, or an empty string with the reason in the report."""
    if not options.cache:
        report.cache = "off"
    elif options.debug_dir:
        report.cache = "off: the stages are to be dumped"
    elif options.override:
        report.cache = "off: edited stages are compiled"
    elif is_logged():
        report.cache = "off: schedules or code are to be logged"
    else:
        try:
            with report.stage("key"):
                return graph_key(gm, report.graph, options)
        except Uncacheable as reason:
            report.cache = f"off: {reason}"
    return ""


def _load(
    cache: DiskCache,
    key: str,
    constants_of: ConstantsOf,
    options: Options,
    report: CompileReport,
) -> Callable[[list[Any]], list[Any]] | None:
    data = cache.get(key)
    if data is None:
        return None
    try:
        run = load_stored(data, constants_of, options, report)
    except KilnError as error:
        cache.discard(key, str(error))
        return None
    report.key = key
    record(key, data)
    return run


def load_stored(
    data: bytes, constants_of: ConstantsOf, options: Options, report: CompileReport
) -> Callable[[list[Any]], list[Any]]:
    """The graph of which ``data`` is the StoredGraph.

    Args:
        constants_of: gives the tensors lifted into the graph that have these names.

    Raises KilnError for other data, and for code that cannot be loaded here.
    """
    stored = StoredGraph.from_bytes(data)
    constants = constants_of(_names(stored))
    run = make_runner(stored.plan, constants, options)
    stored.fill(report)
    report.cache = "loaded"
    return BoxedGraph(stored.signature, run, constants)


def _names(stored: StoredGraph) -> list[str]:
    """The lifted tensors that the code reads or returns."""
    names = [constant.name for constant in stored.plan.constants if constant.name]
    return names + [spec.name for spec in stored.signature.outputs if spec.kind == "constant"]


def _constants(gm: GraphModule, names: list[str]) -> dict[str, torch.Tensor]:
    """The graph's lifted tensors; their elements are part of the key."""
    return {name: functools.reduce(getattr, name.split("."), gm) for name in names}


def _why_not(stored: StoredGraph, constants: dict[str, torch.Tensor], gm: GraphModule) -> str:
    """Why a graph cannot be loaded by another process; empty if it can."""
    for step in stored.plan.steps:
        if isinstance(step, AtenStep) and step.op.startswith("kiln_fx"):
            return f"{step.name} is a call into this process"
    lifted = {str(node.target) for node in gm.graph.nodes if node.op == "get_attr"}
    made = [name for name in constants if name not in lifted]
    return f"constant {made[0]} was made by the compiler" if made else ""
