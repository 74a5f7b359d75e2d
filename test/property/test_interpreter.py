# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The interpreter of the IR on random programs, at each stage: what it computes is what eager computes.

The graph is imported and taken through the passes up to the stage, and the interpreter runs the module in place of a
compiled kernel.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule
from torch_mlir import ir

from benchmarks.fuzz.execute import DYNAMIC, STATIC, Setting, attempt, fails_in_pytorch
from benchmarks.fuzz.generate import THEMES, grow
from benchmarks.fuzz.program import Program
from kiln.dialects import affine, create_context
from kiln.dialects.interpret import evaluate
from kiln.frontend.calls.boxed_graph import BoxedGraph
from kiln.frontend.calls.signature import Signature
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.passes import PassManager, PipelineStep
from kiln.passes.pipelines import cpu_pipeline, gpu_pipeline
from kiln.runtime.expressions import derived_evaluator

STAGES = ["torch", "graph", "kiln", "fused", "sched", "sched on a GPU"]


def steps_until(stage: str) -> list[PipelineStep]:
    """The passes that make a stage."""
    if stage == "torch":
        return []
    pipeline = gpu_pipeline() if "GPU" in stage else cpu_pipeline()
    last = next(i for i, step in enumerate(pipeline) if step.stage == stage.split()[0])
    return pipeline[: last + 1]


def run(program: Program, stage: str, setting: Setting) -> bool:
    """Compare the interpreter at a stage with eager; False where PyTorch itself does not trace the program."""
    refused: list[Exception] = []

    def compile_(gm: GraphModule, _: Sequence[Any]) -> Any:
        with unset_fake_temporarily():
            try:
                imported = import_graph(gm, create_context())
            except ImportUnsupported as error:
                refused.append(error)
                raise
            PassManager(steps_until(stage), []).run(imported.module)
            signature = Signature(imported.inputs, imported.outputs, imported.mutations)
            return BoxedGraph(signature, lambda inputs: call(gm, imported, inputs), imported.constants)

    backend = aot_autograd(
        fw_compiler=compile_, decompositions=decomposition_table(), keep_inference_input_mutations=True
    )
    try:
        attempt(program, setting, backend, None)
    except Exception:
        if not refused and not fails_in_pytorch(program, setting):
            raise
        return False
    return True


def call(gm: GraphModule, imported: ImportedGraph, inputs: list[Any]) -> list[Any]:
    """The results of @main, with the dtypes and strides that the graph has."""
    symbols: dict[str, int] = {}
    arguments: list[Any] = []
    for spec in imported.inputs:
        if spec.kind in ("tensor", "int"):
            value = inputs[spec.index]
        elif spec.kind == "constant":
            value = imported.constants[spec.name]
        else:
            value = None if spec.kind == "derived" else getattr(inputs[spec.index], spec.kind)(spec.dim)
        if isinstance(value, int):
            symbols[spec.name] = value
        arguments.append(value)
    known = list(symbols)
    for i, spec in enumerate(imported.inputs):
        if spec.kind == "derived":
            compute = derived_evaluator(str(spec.expr), known)
            arguments[i] = symbols[spec.name] = compute(*(symbols[name] for name in known))
    function = next(op for op in imported.module.body.operations if op.operation.name == "func.func")
    # The order of symbols changes when the graph is converted.
    names = [ir.StringAttr(name).value for name in ir.ArrayAttr(function.operation.attributes["kiln.symbols"])]
    numbers = [symbols.get(name, 0) for name in names]
    dtypes = {target: inputs[source].dtype for source, target in imported.mutations}
    node = next(node for node in gm.graph.nodes if node.op == "output")
    for spec, value in zip(imported.outputs, node.args[0], strict=True):
        if spec.kind == "result" and isinstance(value.meta["val"], torch.Tensor):
            dtypes[spec.index] = value.meta["val"].dtype
    attributes = list(ir.ArrayAttr(function.operation.attributes["res_attrs"]))
    results = []
    for i, value in enumerate(evaluate(imported.module, arguments)):
        if isinstance(value, torch.Tensor):
            strides = ir.AffineMapAttr(ir.DictAttr(attributes[i])["kiln.strides"]).value.results
            value = arranged(
                value if value.dtype == dtypes[i] else value.view(dtypes[i]),
                [affine.evaluate(e, (), numbers) for e in strides],
            )
        results.append(value)
    return results


def arranged(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with the given strides; along a stride of 0 all elements are equal."""
    shape = tensor.shape
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor).as_strided(shape, strides)


@pytest.mark.parametrize("number", range(24))
def test_stages(number: int) -> None:
    random = Random(number)
    program = grow(random, replace(THEMES["small"], lines=4))
    run(program, STAGES[number % len(STAGES)], random.choice([STATIC, DYNAMIC]))


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("setting", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_stages_many(stage: str, setting: Setting) -> None:
    random = Random()
    judged = [run(grow(random, replace(THEMES["small"], lines=6)), stage, setting) for _ in range(100)]
    assert sum(judged) > len(judged) // 2
