# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The workbench's verbs, and the server that offers them to agents."""

import asyncio
import importlib.util
import re
import subprocess
import sys

import forked_python
import pytest

from kiln.errors import KilnError
from kiln.tools.editors import workbench

MODEL = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), (torch.ones(4, 8),)
"""
IR = """
func.func @main(%x: !torch.vtensor<[4,8],f32>) -> !torch.vtensor<[4,8],f32> {
  %0 = torch.aten.exp %x : !torch.vtensor<[4,8],f32> -> !torch.vtensor<[4,8],f32>
  return %0 : !torch.vtensor<[4,8],f32>
}
"""


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Verbs run Kiln's tools as processes; here they are forked, which imports nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workbench.subprocess, "run", forked_python.run)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    (root / "small.py").write_text(MODEL)
    return str(root)


@pytest.fixture(scope="module")
def compiled(folder):
    return workbench.compile_model("small:make", folder)


def test_stages_of_a_model(compiled):
    dump = re.match(r"stages are in (.*)\n", compiled)[1]
    assert "graph0-inference: 00-input.mlir, graph, kiln, fused" in compiled and "addmm_relu" in compiled
    assert "kiln.fusion" in workbench.show_stage(dump, "fused")
    with pytest.raises(KilnError, match="no stage 'fussed'.*did you mean 'fused'"):
        workbench.show_stage(dump, "fussed")
    with pytest.raises(KilnError, match="no dump of a graph"):
        workbench.show_stage(dump, "fused", "graph7-forward")


def test_models(folder):
    assert "addmm_relu" in workbench.explain("small:make", folder)
    assert "of roof" in workbench.profile("small:make", folder)
    assert "error: " in workbench.explain("small:none", folder)
    with pytest.raises(KilnError, match="there is no folder"):
        workbench.explain("small:make", folder + "/none")


def test_passes():
    assert "kiln.fusion" not in workbench.run_pass(IR, "convert-torch-to-kiln")
    assert "unknown pass 'fuze'; did you mean 'fuse'" in workbench.run_pass(IR, "fuze")
    assert workbench.check(IR, kernels=True) == "each pass computes the same"
    assert workbench.bisect(IR) == "nothing is broken"
    broken = IR.replace("torch.aten.exp", "torch.aten.exxp")
    assert "error: " in workbench.check(broken)


def test_schedules(compiled):
    dump = re.match(r"stages are in (.*)\n", compiled)[1]
    ir = workbench.show_stage(dump, "sched")
    schedule = re.search(r"schedule = (\{.*?\})", ir)[1]
    name = re.search(r'kind = "matmul".*?name = "(\w+)"', ir)[1]
    changed = re.sub(r"\bmr = \d+", "mr = 2", schedule)
    found = workbench.try_schedule(ir, name, changed)
    assert found.startswith("// its kernels compute the same\n") and "mr = 2" in found
    with pytest.raises(KilnError, match="not a schedule of"):
        workbench.try_schedule(ir, name, re.sub(r'kernel = "[^"]*"', 'kernel = "cpu.none"', schedule))
    with pytest.raises(KilnError, match="no fusion 'none'"):
        workbench.try_schedule(ir, "none", schedule)


def test_help_is_shown(capsys):
    """A server that waits for a client looks like a command that hangs."""
    from kiln.tools.kiln_mcp import main

    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "over stdin and stdout" in " ".join(capsys.readouterr().out.split())


def test_a_missing_package_is_said():
    program = "import sys; sys.modules['mcp'] = None; from kiln.tools.kiln_mcp import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'kiln-mlir[editors]'" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs mcp (pip install kiln-mlir[editors])")
def test_the_server_has_the_verbs():
    from mcp import Client

    from kiln.tools.kiln_mcp import make_server

    async def session():
        async with Client(make_server()) as client:
            tools = (await client.list_tools()).tools
            right = await client.call_tool("run_pass", {"ir": IR, "pipeline": "convert-torch-to-kiln"})
            wrong = await client.call_tool("show_stage", {"dump": "/none", "stage": "fused"})
            return tools, right, wrong

    tools, right, wrong = asyncio.run(session())
    assert {tool.name for tool in tools} == {verb.__name__ for verb in workbench.VERBS}
    assert all(tool.description for tool in tools)
    assert "math.exp" in right.content[0].text and not right.is_error
    assert wrong.is_error and "no dump of a graph" in wrong.content[0].text
