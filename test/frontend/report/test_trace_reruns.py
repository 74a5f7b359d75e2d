# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Traced graphs that are compiled again, with other passes, checked and timed."""

from pathlib import Path

import pytest
import torch
from torch import nn
from trace_support import TARGETS, traced

import kiln
from kiln.errors import KilnError

pytestmark = pytest.mark.usefixtures("fresh_compiler")


WRONG = '''
from torch_mlir import ir

from kiln.dialects.walk import ops_inside
from kiln.passes.core import Pass, register_pass


@register_pass
class DoubleConstants(Pass):
    """Double the constants of bodies."""

    name = "double-constants"

    def run(self, module: ir.Module) -> None:
        for op in ops_inside(module.operation):
            if op.name == "arith.constant":
                value = ir.FloatAttr(op.attributes["value"])
                op.attributes["value"] = ir.FloatAttr.get(value.type, 2 * value.value)
'''


WRONG_KERNELS = '''
from kiln.dialects.kiln import KernelOp
from kiln.dialects.walk import ops_inside
from kiln.passes import register_pass
from kiln.passes.kernel_pass import KernelPass


@register_pass
class SkipErf(KernelPass):
    """Take the argument of erf for its value."""

    name = "skip-erf"

    def run_on(self, kernel: KernelOp) -> None:
        for op in [op for op in ops_inside(kernel.code.operation) if op.name == "math.erf"]:
            op.result.replace_all_uses_with(op.operands[0])
'''


def test_a_rerun_makes_the_same_code():
    graph = traced().graphs[0]
    again = graph.rerun()
    assert again.record.code == graph.record.code and again.record.launched == graph.record.launched
    assert len(graph.rerun("kiln", until="fused").stages) < len(again.stages)


def test_a_rerun_with_another_pass():
    graph = traced().graphs[0]
    apart = graph.rerun("canonicalize", "fuse{strategy=none}", until="sched")
    count = [g.stage("fused").text.count('"kiln.fusion"') for g in (graph, apart)]
    assert count[1] > count[0]
    with pytest.raises(KilnError, match="begin at an earlier stage"):
        graph.rerun("vector")
    with pytest.raises(KilnError, match="no step behind this one completes stage 'kiln'"):
        graph.rerun("fused", until="kiln")


def test_a_rerun_checks_numbers(tmp_path: Path):
    from kiln.errors import CompileError
    from kiln.passes.registry import load_passes_from

    (tmp_path / "wrong.py").write_text(WRONG)
    load_passes_from(tmp_path / "wrong.py")
    graph = traced().graphs[0]
    graph.rerun("kiln", until="fused", check=True)
    assert graph.rerun("kiln", "double-constants", until="").stages
    with pytest.raises(CompileError, match="double-constants"):
        graph.rerun("kiln", "double-constants", until="", check=True)


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_of_a_rerun_are_timed(target: str):
    graph = traced(target).graphs[0]
    apart = graph.rerun("canonicalize", "fuse{strategy=none}", until="sched")
    for found in (graph, apart):
        profile = found.time(calls=2)
        launched = found.stage("sched").text.count('"kiln.fusion"')
        assert len(profile.launches) == launched and profile.call > 0 and profile.target == target
        assert all(len(launch.seconds) == 2 for launch in profile.launches)
    assert len(apart.time(calls=1).launches) > len(graph.time(calls=1).launches)
    with pytest.raises(KilnError, match="no stage or pass 'sched'"):
        graph.rerun(until="fused").time()


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_is_checked(target: str, tmp_path: Path):
    from kiln.errors import CompileError, NumericsError
    from kiln.passes.registry import load_passes_from

    for name, text in (("wrong", WRONG), ("wrong_kernels", WRONG_KERNELS)):
        (tmp_path / f"{name}.py").write_text(text)
        load_passes_from(tmp_path / f"{name}.py")
    graph = traced(target).graphs[0]
    graph.check()
    # A rerun begins at a module of its own, and its passes are those that are checked.
    with pytest.raises(CompileError, match="double-constants"):
        graph.rerun("kiln", "double-constants", until="sched").check()
    graph = traced(target, passes=[kiln.Insert("skip-erf", after="emit-kernels")]).graphs[0]
    with pytest.raises(NumericsError, match="the kernels compute other numbers"):
        graph.check()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_of_16_bits_are_right(target: str, dtype: torch.dtype):
    """Roundings that are left out on purpose are no wrong numbers, wide as the layers are."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(512, 512)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (nn.functional.gelu(self.linear(x)) + x) * 3.0

    torch.manual_seed(0)
    options = {"target": target, "fallback": False}
    kiln.trace(Wide().to(dtype).eval(), torch.randn(32, 512, dtype=dtype), options=options, calls=0).graphs[0].check()


def test_indices_of_random_inputs_are_within_bounds():
    """Of embeddings with few rows, and of poolings, whose gradients ATen writes wherever they say: the heap was lost."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(2, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.words(x).sin() * 2

    for target in TARGETS:
        graph = kiln.trace(Words().eval(), torch.tensor([[0, 1, 1]]), options={"target": target}, calls=0).graphs[0]
        graph.check()
        assert graph.time(calls=1).launches
        torch._dynamo.reset()
    with torch.enable_grad():
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2))
        graphs = kiln.trace(
            model, torch.randn(2, 3, 10, 10), options={"fallback": False}, calls=0, backward=True
        ).graphs
    graphs[1].check()
    assert graphs[1].time(calls=1).launches


def test_gradients_of_poolings_are_asked_for_their_indices():
    from kiln.dialects.interpret.torch_ops import check_places

    image, name = torch.randn(1, 2, 4, 4), "aten.max_pool2d_with_indices_backward"
    check_places(name, [image, image, torch.tensor([0, 15])])
    check_places("aten.max_pool2d_with_indices", [image, image, torch.tensor([99])])
    for wrong in (-1, 16):
        with pytest.raises(IndexError, match="not between 0 and 15"):
            check_places(name, [image, image, torch.tensor([wrong])])
