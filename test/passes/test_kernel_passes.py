# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The whole pipeline as text: what it prints it takes, and a pass can stand before and behind `emit-kernels`."""

import contextlib
import io
from pathlib import Path

import pytest
import torch

from kiln.dialects import create_context, parse, to_text
from kiln.passes import PassManager, parse_pipeline
from kiln.passes.instruments import CheckStages, VerifyEach
from kiln.passes.pipelines import named_pipeline
from kiln.passes.registry import load_passes_from
from kiln.runtime.executor import Executor
from kiln.tools import kiln_opt

PASSES = Path(__file__).parent / "Inputs" / "kernel_passes.py"
GRAPH = """
func.func @main(%x: !torch.vtensor<[4,40],f32>, %y: !torch.vtensor<[4,40],f32>) -> !torch.vtensor<[4,40],f32> {
  %one = torch.constant.int 1
  %0 = torch.aten.exp %x : !torch.vtensor<[4,40],f32> -> !torch.vtensor<[4,40],f32>
  %1 = torch.aten.add.Tensor %0, %y, %one
    : !torch.vtensor<[4,40],f32>, !torch.vtensor<[4,40],f32>, !torch.int -> !torch.vtensor<[4,40],f32>
  return %1 : !torch.vtensor<[4,40],f32>
}
"""


def printed(target: str, *options: str) -> str:
    """What --print-pipeline prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert kiln_opt.main([f"--pipeline={target}", "--print-pipeline", *options]) == 0
    return out.getvalue().strip()


def run(pipeline: str, instruments=()):
    """The results of a pipeline's plan, on random inputs, and these."""
    with create_context() as context:
        module = parse(GRAPH, context)
        steps = parse_pipeline(pipeline)
        steps[-1].pass_.show = False
        PassManager(steps, instruments).run(module)
    x = [torch.randn(4, 40) for _ in range(2)]
    return Executor(steps[-1].pass_.plan)(x)[0], *x


@pytest.mark.parametrize("target", ["cpu", "gpu", "tt-cpu"])
@pytest.mark.parametrize("stage", ["sched", "kernels", "llvm", "ttir", "plan"])
def test_the_printed_text_is_the_pipeline(target, stage):
    made = named_pipeline(target)
    if stage not in {step.stage for step in made} or (stage, target) == ("plan", "gpu"):
        pytest.skip("no such stage")
    text, found = printed(target, f"--until={stage}"), []
    for steps in (made[: 1 + max(i for i, step in enumerate(made) if step.stage == stage)], text):
        with create_context() as context:
            module = parse(GRAPH, context)
            PassManager(parse_pipeline(steps) if isinstance(steps, str) else steps).run(module)
            found.append(to_text(module))
    assert found[0] == found[1] and text.startswith("torch-cse,")


@pytest.mark.parametrize("instruments", [[], [VerifyEach(), CheckStages()]], ids=["by kernels", "by passes"])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_passes_around_emission_change_the_code(target, instruments):
    load_passes_from(str(PASSES))
    text = printed(target)
    emit = next(step.pass_.spec() for step in named_pipeline(target) if step.name == "emit-kernels")
    assert text.count(emit) == 1
    result, x, y = run(text, instruments)
    torch.testing.assert_close(result, torch.exp(x) + y)
    result, x, y = run(text.replace(emit, f"exp-in-base-two,{emit}"), instruments)
    torch.testing.assert_close(result, torch.exp2(x) + y)
    result, x, y = run(text.replace(emit, f"{emit},subtract-in-loops"), instruments)
    torch.testing.assert_close(result, torch.exp(x) - y)


def test_kernels_of_a_gpu_are_printed_as_triton_and_as_assembly(tmp_path, capsys):
    path = tmp_path / "x.graph.mlir"
    path.write_text(GRAPH)
    assert kiln_opt.main(["--pipeline=gpu", "--until=ttir", str(path)]) == 0
    text = capsys.readouterr().out
    assert '"tt.func"' in text and '"kiln.launch"' in text
    pytest.importorskip("triton")
    assert kiln_opt.main(["--pipeline=gpu", "--until=ptx", str(path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("// kernel ") and ".entry " in text
    given = printed("gpu", "--until=ptx")
    assert kiln_opt.main([f"--pass-pipeline={given}", "--emit=ptx", str(path)]) == 0
    assert capsys.readouterr().out == text


def test_a_kernel_that_cannot_be_emitted_is_a_value(monkeypatch):
    def refuse(fusion, name):
        raise KeyError("planted")

    monkeypatch.setattr("kiln.lowering.cpu.emit.emit_kernel", refuse)
    with create_context() as context:
        module = parse(GRAPH, context)
        PassManager(parse_pipeline(printed("cpu", "--until=llvm"))).run(module)
        text = to_text(module)
    assert "unsupported = \"KeyError: 'planted'\"" in text and "defect" in text and "object" not in text
    assert '"kiln.launch"' in text


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_a_plan_calls_what_cannot_be_emitted(target, monkeypatch):
    def refuse(fusion, name, *rest):
        raise KeyError("planted")

    for emitter in ("cpu", "gpu"):
        monkeypatch.setattr(f"kiln.lowering.{emitter}.emit.emit_kernel", refuse)
    result, x, y = run(printed(target))
    torch.testing.assert_close(result, torch.exp(x) + y)
