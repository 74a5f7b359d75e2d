# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks growth``: how compile time grows with the number of identical layers, and run time with sizes.

Compile times are those of first calls in one process in which everything is loaded, without caches; `tracing` is what
Dynamo and AOTAutograd take of them. Run times are measured as `python -m benchmarks` does. See docs/performance.md.
"""

import argparse
import json
import logging
import os
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from benchmarks.case import Case
from benchmarks.charts import svg
from benchmarks.cold import ROOT, cpu_seconds
from benchmarks.contenders import CONTENDERS
from benchmarks.growth_plot import growth_charts
from benchmarks.measure import CaseResult, Settings, measure_case, summary
from benchmarks.micro_cases import micro
from benchmarks.networks import gpt2
from benchmarks.report import ALLOCATION, machine, markdown_table

__all__ = ["CLASSES", "Growth", "compile_growth", "main"]

#: Inductor takes minutes for the deep ones.
INDUCTOR_LAYERS = 8


@dataclass
class Growth:
    """First call of a model of ``layers`` identical layers: the median of ``seconds``, or ``failure``.

    ``per_layer``: seconds that each layer more takes than the row before; None in the first row.
    """

    contender: str
    layers: int
    seconds: list[float]
    median: float | None = None
    per_layer: float | None = None
    failure: str = ""


def _first_call(contender: str, layers: int, cpu_time: bool = False) -> float:
    """Seconds of the first call of a GPT-2 of width 256 with new weights."""
    clock = cpu_seconds if cpu_time else time.perf_counter
    torch._dynamo.reset()
    model, make_inputs = gpt2(layers=layers, width=256, heads=4, batch=1, length=64, vocabulary=1000)
    inputs = make_inputs(torch.Generator().manual_seed(1))
    prepared = CONTENDERS[contender].prepare(model)
    with torch.no_grad():
        start = clock()
        prepared(*inputs)
        return clock() - start


def compile_growth(
    contenders: Sequence[str], layers: Sequence[int], repeats: int, cpu_time: bool = False
) -> list[Growth]:
    """First calls of every contender at every number of layers, those of one number in turn."""
    rows: list[Growth] = []
    last: dict[str, Growth] = {}
    for name in contenders:
        if not CONTENDERS[name].unavailable():
            _first_call(name, 1)  # loads the compiler's modules
    for count in layers:
        here = [Growth(n, count, []) for n in contenders if "inductor" not in n or count <= INDUCTOR_LAYERS]
        for _ in range(repeats):
            for row in here:
                row.failure = row.failure or CONTENDERS[row.contender].unavailable()
                if not row.failure:
                    try:
                        row.seconds.append(_first_call(row.contender, count, cpu_time))
                    except Exception as error:  # one that fails must not end the run; the report says so
                        row.failure = f"{type(error).__name__}: {summary(error)}"
        for row in here:
            if row.failure:
                continue
            row.median = statistics.median(row.seconds)
            before = last.get(row.contender)
            if before is not None and before.median is not None:
                row.per_layer = (row.median - before.median) / (count - before.layers)
            last[row.contender] = row
        rows += here
    return rows


def _pointwise(size: int) -> Case:
    return micro(f"pointwise {size}", "gelu(x * y + x)", lambda x, y: F.gelu(x * y + x), ((size,), (size,)))


def _softmax(size: int) -> Case:
    return micro(f"softmax {size}", "256 rows", lambda x: torch.softmax(x, -1), ((256, size),))


def _layer_norm(size: int) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (size,), w, b)

    return micro(f"layer_norm {size}", "256 rows", function, ((256, size),), ((size,), (size,)))


def _matmul(size: int) -> Case:
    return micro(f"matmul {size}", "x @ w.T, square", lambda x, w: F.linear(x, w), ((size, size),), ((size, size),))


def _attention(size: int) -> Case:
    shape = (1, 8, size, 64)
    return micro(f"attention {size}", "8 heads of 64", F.scaled_dot_product_attention, (shape,) * 3)


def _conv(size: int) -> Case:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=1)

    return micro(f"conv {size}", "3x3, 64 channels", function, ((1, 64, size, size),), ((64, 64, 3, 3),))


#: Class -> its case at a size, what the size counts, and the sizes.
CLASSES = {
    "pointwise": (_pointwise, "elements", [1 << p for p in range(8, 25, 2)]),
    "softmax": (_softmax, "columns", [16, 64, 100, 256, 1000, 1024, 4096, 16384]),
    "layer_norm": (_layer_norm, "columns", [16, 64, 100, 256, 1000, 1024, 4096, 16384]),
    "matmul": (_matmul, "rows and columns", [16, 33, 64, 100, 128, 256, 500, 512, 1024, 2048]),
    "attention": (_attention, "tokens", [16, 50, 64, 128, 197, 256, 512, 1024, 2048]),
    "conv": (_conv, "height and width", [7, 14, 28, 31, 56, 112]),
}


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks growth", description="Compile time against layers, run time against sizes."
    )
    add = parser.add_argument
    add("--contenders", nargs="+", default=["eager", "kiln"], choices=list(CONTENDERS))
    add("--layers", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 48], help="none: no compile times")
    add("--classes", nargs="*", default=list(CLASSES), choices=list(CLASSES), help="none: no run times")
    add("--repeats", type=int, default=3, help="first calls of each model")
    add("--threads", type=int, default=1)
    add("--rounds", type=int, default=15, help="interleaved rounds of run times")
    add("--cpu-time", action="store_true", help="CPU time instead of wall time, for a machine with other work")
    add("--quick", action="store_true", help="the three smallest of everything, few rounds: a look, no measurement")
    add("--json", type=Path, default=ROOT / "build" / "growth.json", help="where the figures go")
    add("--svg", type=Path, default=ROOT / "build" / "growth.svg", help="where the charts go")
    add("--markdown", type=Path, help="write the tables as markdown, too")
    arguments = parser.parse_args(argv)
    if min([arguments.repeats, arguments.threads, arguments.rounds, *arguments.layers]) < 1:
        parser.error("--layers, --repeats, --threads and --rounds must be positive")
    if arguments.cpu_time and arguments.threads != 1:
        parser.error("--cpu-time counts one thread: it needs --threads 1")
    arguments.layers = sorted(set(arguments.layers))
    return arguments


def _compile_table(rows: Sequence[Growth], names: Sequence[str]) -> tuple[str, list[str], list[list[str]]]:
    found = {(row.layers, row.contender): row for row in rows}
    cells = []
    for layers in sorted({row.layers for row in rows}):
        line = [str(layers)]
        for name in names:
            row = found.get((layers, name))
            line.append(f"{row.median:.2f}" if row and row.median is not None else "-")
            line.append(f"{row.per_layer:.3f}" if row and row.per_layer is not None else "-")
        cells.append(line)
    headers = ["layers", *(h for n in names for h in (f"{n} s", "per new layer"))]
    return "first call of a GPT-2 of width 256, in seconds", headers, cells


def _run_table(results: Sequence[CaseResult], names: Sequence[str]) -> tuple[str, list[str], list[list[str]]]:
    cells = []
    for result in results:
        kind, _, size = result.case.partition(" ")
        line = [kind, f"{size} {CLASSES[kind][1]}"]
        for name in names:
            outcome = result.outcomes[name]
            gain = f" ({outcome.speedup:.2f}x)" if name != "eager" and outcome.speedup is not None else ""
            wrong = " WRONG" if outcome.right is False else ""
            line.append(f"{1e6 * outcome.median:.1f}{gain}{wrong}" if outcome.median is not None else "-")
        cells.append(line)
    return "time per call in us; in brackets eager's time over this one", ["class", "size", *names], cells


def main(argv: Sequence[str]) -> int:
    """Entry point. Returns 1 if a contender gave a wrong result or Kiln failed on a case, else 0."""
    arguments = _arguments(argv)
    console = Console()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
    torch._inductor.config.force_disable_caches = True
    os.environ["KILN_CACHE"] = "0"
    here = machine()
    console.print(", ".join(f"{k} {v}" for k, v in here.items()), highlight=False)
    quick, names, cpu = arguments.quick, arguments.contenders, arguments.cpu_time
    layers = arguments.layers[:3] if quick else arguments.layers
    compiling = [n for n in dict.fromkeys([*names, "tracing"]) if CONTENDERS[n].compiles]
    rows = compile_growth(compiling, layers, 1 if quick else arguments.repeats, cpu) if layers else []
    settings = Settings(arguments.threads, 3 if quick else arguments.rounds, 0.005 if quick else 0.02, cpu)
    results = []
    for name in arguments.classes:
        build, _, sizes = CLASSES[name]
        results += [measure_case(build(size), names, settings) for size in (sizes[:3] if quick else sizes)]
    sections = [_compile_table(rows, compiling)] if rows else []
    sections += [_run_table(results, names)] if results else []
    for title, headers, cells in sections:
        table = Table(*headers, title=title, title_justify="left")
        for line in cells:
            table.add_row(*line)
        console.print(table)
    failures = [f"{r.layers} layers: {r.contender}: {r.failure}" for r in rows if r.failure]
    failures += [f"{r.case}: {n}: {o.failure}" for r in results for n, o in r.outcomes.items() if o.failure]
    for line in failures:
        console.print(line, markup=False, highlight=False)
    document = {
        "machine": here,
        "allocation": ALLOCATION,
        "quick": quick,
        "threads": arguments.threads,
        "clock": "CPU time" if cpu else "wall time",
        "compile": [asdict(row) for row in rows],
        "run": [result.as_dict() | {"size": CLASSES[result.case.partition(" ")[0]][1]} for result in results],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    charts = growth_charts(document)
    if charts:
        arguments.svg.parent.mkdir(parents=True, exist_ok=True)
        arguments.svg.write_text(svg(charts), encoding="utf-8")
    if arguments.markdown:
        text = "\n\n".join(markdown_table(*section) for section in sections)
        arguments.markdown.write_text(text + "\n", encoding="utf-8")
    wrong = any(o.right is False for r in results for o in r.outcomes.values())
    kiln_failed = any(o.failure for r in results for n, o in r.outcomes.items() if n.startswith("kiln"))
    return 1 if wrong or kiln_failed or any(r.failure for r in rows if r.contender.startswith("kiln")) else 0
