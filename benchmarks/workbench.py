# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the workbench costs where nobody uses it: compilations and calls with its hooks, and with stand-ins for them.

Run: ``python -m benchmarks.workbench [--json FILE]``. Traces, dumps, logs, progress, own passes and the profiler's
regions hook into the driver. With every option off, a compilation is compared with one in which these hooks do nothing,
and a call with one whose program does not ask for PyTorch's profiler. Both are measured in turn, in pairs whose order
alternates, in CPU time of the process and of the thread; a ratio is the median over the pairs, with a 95 % interval
from resampled pairs.

Pairs of compilations scatter by some percent, so that each hook is timed by itself as well: its share includes the
clock's own time, and is an upper bound. Entering the location of the model's op, which emitted code keeps, is a
statement and no function: entries are counted, and one is timed.
"""

import argparse
import contextlib
import gc
import json
import os
import random
import statistics
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

__all__ = ["compile_row", "call_row", "main"]

COMPILED = ("tiny", "bert", "resnet18")
CALLED = ("tiny", "layernorm", "bert")
ASKED = "    if profiler._is_profiler_enabled: return profiled(inputs)\n"
"""The line of a plan's program that looks for PyTorch's profiler."""

Hook = tuple[types.ModuleType, str, Callable[..., Any]]


def hooks() -> list[Hook]:
    """The functions through which compilations reach the workbench, and what stands for them where there is none."""
    from kiln import entry_points
    from kiln.frontend.import_ import argument_names
    from kiln.frontend.report import announce, log_topics, progress
    from kiln.frontend.report.trace import session
    from kiln.lowering import considered
    from kiln.passes import manager, rewrites

    return [
        (announce, "announce", lambda report, options: None),
        (announce, "is_traced", lambda: False),
        (log_topics, "is_logged", lambda: False),
        (progress, "showing_progress", lambda graph: contextlib.nullcontext([])),
        (session, "recorders", lambda options, report, target: []),
        (session, "is_gathering", lambda: False),
        (session, "tell", lambda recorded, gm, plan, options: None),
        (manager, "inserted", lambda steps, inserts, compilation=None: list(steps)),
        (entry_points, "load", lambda group: []),
        (argument_names, "argument_names", lambda gm: tuple),
        (argument_names, "with_names", lambda gm, names: {}),
        (rewrites, "may_rewrite", lambda op, rule="": True),
        (considered, "considering", lambda location: contextlib.nullcontext()),
    ]


@contextlib.contextmanager
def replaced(replacements: Sequence[Hook]) -> Generator[None, None, None]:
    """Put functions in place of others, in every module that has imported them by name."""
    from kiln.frontend.patched_attributes import patched_attributes

    places: list[tuple[Any, str, Any]] = []
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "kiln"]
    for owner, name, function in replacements:
        before = getattr(owner, name)
        places += [(module, name, function) for module in modules if vars(module).get(name) is before]
    with patched_attributes(*places):
        yield


def compiled(case: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """A call of the case, compiled without any cache, and what makes the next call compile again."""
    import torch

    from benchmarks.case import built
    from benchmarks.cases import CASES
    from benchmarks.contenders import CONTENDERS
    from kiln.lowering.host.recent_kernels import recent_kernels

    module, inputs = (torch.nn.ReLU(), (torch.randn(16),)) if case == "tiny" else built(CASES[case], "f32", small=True)
    prepared = CONTENDERS["kiln"].prepare(module)

    def forget() -> None:
        torch._dynamo.reset()
        recent_kernels().clear()
        gc.collect()

    return lambda: prepared(*inputs), forget


def compile_row(case: str, pairs: int) -> dict[str, Any]:
    """CPU seconds of cold compilations, the first call's tracing included, and what the hooks take of them."""
    call, forget = compiled(case)

    def seconds() -> float:
        forget()
        start = time.process_time()
        call()
        return time.process_time() - start

    seconds()  # what only a first compilation imports
    ratios, times = [], []
    for number in range(pairs):
        found: dict[bool, float] = {}
        for with_hooks in (True, False) if number % 2 else (False, True):
            with contextlib.nullcontext() if with_hooks else replaced(hooks()):
                found[with_hooks] = seconds()
        ratios.append(found[True] / found[False])
        times.append(found[True])
    spent, entered = _spent(seconds)
    spent["locations"] = 2 * entered * _location_seconds()  # at most one more inside of it, for a reduction
    middle = statistics.median(times)
    return {
        "case": case,
        "cpu_s": round(middle, 3),
        **_ratio(ratios),
        "share": round(sum(spent.values()) / middle, 5),
        "hooks_us": {name: round(1e6 * value, 1) for name, value in spent.items()},
    }


def _spent(seconds: Callable[[], float]) -> tuple[dict[str, float], int]:
    """CPU seconds in each hook during one compilation, and how often the location of an op is entered."""
    from kiln.lowering.tile.evaluator import Traversal

    spent: Counter[str] = Counter()
    count = 0
    body_at = Traversal.body_at

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            result = function(*args, **kwargs)
            spent[name] += time.thread_time() - start
            return result

        return call

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return body_at(*args, **kwargs)

    Traversal.body_at = counted
    try:
        with replaced([(owner, name, timed(name, getattr(owner, name))) for owner, name, _ in hooks()]):
            seconds()
    finally:
        Traversal.body_at = body_at
    return dict(spent), count


def _location_seconds() -> float:
    """Of entering and leaving one location."""
    from torch_mlir import ir

    with ir.Context():
        location = ir.Location.file("model.py", 1, 1)
        start = time.thread_time()
        for _ in range(10000):
            with location:
                pass
        return (time.thread_time() - start) / 10000


def call_row(case: str, pairs: int) -> dict[str, Any]:
    """Microseconds of a call, guards included, and its time over that of a program without the workbench's line.

    One function has both codes in turn, so that nothing else differs between them.
    """
    import kiln.runtime.executor as runtime
    from kiln.frontend.patched_attributes import patched_attributes

    made: list[Any] = []
    start = runtime.Executor.__init__

    def keep(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        made.append(self)

    call, forget = compiled(case)
    forget()
    with patched_attributes((runtime.Executor, "__init__", keep)):
        call()
    codes = [(executor.run, _codes(executor)) for executor in made]
    number = _calls_of(call, 0.004)
    ratios, times = [], []
    for index in range(pairs):
        found: dict[bool, float] = {}
        for asks in (True, False) if index % 2 else (False, True):
            for run, both in codes:
                run.__code__ = both[asks]
            call()
            begin = time.thread_time()
            for _ in range(number):
                call()
            found[asks] = (time.thread_time() - begin) / number
        ratios.append(found[True] / found[False])
        times.append(found[True])
    return {"case": case, "us": round(1e6 * statistics.median(times), 2), **_ratio(ratios)}


def _codes(executor: Any) -> dict[bool, types.CodeType]:
    """The code of a plan's program, by whether it asks for the profiler."""
    if executor.source.count(ASKED) != 1:
        raise ValueError(f"the program asks for the profiler in another way:\n{executor.source}")
    scope: dict[str, Any] = {}
    exec(compile(executor.source.replace(ASKED, ""), executor.run.__code__.co_filename, "exec"), scope)
    return {True: executor.run.__code__, False: scope["run"].__code__}


def _calls_of(call: Callable[[], Any], seconds: float) -> int:
    """How many calls take so long."""
    for _ in range(20):
        call()
    start = time.thread_time()
    for _ in range(20):
        call()
    return max(3, round(20 * seconds / (time.thread_time() - start)))


def _ratio(ratios: list[float]) -> dict[str, Any]:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {
        "ratio": round(statistics.median(ratios), 4),
        "interval": [round(medians[49], 4), round(medians[1949], 4)],
        "pairs": len(ratios),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--compile", default=",".join(COMPILED), help="cases that are compiled")
    parser.add_argument("--calls", default=",".join(CALLED), help="cases that are called")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of compilations")
    parser.add_argument("--call-pairs", type=int, default=2000, help="pairs of samples of calls, 4 ms each")
    parser.add_argument("--json", help="write the rows to this file")
    given = parser.parse_args()
    os.environ["KILN_CACHE"] = "0"
    import torch

    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for what, cases, row, pairs in (
            ("compile", given.compile, compile_row, given.pairs),
            ("call", given.calls, call_row, given.call_pairs),
        ):
            for case in filter(None, cases.split(",")):
                rows.append({"what": what, **row(case, pairs)})
                print(json.dumps(rows[-1]), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
