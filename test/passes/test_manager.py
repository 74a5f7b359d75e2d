# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pass manager, its instruments, reproducers and stage invariants."""

import io
from pathlib import Path

import pytest
from torch_mlir import ir

from kiln.errors import CompileError, InvalidIRError, KilnError, UnsupportedError
from kiln.passes import Pass, PassManager, PipelineStep, run_pipeline
from kiln.passes.diagnostics import diagnostics_of, locate
from kiln.passes.instruments import (
    CheckStages,
    Instrument,
    PrintIR,
    Reproducer,
    StageDump,
    Statistics,
    Timing,
    VerifyEach,
)
from kiln.passes.invariants import STAGES, check_stage
from kiln.passes.manager import until

TEXT = """
func.func @f(%a: i32) -> i32 {
  %0 = arith.constant 0 : i32
  %1 = arith.addi %a, %0 : i32
  return %1 : i32
}
"""


class Mark(Pass):
    """Count the module's functions."""

    name = "mark"

    def run(self, module: ir.Module) -> None:
        for op in module.body.operations:
            self.count("matched")
            self.note(op, "seen")


class Fail(Pass):
    """Fail after rewriting a part."""

    name = "fail"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def run(self, module: ir.Module) -> None:
        module.body.operations[0].attributes["half"] = ir.UnitAttr.get()
        raise self.error


class Log(Instrument):
    def __init__(self, name: str, log: list[str], skip: str = "") -> None:
        self.name, self.log, self.skip = name, log, skip

    def before_pipeline(self, module: ir.Module, steps: object) -> None:
        self.log.append(f"{self.name} begin")

    def after_pipeline(self, module: ir.Module) -> None:
        self.log.append(f"{self.name} end")

    def should_run(self, step: PipelineStep, module: ir.Module) -> bool:
        return step.name != self.skip

    def before_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self.log.append(f"{self.name} > {step.name}")

    def after_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self.log.append(f"{self.name} < {step.name}")

    def pass_failed(self, index: int, step: PipelineStep, module: ir.Module, error: CompileError) -> None:
        self.log.append(f"{self.name} ! {index} {step.name}")


@pytest.fixture
def module(context: ir.Context) -> ir.Module:
    return ir.Module.parse(TEXT)


def test_order_of_instruments(module: ir.Module) -> None:
    log: list[str] = []
    steps = [PipelineStep("canonicalize"), PipelineStep("cse")]
    PassManager(steps, [Log("a", log), Log("b", log, skip="cse")]).run(module)
    assert log == ["a begin", "b begin", "a > canonicalize", "b > canonicalize"] + [
        "b < canonicalize", "a < canonicalize", "b end", "a end",
    ]  # fmt: skip


def test_failure_reaches_instruments_and_keeps_its_cause(module: ir.Module) -> None:
    log: list[str] = []
    cause = UnsupportedError("arith.addi", 'loc("m.py":3:5)', "no reason")
    with pytest.raises(CompileError) as caught:
        PassManager([PipelineStep("cse"), PipelineStep(Fail(cause))], [Log("a", log)]).run(module)
    assert log[-1] == "a ! 1 fail"
    assert caught.value.__cause__ is cause
    assert str(caught.value) == "pass 'fail' failed: m.py:3:5: arith.addi is not supported: no reason"


def test_bug_in_a_pass_is_a_compile_error(module: ir.Module) -> None:
    with pytest.raises(
        CompileError, match=r"pass 'fail' failed: ZeroDivisionError: oops \(raised in run, .*test_manager\.py:\d+\)"
    ):
        PassManager([PipelineStep(Fail(ZeroDivisionError("oops")))]).run(module)


def test_reproducer_holds_the_ir_before_the_pass(module: ir.Module, tmp_path: Path) -> None:
    steps = [PipelineStep("canonicalize"), PipelineStep(Fail(KilnError("no")))]
    with pytest.raises(CompileError) as caught:
        PassManager(steps, [Reproducer(tmp_path)]).run(module)
    assert caught.value.reproducer is not None
    text = Path(caught.value.reproducer).read_text()
    assert "arith" not in text and "half" not in text
    assert text.startswith("// no\n// RUN: kiln-opt --pass-pipeline=fail %s\n")
    command = f"kiln-opt --pass-pipeline=fail {caught.value.reproducer}"
    assert caught.value.command == command
    assert command in str(caught.value)


def test_unwritable_reproducer_does_not_hide_the_error(module: ir.Module, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match="no") as caught:
        PassManager([PipelineStep(Fail(KilnError("no")))], [Reproducer(tmp_path / "file")]).run(module)
    assert caught.value.reproducer is None


def test_printing(module: ir.Module) -> None:
    out = io.StringIO()
    run_pipeline(module, "canonicalize,cse", [PrintIR(after=None, only_changed=True, before=["cse"], out=out)])
    heads = [line for line in out.getvalue().splitlines() if "IR Dump" in line]
    assert heads == [
        "// -----// IR Dump After canonicalize //----- //",
        "// -----// IR Dump Before cse //----- //",
    ]


def test_failed_pass_is_printed_in_generic_form(module: ir.Module) -> None:
    out = io.StringIO()
    with pytest.raises(CompileError):
        PassManager([PipelineStep(Fail(KilnError("no")))], [PrintIR(after=None, out=out)]).run(module)
    assert "IR Dump After fail Failed" in out.getvalue()
    assert '"func.func"' in out.getvalue()


def test_statistics_and_timing(module: ir.Module) -> None:
    mark = Mark()
    statistics, timing = Statistics(), Timing()
    PassManager([PipelineStep(mark), PipelineStep(mark)], [statistics, timing]).run(module)
    assert statistics.counts == {"mark": {"matched": 2}}
    assert [n.reason for n in statistics.notes] == ["seen", "seen"]
    assert list(timing.seconds) == ["mark"] and timing.total > 0
    assert "mark: matched=2" in statistics.report()


def test_stage_dump(module: ir.Module, tmp_path: Path) -> None:
    dump = StageDump(tmp_path / "d")
    PassManager([PipelineStep("func.func(canonicalize)"), PipelineStep("cse", stage="graph")], [dump]).run(module)
    assert [p.name for p in dump.files] == ["00-input.mlir", "01-func.func-canonicalize.mlir", "02-cse.graph.mlir"]
    only = StageDump(tmp_path / "s", stages_only=True)
    PassManager([PipelineStep("canonicalize"), PipelineStep("cse", stage="graph")], [only]).run(module)
    assert [p.name for p in only.files] == ["00-input.mlir", "02-cse.graph.mlir"]


def test_verify_each_names_the_pass_that_broke_the_ir(module: ir.Module) -> None:
    class Break(Pass):
        """Give the function a type that its block does not have."""

        name = "break"

        def run(self, module: ir.Module) -> None:
            kind = ir.FunctionType.get([ir.IndexType.get()], [])
            module.body.operations[0].attributes["function_type"] = ir.TypeAttr.get(kind)

    with pytest.raises(CompileError, match="pass 'break' failed: .*func.func"):
        PassManager([PipelineStep(Break()), PipelineStep("cse")], [VerifyEach()]).run(module)


def test_stage_is_checked_where_it_is_complete(module: ir.Module) -> None:
    PassManager([PipelineStep("cse")], [CheckStages()]).run(module)
    with pytest.raises(CompileError, match="stage 'graph': arith.constant is not allowed in a function"):
        PassManager([PipelineStep("cse", stage="graph")], [CheckStages()]).run(module)


def test_check_stage_messages(module: ir.Module) -> None:
    with pytest.raises(KilnError, match="unknown stage 'fusd'; did you mean 'fused'"):
        check_stage(module, "fusd")
    with pytest.raises(InvalidIRError) as caught:
        check_stage(module, "kiln")
    assert caught.value.location == "-:4:8"
    codes = ["kernels", "vector", "ttir", "llvm", "object", "ptx"]
    assert list(STAGES) == ["torch", "graph", "kiln", "fused", "sched", *codes, "plan"]


def test_until() -> None:
    steps = [PipelineStep("canonicalize", stage="graph"), PipelineStep("cse", stage="graph"), PipelineStep("cse")]
    assert len(until(steps, "graph")) == 2
    with pytest.raises(KilnError, match="no step of this pipeline completes stage 'kiln'; stages: graph"):
        until(steps, "kiln")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('loc("a.py":3:5)', ("a.py", 3, 5)),
        ('loc("add"("a b.py":3:5))', ("a b.py", 3, 5)),
        ('loc(fused["x"("m.py":1:2), "n.py":3:4])', ("m.py", 1, 2)),
        ("m.py:7:1", ("m.py", 7, 1)),
        ("loc(unknown)", ("", 0, 0)),
        ('loc("-":0:0)', ("", 0, 0)),
    ],
)
def test_locate(text: str, expected: tuple[str, int, int]) -> None:
    assert locate(text) == expected


def test_diagnostics_of_a_parse_error(context: ir.Context) -> None:
    with pytest.raises(ir.MLIRError) as caught:
        ir.Module.parse("func.func @f(%a: i32) -> i64 {\n  return %a : i64\n}")
    (one,) = diagnostics_of(caught.value)
    assert (one.severity, one.line) == ("error", 2)
    assert "note: -:1:14: prior use here" in str(one) and "\n" not in str(one)
