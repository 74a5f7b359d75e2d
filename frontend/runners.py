# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What runs a plan, by the device that it is for and the mode that was asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kiln.frontend.options import Options
from kiln.runtime.evaluate import EVALUATE
from kiln.runtime.executor import Checker
from kiln.runtime.plan import AtenStep, Plan

__all__ = ["make_runner"]

#: The modes in which PyTorch has CUDA graphs.
_GRAPHED = ("reduce-overhead", "max-autotune")


def make_runner(
    plan: Plan, constants: Mapping[str, torch.Tensor], options: Options
) -> Callable[[Sequence[Any]], list[Any]]:
    """Loads a plan's code; returns the function from the graph's inputs to its results.

    Raises KilnError where the code cannot be loaded, which on a GPU includes a missing driver.
    """
    if any(isinstance(step, AtenStep) and step.op == EVALUATE for step in plan.steps):
        from kiln.frontend.compiler_import import import_compiler

        import_compiler()
    if plan.device == "cpu":
        from kiln.runtime.executor import Executor
        from kiln.runtime.profile import ProfilingExecutor, current_recording

        into = current_recording()
        if into is None and options.check:
            return Executor(plan, constants, checker=_checker(plan, options)).run
        return (Executor(plan, constants) if into is None else ProfilingExecutor(plan, constants, into)).run
    from kiln.runtime.cuda.executor import CudaExecutor
    from kiln.runtime.profile import current_recording

    into = current_recording()
    if into is not None:
        into.plans.append(plan)
    checker = _checker(plan, options) if options.check else None
    run = CudaExecutor(plan, constants, checker=checker, replays=options.replays, ranges=options.nvtx).run
    if options.mode not in _GRAPHED or checker is not None or options.nvtx:
        return run
    from kiln.runtime.cuda.graphs import CudaCapture, GraphedRun

    return GraphedRun(plan, run, CudaCapture(torch.device(plan.device).index or 0)).run


def _checker(plan: Plan, options: Options) -> Checker:
    """What compares each kernel's results with its IR."""
    from kiln.frontend.compiler_import import import_compiler

    import_compiler()
    from kiln.runtime.checked.checker import LaunchChecker

    target = options.target or ("cpu" if plan.device == "cpu" else "cuda")
    settings = {"target": target, "cpu": options.cpu, "float_parts": options.float_parts}
    # On a CPU the parts that products of f32 are made of have the error of f32.
    tf32 = options.tf32 and target != "cpu"
    checker = LaunchChecker(plan, options.check, tf32, settings, options.debug_dir)
    if target == "tt-cpu":
        from kiln.lowering.ttcpu.ttgir.shipped import shipped_results

        checker.shipped = shipped_results
    return checker
