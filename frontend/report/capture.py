# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The graphs that Kiln is given for one call of a model, as modules with their inputs and what ATen computes of them.

No pass of Kiln runs, so a model whose compilation fails, hangs or ends the process can be captured.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from kiln.dialects import create_context, to_text
from kiln.frontend import compile as compilation
from kiln.frontend.calls.aten_executor import AtenExecutor
from kiln.frontend.import_.fx_import import import_graph
from kiln.frontend.options import Options
from kiln.frontend.patched_attributes import patched_attributes
from kiln.frontend.report import CompileReport
from kiln.frontend.targets import choose_target
from kiln.frontend.verification import bound_sample
from kiln.passes.numerics.sample import Sample
from kiln.passes.pipelines import pipeline

__all__ = ["CapturedGraph", "capturing"]


@dataclass(frozen=True)
class CapturedGraph:
    """One graph: ``text`` of its module before any pass, the inputs of its first call, ATen's results.

    ``kind`` is "inference", "forward" or "backward"; ``target`` and ``steps`` (text of each pass, with its stage) are
    what it is compiled for and with. A result that ATen's graph does not return is None.
    """

    kind: str
    text: str
    target: str
    steps: list[tuple[str, str]]
    sample: Sample
    results: list[torch.Tensor | None]


@contextmanager
def capturing(told: Callable[[CapturedGraph], None]) -> Generator[None, None, None]:
    """In the block, graphs run with ATen; ``told`` gets each one as it is called first."""

    def capture(gm: GraphModule, options: Options, report: CompileReport) -> Callable[[list[Any]], list[Any]]:
        target = choose_target(gm, options)
        with create_context() as context:
            imported = import_graph(gm, context)
            text = to_text(imported.module, enable_debug_info=True)
            steps = [(step.pass_.spec(), step.stage) for step in pipeline(target, options, last="schedule")]
        run = AtenExecutor(gm)
        outputs = [(spec.index, k) for k, spec in enumerate(imported.outputs) if spec.kind == "result"]
        count = len(imported.result_storages)
        is_told = False

        def captured(inputs: list[Any]) -> list[Any]:
            nonlocal is_told
            if is_told:
                return run(inputs)
            sample = bound_sample(imported.inputs, inputs, imported.constants)
            values = run(inputs)
            results: list[torch.Tensor | None] = [None] * count
            for index, place in outputs:
                results[index] = values[place].detach().clone().cpu()
            is_told = True
            told(CapturedGraph(report.graph, text, target.name, steps, sample, results))
            return values

        captured._boxed_call = True  # type: ignore[attr-defined] - what AOTAutograd asks a function for
        return captured

    with patched_attributes((compilation, "_compile_native", capture)):
        yield
