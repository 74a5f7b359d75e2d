# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""From a model that is wrong to what is wrong: eager against each stage of each graph, in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.errors import CheckError, KilnError, NumericsError
from kiln.frontend.report.capture import CapturedGraph
from kiln.passes.manager import PassManager, PipelineStep, run_pipeline
from kiln.passes.pipeline_parser import parse_pipeline
from kiln.tools.debugging.attempts import KERNELS, Finding, Task, attempt
from kiln.tools.debugging.bisection import Bisection, bisect
from kiln.tools.debugging.breakage import why_broken
from kiln.tools.debugging.children import in_child, seconds_computed
from kiln.tools.debugging.reduction import reduce_module

__all__ = ["Diagnosis", "capture", "diagnose"]

_REDUCING = (10.0, 30.0)
"""Seconds of a processor after which a module is small enough: the least and the most."""

_IN_ALL = 50.0
"""Seconds of a processor that a diagnosis takes, with its reduction, where that has more than the least."""


@dataclass(frozen=True)
class Diagnosis:
    """``stage`` is where it goes wrong: "import", "passes", "kernels" or "plan"; ``culprit`` names the pass or kernel.

    ``module`` is the smallest that fails with the options ``options`` of kiln-opt; empty where there is none.
    """

    stage: str
    culprit: str
    message: str
    module: str = ""
    options: list[str] = field(default_factory=list[str])
    bisection: Bisection | None = None


def capture(
    make: Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]],
    options: dict[str, Any],
    *,
    backward: bool,
    dynamic: bool,
    timeout: float,
) -> list[CapturedGraph]:
    """The graphs of one call of a model (and of its backward), run with ATen in a child process.

    Raises KilnError where the model itself does not run.
    """

    def work(tell: Callable[[Any], None]) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        from kiln.frontend.backend import kiln as backend
        from kiln.frontend.report.capture import capturing

        model, inputs, kwargs = make()

        def debugging(gm: Any, example_inputs: Any) -> Callable[..., Any]:
            return backend(gm, example_inputs, options={"cache": False, "fallback": False, **options})

        with capturing(tell), torch.set_grad_enabled(backward):
            result = torch.compile(model, backend=debugging, dynamic=dynamic or None)(*inputs, **kwargs)
            if backward:
                leaves = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
                sum(t.float().sum() for t in leaves if t.requires_grad).backward()  # type: ignore[union-attr] - there is a result to sum

    outcome = in_child(work, timeout)
    if not outcome.events:
        raise KilnError(f"the model gives no graph: {outcome.message or 'it runs no tensor code'}")
    return outcome.events


def diagnose(graph: CapturedGraph, timeout: float = 60.0) -> Diagnosis | None:
    """What is wrong with one graph; None where nothing is."""
    message = _import_is_wrong(graph, timeout)
    if message:
        return Diagnosis("import", "the import of the graph", message)
    specs = [spec for spec, _ in graph.steps]
    task = Task(lambda: _parsed(specs), True, samples=[graph.sample], timeout=timeout)
    found = bisect(task, graph.text)
    if found is not None:
        return _wrong_pass(found, specs, task)
    return _wrong_kernel(graph, specs, timeout)


def _parsed(specs: Sequence[str]) -> list[PipelineStep]:
    return parse_pipeline(",".join(specs)) if specs else []


def _import_is_wrong(graph: CapturedGraph, timeout: float) -> str:
    """Whether the module computes other than the graph that it was imported from; why, if it does."""

    def work(tell: Callable[[Any], None]) -> str:
        from kiln.passes.numerics.compare import compare
        from kiln.passes.numerics.evaluate import evaluate, longest_sum

        with create_context():
            module = parse(graph.text)
            exact, found = evaluate(module, graph.sample, exact=True), evaluate(module, graph.sample)
            known = [k for k, result in enumerate(graph.results) if result is not None]
            results = [result for result in graph.results if result is not None]
            wrong = compare(
                [exact[k] for k in known],
                results,
                [found[k] for k in known],
                terms=longest_sum(module),
                roundings=False,
            )
        return str(wrong) if wrong is not None else ""

    outcome = in_child(work, timeout)
    # What cannot be evaluated cannot be compared; passes and kernels are tried still.
    return outcome.value if outcome.kind == "ok" else ""


def _wrong_pass(found: Bisection, specs: Sequence[str], task: Task) -> Diagnosis:
    spec = specs[found.finding.step]
    numeric = found.finding.kind == "numbers"
    alone = Task(lambda: _parsed([spec]), numeric, samples=task.samples, timeout=task.timeout)
    options = ["--verify-numerics"] if numeric else []
    module = _reduced(alone, found.before)
    culprit = f"pass {spec}" + (f", {found.rewrite}" if found.rewrite is not None else "")
    return Diagnosis("passes", culprit, found.finding.message, module, [*options, f"--pass-pipeline={spec}"], found)


def _reduced(task: Task, text: str) -> str:
    """The smallest module that fails; empty where pieces do not fail on random inputs."""
    try:
        broken = why_broken(task, text)
    except KilnError:
        return ""
    least, most = _REDUCING
    seconds = max(least, min(most, _IN_ALL - seconds_computed()))
    return "" if broken is None else reduce_module(text, broken, seconds=seconds)


# ------------------------------------------------------------------------------------------------------------ kernels


def _wrong_kernel(graph: CapturedGraph, specs: Sequence[str], timeout: float) -> Diagnosis | None:
    """The first fusion whose kernel is wrong when it runs alone; else all of them with their host plan."""
    stages = [stage for _, stage in graph.steps]
    fused = len(stages) - 1 - stages[::-1].index("fused") if "fused" in stages else len(stages) - 1
    tail = list(specs[fused + 1 :])
    option = f"--verify-kernels={graph.target}"
    task = Task(lambda: _parsed(tail), kernels=graph.target, timeout=timeout)
    finding, name, text = _first_wrong_fusion(graph, specs, tail, timeout)
    if finding:
        options = [f"--pass-pipeline={','.join(tail)}", option] if tail else [option]
        return Diagnosis("kernels", f"kernel {name}", finding.message, _reduced(task, text), options)
    whole = Task(lambda: _parsed(specs), kernels=graph.target, samples=[graph.sample], timeout=timeout)
    found = attempt(whole, graph.text)
    if not found:
        return None
    if found.name != KERNELS:
        return Diagnosis("passes", f"pass {found.name}", found.message)
    options = [f"--pass-pipeline={','.join(specs)}", option]
    culprit = "the host plan: its kernels are right by themselves"
    for number in range(fused + 1, len(specs)):
        others = [*specs[:number], *specs[number + 1 :]]
        if not attempt(replace(whole, steps=partial(_parsed, others)), graph.text):
            culprit = f"pass {specs[number]}: kernels are right by themselves, and the host plan is without this pass"
            break
    else:
        name = _kernel_off_on(graph, specs, timeout)
        culprit = f"kernel {name}, with the given inputs" if name else culprit
    return Diagnosis("plan", culprit, found.message, _reduced(whole, graph.text), options)


def _kernel_off_on(graph: CapturedGraph, specs: Sequence[str], timeout: float) -> str:
    """The kernel that a checked run on the given inputs calls wrong; empty where none is, or the run ends otherwise."""

    def work(tell: Callable[[Any], None]) -> str:
        from kiln.passes.numerics.kernels import run_compiled

        with create_context(), ir.Location.unknown():
            module = parse(graph.text)
            PassManager(_parsed(specs)).run(module)
            try:
                run_compiled(module, graph.sample, graph.target, is_checked=True)
            except CheckError as error:
                return error.kernel
        return ""

    outcome = in_child(work, timeout)
    return outcome.value if outcome.kind == "ok" else ""


def _first_wrong_fusion(
    graph: CapturedGraph, specs: Sequence[str], tail: Sequence[str], timeout: float
) -> tuple[Finding, str, str]:
    """The failure, and name and text of the fusion alone; a finding that is False where each is right.

    One child tries them all: what it tells last names the one that it died of.
    """

    def work(tell: Callable[[Any], None]) -> tuple[str, str]:
        from kiln.passes.numerics.kernels import fusions_alone, verify_kernels

        with create_context(), ir.Location.unknown():
            module = parse(graph.text)
            PassManager(_parsed(specs)).run(module)
            alone = {text: name for name, text in fusions_alone(module)}  # equal ones once
            for text, name in alone.items():
                tell((name, text))
                single = parse(text)
                if tail:
                    run_pipeline(single, ",".join(tail))
                try:
                    verify_kernels(single, graph.target)
                except NumericsError as error:
                    return "numbers", error.message
        return "", ""

    outcome = in_child(work, 10 * timeout)
    name, text = outcome.events[-1] if outcome.events else ("", "")
    if outcome.kind == "ok":
        kind, message = outcome.value
        return Finding(kind, len(tail), KERNELS, message), name, text
    if not name:
        raise KilnError(f"the passes do not run a second time: {outcome.message}")
    return Finding(outcome.kind, len(tail), KERNELS, outcome.message), name, text
