# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which special paths the fuzzer's graphs take, without machine code: for a GPU on a machine without one, too.

    python -m benchmarks.fuzz.reach --target cuda --graphs 500 --seed 0 --minutes 5

Each graph is compiled up to scheduled kernels (for an H200) and the host's plan, on CPU tensors, and computed by ATen;
nothing is judged.
Paths that kernels take as they are emitted count with ``--kernels``.
"""

import argparse
import contextlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule
from torch_mlir import ir

from benchmarks.fuzz.execute import Setting, growth, made
from benchmarks.fuzz.generate import generate
from benchmarks.fuzz.gradients import derive, has_gradients
from benchmarks.fuzz.program import Program
from benchmarks.fuzz.table import table
from kiln.dialects import create_context
from kiln.errors import KilnError
from kiln.frontend import compile as compilation
from kiln.frontend.calls.aten_executor import AtenExecutor
from kiln.frontend.import_.fx_import import import_graph
from kiln.frontend.options import Options
from kiln.frontend.patched_attributes import patched_attributes
from kiln.frontend.report import CompileReport
from kiln.lowering import paths
from kiln.lowering.cpu import isa
from kiln.lowering.target import find_target
from kiln.passes import PassManager, parse_pipeline
from kiln.passes.manager import PipelineStep
from kiln.passes.pipelines import pipeline
from kiln.passes.plan_host import PlanHost

ARCH = "sm_90"


def reached(program: Program, setting: Setting, target: str = "cuda", kernels: bool = False) -> dict[str, int]:
    """How often each path is taken for a program; raises where a pass fails."""
    paths.reset()
    # The frontend's target: graphs are on the CPU.
    options = {**setting.options, "target": "tt-cpu" if target == "cuda" else target, "fallback": False}
    torch._dynamo.reset()
    marks, _ = growth(program, setting)
    dynamic, inputs = None if marks else setting.dynamic, made(program, setting, marks)
    with _passes_of(target, kernels), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = torch.compile(program.function(), backend="kiln", fullgraph=True, dynamic=dynamic, options=options)
        if setting.training and has_gradients(program):
            inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
            derive(program, inputs, run(*inputs, *program.numbers))
        else:
            with torch.no_grad():
                run(*inputs, *program.numbers)
    return paths.taken()


@contextlib.contextmanager
def _passes_of(name: str, kernels: bool) -> Generator[None]:
    target = find_target(name).on("cuda:0", ARCH)
    emission = "emit-cpu-kernels" if name == "cpu" else "emit-gpu-kernels"

    def compile_native(gm: GraphModule, options: Options, _: CompileReport) -> Callable[[list[Any]], list[Any]]:
        with unset_fake_temporarily():  # constants of the graph are real tensors
            imported = import_graph(gm, create_context(tt=True))
            module = imported.module
            with isa.compiling_for(isa.named(options.cpu, options.float_parts)), module.context:
                PassManager(pipeline(target, options, last="schedule"), []).run(module)
                if kernels:
                    PassManager(parse_pipeline(emission), []).run(ir.Module.parse(str(module)))
                planning = PlanHost(target.runs_on, show=False)
                planning.inputs = imported.inputs
                PassManager([PipelineStep(planning)], []).run(module)
                assert planning.plan is not None
        run = AtenExecutor(gm)

        def boxed(inputs: list[Any]) -> list[Any]:
            return run(inputs)

        boxed._boxed_call = True
        return boxed

    with patched_attributes((compilation, "_compile_native", compile_native)):
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status is 1 if a pass failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz.reach", description=__doc__)
    parser.add_argument("--target", choices=["cpu", "tt-cpu", "cuda"], default="cuda")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="number of the first graph; the others follow")
    parser.add_argument("--minutes", type=float, default=9, help="no more graphs are begun then")
    parser.add_argument("--kernels", action="store_true", help="emit the kernels, too")
    given = parser.parse_args(argv)
    taken: Counter[str] = Counter()
    end, count, failed = time.monotonic() + 60 * given.minutes, 0, 0
    for number in range(given.seed, given.seed + given.graphs):
        if time.monotonic() > end:
            break
        case = generate(number, given.target)
        count += 1
        try:
            taken.update(reached(case.program, replace(case.setting, device="cpu"), given.target, given.kernels))
        except Exception as error:
            failed += isinstance(getattr(error, "inner_exception", error), KilnError)  # else PyTorch rejects the graph
            print(f"{number}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
    print(f"{count} graphs, {failed} failed\n{table(given.target, taken)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
