# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""kiln-opt where lit does not reach: start-up, and parts of --verify-diagnostics."""

import gc
import shlex
import subprocess
import sys
from pathlib import Path

import forked_python
import pytest

from kiln.lowering.gpu.compile import triton_problem
from kiln.passes.diagnostics import Diagnostic
from kiln.tools.kiln_opt import main
from kiln.tools.verify_diagnostics import parse_expectations, verify

INPUTS = Path(__file__).parent / "kiln_opt" / "Inputs"


def test_start_up_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from kiln.tools.kiln_opt import main\n"
        "status = main(['--pass-pipeline=canonicalize'])\n"
        "assert status == 0 and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], input=b"func.func @f() { return }", check=True, timeout=60)


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe", b"module {", b"func.func @f(", b"}", b"\x00", b"ML\xefR", b'"unknown.op"() : () -> ()', b"#x = #x"],
)
def test_bad_input_is_one_line(data: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.mlir"
    path.write_bytes(data)
    assert main([str(path)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "error: " in err and err.count("\n") == 1 and "in.mlir" in err


def test_the_command_of_a_reproducer_reproduces(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As printed, also for a pass that came by --load."""
    source = "func.func @f(%a: i32) -> i32 { %0 = arith.addi %a, %a : i32 return %0 : i32 }"
    (tmp_path / "in.mlir").write_text(source)
    pipeline = "--pass-pipeline=canonicalize,test-reject{op=arith.addi}"
    assert main([SAMPLE, f"--reproducer-dir={tmp_path}", pipeline, str(tmp_path / "in.mlir")]) == 1
    first = capfd.readouterr().err.splitlines()
    command = shlex.split(first[-1].removeprefix("note: to reproduce: "))
    argv = [sys.executable, "-m", "kiln.tools.kiln_opt", *command[1:]]
    done = forked_python.run(argv, capture_output=True, text=True)
    assert command[0] == "kiln-opt" and done.returncode == 1
    assert "arith.addi is not supported: rejected by option" in done.stderr


SAMPLE = f"--load={INPUTS}/sample_passes.py"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pass-pipeline=canonicalise"], "unknown pass 'canonicalise'; did you mean 'canonicalize'?"),
        (["--pass-pipeline=cse", f"--dump-stages={SAMPLE[7:]}/x", f"{INPUTS}/empty.mlir"], "cannot write stages to"),
        (["--pass-pipeline=func.func(csee)"], "unknown pass 'csee' at column 11 of 'func.func(csee)'; did you mean"),
        (["--pass-pipeline=nosuchpass{a=1}"], "unknown pass 'nosuchpass'; kiln-opt --list-passes shows Kiln's"),
        (["--pass-pipeline=func.func(cse"], "at column 10 of 'func.func(cse': this '(' is never closed"),
        (["--pass-pipeline=cse,,cse"], "at column 5 of 'cse,,cse': expected a pass name, found ','"),
        (["--pass-pipeline=canonicalize{foo=1}"], "pass 'canonicalize': no such option foo"),
        (["--pass-pipeline=canonicalize{max-iterations=a}"], "failed to add `canonicalize` with options"),
        ([SAMPLE, "--pass-pipeline=test-tag{star=1}"], "pass 'test-tag': unknown option 'star'; did you mean 'start'?"),
        ([SAMPLE, "--pass-pipeline=test-tag{start=x}"], "pass 'test-tag': option 'start' expects int, found 'x'"),
        ([SAMPLE, "--pass-pipeline=func.func(test-tag)"], "write it outside of func.func(...)"),
        (["--load=absent.py"], "cannot load passes from 'absent.py': no such Python file"),
        (["--pass-pipelin=cse"], "unknown option '--pass-pipelin'; did you mean '--pass-pipeline'"),
        (["absent.mlir"], "cannot read absent.mlir: No such file or directory"),
        ([f"{INPUTS}/empty.mlir", "more.mlir"], "one input file at most, found 'more.mlir' as well"),
        ([f"{INPUTS}/broken.mlir"], "broken.mlir:2:9: error: expected operation name in quotes"),
        (["--pipeline=gpx"], "unknown pipeline 'gpx'"),
        (
            ["--pass-pipeline=cse", "--print-ir-after=cs"],
            "--print-ir-after: no pass 'cs' in this pipeline; did you mean",
        ),
        (["--pass-pipeline=cse", "--print-ir-before=fuse"], "--print-ir-before: no pass 'fuse' in this pipeline"),
        (["--until=fused"], "--until needs --pipeline"),
        (["--from=fused", "--pass-pipeline=cse"], "--from needs --pipeline"),
        (["--pipeline=cpu", "--pipeline=gpu"], "--pipeline is given twice: 'cpu' and 'gpu'"),
        (["--pipeline=cpu", "--until=fused", "--until=sched"], "--until is given twice: 'fused' and 'sched'"),
        (["--pipeline=cpu", "--until=fused", "--from=sched"], "the input is at stage 'sched', which is behind 'fused'"),
        (["--pipeline=cpu", "--from=nowhere"], "no step of this pipeline completes stage 'nowhere'; stages: "),
        (["--pipeline=cpu", "--until=nowhere"], "no step of this pipeline completes stage 'nowhere'; stages: "),
        ([f"{INPUTS}/empty.mlir", "--check-stage=fuse"], "unknown stage 'fuse'; did you mean 'fused'?"),
        (["--verify-diagnostics=some"], "invalid choice: 'some'"),
    ],
)
def test_errors_say_what_was_near(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err and err.count("\n") == 1


def test_the_example_in_the_help_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.replace("-\n", "-").split())
    program, pipeline, _ = shlex.split(text[text.index("example: ") + len("example: ") :])
    assert program == "kiln-opt" and main([pipeline, f"{INPUTS}/empty.mlir"]) == 0


def test_a_pass_that_refuses_its_options_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--pass-pipeline=choose-vendor{keep=convs}", f"{INPUTS}/empty.mlir"]) == 1
    error, note = capfd.readouterr().err.splitlines()
    assert error == "error: pass 'choose-vendor': keep: no rule for 'convs'; did you mean 'conv'?"
    assert note == "note: in pass 'choose-vendor'"


def test_output_file_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.mlir"
    path.write_text("func.func @f() { return }")
    assert main([str(path), "-o", str(tmp_path / "no" / "out.mlir")]) == 1
    assert "cannot write" in capfd.readouterr().err


def test_above_and_below_skip_other_expectations() -> None:
    text = "one\n// expected-error @above {{a}}\n// expected-note @below {{b}}\n// expected-error @-3 {{c}}\nfive"
    found, errors = parse_expectations(text)
    assert errors == []
    assert [(e.severity, e.line) for e in found] == [("error", 1), ("note", 5), ("error", 1)]


def test_an_expectation_is_met_once() -> None:
    text = "// expected-error @+1 {{bad}}\nx"
    one = Diagnostic("error", "bad thing", "f", 2, 1)
    assert verify(text, [one]) == []
    assert [e.message for e in verify(text, [one, one])] == ["unexpected error: bad thing"]


def test_unknown_location() -> None:
    assert verify("// expected-remark @unknown {{r}}", [Diagnostic("remark", "a r b")]) == []
    (error,) = verify("", [Diagnostic("warning", "w")])
    assert error.message == "unexpected warning at an unknown location: w"


def test_regular_expression_parts() -> None:
    text = "// expected-error-re @+1 {{found (literal) {{[0-9]+}} times}}\nx"
    assert verify(text, [Diagnostic("error", "found (literal) 12 times", "f", 2)]) == []
    (error,) = verify("// expected-error-re @+1 {{a {{(}} b}}\nx", [])
    assert "invalid regular expression" in error.message


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--print-pipeline"]) == 0
    return capsys.readouterr().out.strip()


def test_passes_run_in_the_order_that_they_are_given_in(capsys: pytest.CaptureFixture[str]) -> None:
    target = printed(capsys, "--pipeline=cpu", "--until=kiln")
    text = printed(capsys, "--pass-pipeline=sccp", "--pipeline=cpu", "--until=kiln", "--pass-pipeline=cse,sccp")
    assert text == f"sccp,{target},cse,sccp"


def test_a_pipeline_goes_on_where_the_input_is(capsys: pytest.CaptureFixture[str]) -> None:
    whole = printed(capsys, "--pipeline=cpu")
    rest = printed(capsys, "--pipeline=cpu", "--from=fused")
    assert whole.endswith(rest) and rest.startswith("assign-layouts,")
    assert rest == printed(capsys, "--pipeline=cpu", "23-drop-roundings.fused.mlir")
    for name in ("x.graph.mlir", "fused.mlir", "x.fused", "x.other.mlir", "-"):
        assert printed(capsys, "--pipeline=cpu", name) == whole
    assert printed(capsys, "--pipeline=cpu", "--from=torch", "x.fused.mlir") == whole
    assert printed(capsys, "--pipeline=cpu", "--until=sched", "x.sched.mlir") == ""


def test_each_dumped_stage_leads_to_the_same_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "x.graph.mlir"
    source.write_text(
        "func.func @main(%x: !torch.vtensor<[4,40],f32>) -> !torch.vtensor<[4,40],f32> {\n"
        "  %0 = torch.aten.exp %x : !torch.vtensor<[4,40],f32> -> !torch.vtensor<[4,40],f32>\n"
        "  return %0 : !torch.vtensor<[4,40],f32>\n}\n"
    )
    assert main(["--pipeline=cpu", "--until=llvm", f"--dump-stages={tmp_path / 'dump'}", str(source)]) == 0
    expected = capsys.readouterr().out
    stages = [path for path in (tmp_path / "dump").iterdir() if path.name.count(".") == 2]
    assert {path.name.split(".")[1] for path in stages} == {
        *("graph", "kiln", "fused", "sched", "kernels", "vector", "llvm")
    }
    for path in stages:
        assert main(["--pipeline=cpu", "--until=llvm", str(path)]) == 0
        assert capsys.readouterr().out == expected, path.name


def test_collections_are_rare_in_a_process_of_its_own_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """A program that calls main with arguments keeps its own settings."""
    before = gc.get_threshold()
    assert main([f"{INPUTS}/empty.mlir"]) == 0
    assert gc.get_threshold() == before
    code = (
        "import gc, sys\n"
        "from kiln.tools.kiln_opt import main\n"
        f"sys.argv[1:] = ['{INPUTS}/empty.mlir']\n"
        "assert main() == 0 and gc.get_threshold()[0] > 10_000\n"
    )
    forked_python.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(bool(triton_problem()), reason="needs Triton")
def test_kernels_of_a_gpu_leave_nothing_on_stderr() -> None:
    """Triton would report objects that are not collected at exit."""
    command = [
        sys.executable,
        "-m",
        "kiln.tools.kiln_opt",
        "--pipeline=gpu",
        "--emit=ttir",
        INPUTS.parent / "emit.mlir",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tt.store" in done.stdout and done.stderr == ""
