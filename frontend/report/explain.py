# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln.explain``: compile a model for given inputs and tell what became of each op."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.fx import GraphModule

from kiln.frontend.backend import kiln as backend
from kiln.frontend.report import CompileReport, collect
from kiln.frontend.report.apart import compile_apart, compiling_apart
from kiln.notes import names_in_location, shown_location

__all__ = ["Explanation", "explain"]


@dataclass
class Explanation:
    """The reports of every graph a call compiled; ``print(explanation)`` shows them as tables."""

    graphs: list[CompileReport] = field(default_factory=list[CompileReport])
    graph_breaks: list[str] = field(default_factory=list[str])

    @property
    def kernels(self) -> int:
        """Number of distinct kernels over all graphs."""
        return sum(len(graph.kernels) for graph in self.graphs)

    @property
    def aten_calls(self) -> list[str]:
        """Names of the ATen ops that are called at run time, one entry per call."""
        return [call.op for graph in self.graphs for call in graph.aten_calls]

    @property
    def fallbacks(self) -> list[str]:
        """Reasons of the graphs that run with ATen as a whole."""
        return [graph.fallback_reason for graph in self.graphs if graph.executor == "aten"]

    def to_text(self, width: int = 120, *, verbose: bool = False) -> str:
        """The tables as plain text of the given width; ``verbose`` lists every op, not one row per kind of op."""
        console = Console(file=StringIO(), width=width, highlight=False, no_color=True)
        self.show(console, verbose=verbose)
        assert isinstance(console.file, StringIO)
        return console.file.getvalue()

    def show(self, console: Console | None = None, *, verbose: bool = False) -> None:
        """Print the tables."""
        console = console or Console()
        for number, graph in enumerate(self.graphs):
            _show_graph(console, number, graph, verbose)
        if self.graph_breaks:
            console.print(f"{len(self.graph_breaks)} graph breaks (Dynamo's, before Kiln):")
            for reason in self.graph_breaks:
                console.print(f"  {reason}", markup=False)
        if not self.graphs:
            console.print("no graph was compiled: the call runs no tensor code, or Dynamo skipped it")

    def __str__(self) -> str:
        return self.to_text()


def explain(
    model: Callable[..., Any],
    *inputs: Any,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Explanation:
    """Compile and run ``model(*inputs, **kwargs)`` once and report what Kiln made of it.

    Args:
        model: a module or a function.
        inputs, kwargs: its arguments.
        mode, options, dynamic: as for ``torch.compile``.

    Raises:
        BackendOptionError: an unknown mode or option.
    """
    if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
        model = model._orig_mod

    # A backend of its own, and no kept ones: neither Dynamo's cache for "kiln" nor its files are used or filled.
    def explaining(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
        return backend(gm, example_inputs, mode=mode, options=options)

    counters = torch._dynamo.utils.counters
    before = Counter(counters["graph_break"])
    with collect() as reports, compiling_apart():
        compile_apart(model, explaining, dynamic)(*inputs, **kwargs)
    breaks = Counter(counters["graph_break"]) - before
    return Explanation(reports, [reason.strip().splitlines()[0] for reason in breaks.elements()])


def _show_graph(console: Console, number: int, graph: CompileReport, verbose: bool) -> None:
    sizes = f", sizes {', '.join(graph.symbols)}" if graph.symbols else ""
    console.print(f"Graph {number}: {graph.graph}, {graph.nodes} ATen ops, {graph.seconds:.2f} s to compile{sizes}")
    if graph.executor == "aten":
        console.print("  the whole graph runs with ATen:", markup=False)
        console.print(f"  {graph.fallback_reason}", markup=False)
        if graph.reproducer:
            console.print(f"  reproduce with: {graph.reproducer}", markup=False)
        return
    if graph.decisions:
        console.print(_decision_table(graph, verbose))
    if graph.rewrites:
        console.print(f"patterns rewritten: {_listed(graph.rewrites)}", markup=False)
    rules = {k[8:]: n for k, n in graph.statistics.get("simplify-algebra", {}).items() if k.startswith("matched:")}
    if rules:
        console.print(f"algebra rules applied: {_listed(rules)}", markup=False)
    for name, counts in graph.statistics.items() if verbose else ():
        if any(counts.values()):
            shown = ", ".join(f"{key}={count}" for key, count in counts.items() if count)
            console.print(f"{name}: {shown}", markup=False)
    for note in graph.notes:
        if verbose or note.pass_name in ("rewrite-patterns", "autotune-cpu", "autotune-gpu"):
            # The FX node's name is what the other tables show as well.
            where = shown_location(note.location) if verbose else ", ".join(names_in_location(note.location))
            where = where or note.location
            console.print(f"{note.pass_name}: {where}: {note.op}: {note.reason}", markup=False)
    if graph.proved is not None:
        console.print(f"proofs of {graph.proved}", markup=False)
        for line in graph.proved.unknown if verbose else ():
            console.print(f"  {line}", markup=False)
    if graph.kernels:
        table = Table(
            "kernel", "kind", "launches", "ops in it", title=f"{len(graph.kernels)} kernels", title_justify="left"
        )
        for kernel in graph.kernels:
            table.add_row(kernel.name, kernel.kind, str(kernel.launches), _counted(kernel.ops))
        console.print(table)
    calls = Counter((call.op, call.reason) for call in graph.aten_calls)
    if calls:
        table = Table("ATen call", "times", "why", title=f"{len(graph.aten_calls)} ATen calls", title_justify="left")
        for (op, reason), times in calls.items():
            table.add_row(op, str(times), reason)
        console.print(table)
    else:
        console.print("no ATen call is left: the graph is native code from end to end")
    if graph.freezing is not None:
        console.print(f"freezing: {graph.freezing}", markup=False)
    if graph.constant_bytes:
        console.print(f"constants that the code reads: {_kib(graph.constant_bytes)}")
    if graph.workspace_bytes:
        console.print(f"workspace for all intermediates: {graph.workspace_bytes / 1024:.1f} KiB")
    if graph.memory is not None and graph.eager_memory is not None:
        ours, eager = graph.memory, graph.eager_memory
        console.print(f"bytes read and written: {_kib(ours.moved)} (eager's operators: {_kib(eager.moved)})")
        console.print(f"most memory allocated at once: {_kib(ours.peak)} (eager: {_kib(eager.peak)})")
    if graph.cache not in ("", "off"):
        console.print(f"persistent cache: {graph.cache}", markup=False)
    if graph.trace:
        console.print(f"AOTAutograd's trace: {graph.trace}", markup=False)
    table = Table("stage", "ms", title="compile time", title_justify="left")
    for stage, seconds in graph.stages.items():
        table.add_row(stage, f"{1e3 * seconds:.1f}")
    console.print(table)


def _decision_table(graph: CompileReport, verbose: bool) -> Table:
    """Every op with ``verbose``; else a row per (op, way, reason)."""
    ways = ", ".join(f"{count} {way}" for way, count in sorted(graph.ways().items()))
    title = f"{len(graph.decisions)} torch ops: {ways}"
    if verbose:
        table = Table("torch op", "way", "where", "why", title=title, title_justify="left")
        for decision in graph.decisions:
            table.add_row(decision.op, decision.way, shown_location(decision.location), decision.reason)
        return table
    table = Table("torch op", "times", "way", "why", title=title, title_justify="left")
    for (op, way, reason), times in Counter((d.op, d.way, d.reason) for d in graph.decisions).items():
        table.add_row(op, str(times), way, reason)
    return table


def _kib(count: int) -> str:
    return f"{count / 1024:,.1f} KiB"


def _counted(names: tuple[str, ...]) -> str:
    return _listed(Counter(names))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
