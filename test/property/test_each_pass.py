# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Each pass of the pipeline alone, on random programs: what it leaves is run by the reference executor.

A pass runs behind no more than it needs: the conversion to the kiln dialect, the fusions, the layouts. So a failure
names the pass, and no other pass hides it.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule
from torch_mlir import ir

from benchmarks.fuzz.execute import STATIC, attempt, fails_in_pytorch
from benchmarks.fuzz.generate import THEMES, grow
from benchmarks.fuzz.program import Program
from kiln.dialects import create_context
from kiln.dialects.execute import run_reference
from kiln.errors import CompileError, UnsupportedError
from kiln.frontend.calls.boxed_graph import BoxedGraph
from kiln.frontend.calls.signature import Signature
from kiln.frontend.decompositions import decomposition_table
from kiln.frontend.import_.fx_import import ImportedGraph, import_graph
from kiln.frontend.import_.fx_values import ImportUnsupported
from kiln.passes import PassManager, PipelineStep
from kiln.passes.instruments import VerifyEach
from kiln.passes.pipelines import cpu_pipeline

CONVERT, FUSE, LAYOUTS = "convert-torch-to-kiln", "fuse", "assign-layouts"
ORDER = [step.pass_.spec() for step in cpu_pipeline()]


def needed(spec: str) -> list[str]:
    """The passes to run for one of the pipeline, itself included, in order."""
    at = [spec.startswith(name) for name in (CONVERT, FUSE, LAYOUTS)]
    if ORDER.index(spec) < ORDER.index(CONVERT):
        return [spec, CONVERT]
    before = [CONVERT]
    if ORDER.index(spec) > _index(FUSE):
        before.append(FUSE)
    if ORDER.index(spec) > _index(LAYOUTS):
        before.append(LAYOUTS)
    return before if any(at) and spec in before else [*before, spec]


def _index(name: str) -> int:
    return next(i for i, spec in enumerate(ORDER) if spec.startswith(name))


PASSES = list(dict.fromkeys(ORDER))


class Unsupported(Exception):
    """The reference executor has no such op (a call to ATen)."""


def run(program: Program, passes: Sequence[str]) -> None:
    """Run `program` by the reference executor behind `passes`, and compare with eager."""

    refused: list[Exception] = []

    def compile_(gm: GraphModule, _: Sequence[Any]) -> Any:
        with unset_fake_temporarily():
            try:
                return _reference(gm, passes)
            except (Unsupported, ImportUnsupported) as error:
                refused.append(error)
                raise

    backend = aot_autograd(
        fw_compiler=compile_, decompositions=decomposition_table(), keep_inference_input_mutations=True
    )
    try:
        attempt(program, STATIC, backend, None)
    except UnsupportedError:
        return  # what the reference executor does not run
    except Exception:
        if not refused and not fails_in_pytorch(program, STATIC):
            raise


def _reference(gm: GraphModule, passes: Sequence[str]) -> BoxedGraph:
    imported = import_graph(gm, create_context())
    try:
        with imported.module.context:
            steps = [PipelineStep(spec) for spec in passes]
        PassManager(steps, [VerifyEach()]).run(imported.module)
    except CompileError as error:
        if isinstance(error.__cause__, UnsupportedError):
            raise Unsupported(str(error)) from None
        raise
    with imported.module.context:
        text = str(imported.module)
    if "kiln.aten" in text:
        raise Unsupported("kiln.aten")
    signature = Signature(imported.inputs, imported.outputs, imported.mutations)
    return BoxedGraph(signature, lambda given: _run(gm, imported, given), imported.constants)


def _run(gm: GraphModule, imported: ImportedGraph, given: list[Any]) -> list[torch.Tensor]:
    """The results of @main."""
    arguments = []
    for spec in imported.inputs:
        tensor = given[spec.index] if spec.kind == "tensor" else imported.constants[spec.name]
        arguments.append(_array(tensor))
    function = next(op for op in imported.module.body.operations if op.operation.name == "func.func")
    attributes = list(ir.ArrayAttr(function.operation.attributes["res_attrs"]))
    dtypes = {target: given[source].dtype for source, target in imported.mutations}
    node = next(node for node in gm.graph.nodes if node.op == "output")
    for spec, value in zip(imported.outputs, node.args[0], strict=True):
        if spec.kind == "result":
            dtypes[spec.index] = value.meta["val"].dtype
    results = []
    for i, array in enumerate(run_reference(imported.module, arguments)):
        strides = [int(str(e)) for e in ir.AffineMapAttr(ir.DictAttr(attributes[i])["kiln.strides"]).value.results]
        tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        dtype = dtypes[i]
        tensor = tensor.view(dtype) if dtype.itemsize == tensor.dtype.itemsize else tensor.to(dtype)
        results.append(_arranged(tensor, strides))
    return results


def _arranged(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """A copy with the given strides; along a stride of 0 all elements are equal."""
    shape = tensor.shape
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor).as_strided(shape, strides)


def _array(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy()
    return tensor.numpy()


@pytest.mark.parametrize("number", range(12))
def test_alone(number: int) -> None:
    random = Random(number)
    run(grow(random, replace(THEMES["small"], lines=4)), needed(random.choice(PASSES)))


@pytest.mark.slow
@pytest.mark.parametrize("spec", PASSES)
def test_alone_many(spec: str) -> None:
    random = Random()
    for _ in range(100):
        run(grow(random, replace(THEMES["small"], lines=6)), needed(spec))
