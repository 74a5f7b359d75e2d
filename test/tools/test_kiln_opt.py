# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""kiln-opt where lit does not reach: start-up, and parts of --verify-diagnostics."""

import subprocess
import sys
from pathlib import Path

import pytest

from kiln.passes.diagnostics import Diagnostic
from kiln.tools.kiln_opt import main
from kiln.tools.verify_diagnostics import parse_expectations, verify


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
