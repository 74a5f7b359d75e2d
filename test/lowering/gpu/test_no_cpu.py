# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Nothing of a GPU's kernels depends on the processor that compiles them."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from benchmarks import stages
from benchmarks.case import built
from benchmarks.model_cases import MODEL_CASES
from kiln.dialects import create_context, parse, to_text
from kiln.frontend.report.capture import CapturedGraph, capturing
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Target
from kiln.lowering.ttcpu.target import TtCpuTarget
from kiln.passes import PassManager
from kiln.passes.manager import until
from kiln.passes.pipelines import pipeline

ROOT = Path(__file__).resolve().parents[3]
GIVEN: dict[str, Any] = {"target": "tt-cpu", "fallback": False, "cache": False}
GPUS = {"h200": "sm_90", "a100": "sm_80", "l4": "sm_89", "b200": "sm_100"}


class Nonsense:
    """A processor that nobody may ask anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a GPU's pipeline asked for the processor's {name}")


NONSENSE = cast(isa.Isa, Nonsense())


class Layers(torch.nn.Module):
    """What kernels differ by: products, attention, convolutions, norms, sums, scans, sorts, reads by index."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(64), torch.nn.Linear(64, 256)
        self.conv, self.batch_norm = torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor, index: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mixed = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        wide = self.linear(self.norm(x + mixed)).softmax(-1)
        image = self.batch_norm(self.conv(image)).relu().amax((2, 3))
        return wide.sum(1), wide.cumsum(-1), x[:, index], image, torch.sort(x.sum(-1)).values


@pytest.fixture(scope="module")
def graphs() -> list[CapturedGraph]:
    """A model's graph, one graph of inference, and those of a training step."""
    found: list[CapturedGraph] = []
    with capturing(found.append):
        cases = {case.name: case for case in MODEL_CASES}
        stages._model(*built(cases["bert"], "bf16", True))(GIVEN)
        model = Layers().bfloat16()
        x, image = torch.randn(2, 128, 64).bfloat16(), torch.randn(2, 8, 32, 32).bfloat16()
        inputs = (x, torch.randint(0, 128, (5,)), image)
        stages._model(model, inputs)(GIVEN)
        torch._dynamo.reset()
        results = torch.compile(model.train(), backend="kiln", options=GIVEN)(x.requires_grad_(), *inputs[1:])
        torch.stack([r.sum() for r in results]).sum().backward()
    assert [graph.kind for graph in found] == ["inference", "inference", "forward", "backward"]
    return found


def texts(target: Target, graph: CapturedGraph, end: str, cpu: isa.Isa) -> Iterator[str]:
    """The text of each stage up to one, made where `cpu` is the processor."""
    with isa.compiling_for(cpu), create_context():
        module = parse(graph.text)
        for step in until(pipeline(target, PipelineOptions(tf32=True)), end):
            PassManager([step], []).run(module)
            if step.stage:
                yield to_text(module)


@pytest.mark.parametrize("name", [*GPUS, "tt-cpu"])
def test_with_a_nonsensical_processor(graphs: list[CapturedGraph], name: str) -> None:
    """The texts of all stages, kernels included, are those of another processor."""
    target, end = (GpuTarget(arch=GPUS[name]), "ttir") if name in GPUS else (TtCpuTarget(), "vector")
    for graph in graphs:
        found = list(texts(target, graph, end, NONSENSE))
        assert found == list(texts(target, graph, end, stages.CPUS["cpu-amx"])), graph.kind


def test_gpus_differ(graphs: list[CapturedGraph]) -> None:
    """So the test above compiles for each of them. A B200 is like an H200 to graphs as small as these; what differs is in
    test/passes/machines.mlir."""
    for name in ("a100", "l4"):
        pairs = ((list(texts(GpuTarget(arch=GPUS[n]), g, "ttir", NONSENSE)) for n in (name, "h200")) for g in graphs)
        assert any(this != other for this, other in pairs), name


def test_a_processor_is_asked_on_the_cpu(graphs: list[CapturedGraph]) -> None:
    """So the tests above say something."""
    with pytest.raises(Exception, match="asked for the processor's"):
        list(texts(CpuTarget(), graphs[1], "sched", NONSENSE))


def test_a_named_cpu_hides_the_host(graphs: list[CapturedGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``kiln-opt --cpu=`` prints is the same on each machine."""

    def asked() -> isa.Isa:
        raise AssertionError("the host was asked")

    monkeypatch.setattr(isa, "host", asked)
    for graph in graphs:
        assert list(texts(CpuTarget(), graph, "vector", isa.other("x86-64-v4+avx512bf16")))


@pytest.mark.parametrize("folder", ["gpu", "tile", "tune"])
def test_imports_nothing_of_the_cpu(folder: str) -> None:
    for path in (ROOT / "lowering" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                assert not node.module.startswith("kiln.lowering.cpu"), f"{path}: {node.module}"
                assert node.module != "kiln.lowering" or all(n.name != "cpu" for n in node.names), path
