# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""LLVM in threads: the same objects, errors as exceptions, processes that end and fork while it works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch_mlir import ir

from kiln.errors import CompileError
from kiln.lowering.cpu import jit


def text(number):
    """A function that calls another one, which is declared only."""
    return f"""
llvm.func @there(i64) -> i64
llvm.func @f{number}(%x: i64) -> i64 {{
  %c = llvm.mlir.constant({number} : i64) : i64
  %y = llvm.call @there(%x) : (i64) -> i64
  %z = llvm.mul %y, %c : i64
  llvm.return %z : i64
}}
"""


@pytest.fixture(autouse=True)
def context():
    with ir.Context() as context, ir.Location.unknown():
        context.enable_multithreading(False)
        yield


def test_objects_do_not_depend_on_threads():
    modules = [ir.Module.parse(text(number)) for number in range(12)]
    alone = [jit.object_bytes(module, f"f{i}") for i, module in enumerate(modules)]
    together = [jit.start(module, f"f{i}") for i, module in enumerate(modules)]
    assert [pending.result() for pending in together] == alone
    assert len(set(alone)) == len(alone)


def test_a_module_may_change_once_it_was_given():
    module = ir.Module.parse(text(3))
    pending = jit.start(module, "f3")
    for op in list(module.body):
        op.operation.erase()
    assert pending.result() == jit.object_bytes(ir.Module.parse(text(3)), "f3")


def test_what_is_not_in_the_llvm_dialect(capfd):
    with pytest.raises(CompileError, match="@f is no module in the LLVM dialect.*func"):
        jit.object_bytes(ir.Module.parse("func.func @f() { return }"), "f")
    assert not capfd.readouterr().err


def test_what_has_no_translation(capfd):
    module = ir.Module.parse('llvm.func @f() { llvm.call_intrinsic "llvm.no.such"() : () -> ()\n llvm.return }')
    with pytest.raises(CompileError, match=r"LLVM translation of @f failed: .*llvm\.no\.such"):
        jit.object_bytes(module, "f")
    assert not capfd.readouterr().err


def test_a_function_that_is_not_there():
    with pytest.raises(CompileError, match="LLVM compiled no @other"):
        jit.object_bytes(ir.Module.parse(text(1)), "other")


_PROCESS = """
import os, sys
from torch_mlir import ir
from kiln.lowering.cpu import jit

text = sys.argv[1]
with ir.Context() as context, ir.Location.unknown():
    context.enable_multithreading(False)
    pending = [jit.start(ir.Module.parse(text), "f5") for _ in range(8)]
    if sys.argv[2] == "fork":
        expected = [p.result() for p in pending][0]
        child = os.fork()
        same = jit.object_bytes(ir.Module.parse(text), "f5") == expected
        if not child:
            os._exit(0 if same else 3)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("what", ["exit", "fork"])
def test_processes(what):
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    # Python 3.12 warns of a fork of a process with threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _PROCESS, text(5), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
