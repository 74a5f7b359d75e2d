# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rules of the user's own that choose schedules: ``options={"schedules": [...]}``."""

import dataclasses
import functools
import gc
import os
import sys
import textwrap
from pathlib import Path

import forked_python
import pytest
import torch

import kiln
from kiln.dialects.schedules import to_plain
from kiln.dialects.schedules.cpu import FlashSchedule
from kiln.dialects.schedules.gpu import LoopsSchedule
from kiln.errors import BackendOptionError, CompileError, KilnError
from kiln.frontend.cache.graph_key import settings_text
from kiln.frontend.options import Options
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Step, Target
from kiln.schedules import find_rule, name_of_rule
from kiln.tools.kiln_opt import main

ROOT = Path(__file__).parents[2]
CPU = {"cpu": "x86-64-v3", "fallback": False}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model(x, w):
    return torch.tanh(x @ w) + 1


def inputs():
    return torch.randn(1, 64), torch.randn(64, 128)


def narrow(fusion):
    if fusion.kind == "matmul":
        return dataclasses.replace(fusion.schedule, nv=1)
    return None


def notes(options, *given, of=model):
    (graph,) = kiln.explain(of, *(given or inputs()), options=options).graphs
    return [note.reason for note in graph.notes if note.pass_name == "apply-schedules"]


def test_a_rule_is_given_the_fusion():
    seen = []
    x = torch.randn(1, 64, dtype=torch.bfloat16)
    notes({"schedules": seen.append, **CPU}, x, torch.randn(64, 128, dtype=torch.bfloat16))
    (fusion,) = seen
    assert (fusion.kind, fusion.target, fusion.arch) == ("matmul", "cpu", "")
    assert fusion.ops[0] == "kiln.matmul" and "math.tanh" in fusion.ops and "linalg.generic" not in fusion.ops
    assert [t.shape for t in fusion.operands] == [(1, 64), (64, 128)] and fusion.results[0].dtype == "bf16"
    assert {"mm", "tanh"} <= set(fusion.nodes)
    assert {Path(file).name for file, _ in fusion.lines} == {Path(__file__).name}
    assert fusion.schedule.kernel.startswith("cpu.gemm.")


def test_constants_and_sizes_of_run_time():
    seen = []
    layer = torch.nn.Linear(64, 128).eval()
    with torch.no_grad():
        notes({"schedules": seen.append, "freezing": True, **CPU}, torch.randn(1, 64), of=layer)
        torch.compile(model, backend="kiln", dynamic=True, options={"schedules": seen.append, **CPU})(*inputs())
    frozen, dynamic = seen
    assert [t.is_constant for t in frozen.operands][:2] == [False, True]
    assert dynamic.results[0].shape[-1] is None


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_it_is_compiled_and_right(mode):
    x, w = inputs()
    options = {"schedules": [narrow], "mode": mode, "tune_seconds": 0.01, **CPU}
    assert notes(options, x, w)[0].startswith("schedule by ")
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="kiln", options=options)(x, w), model(x, w))
    graph = kiln.trace(model, x, w, options=options, calls=0).graphs[0]
    assert "nv = 1 :" in str(graph.stage("sched")) and "nv = 2 :" in str(graph.stage("schedule-cpu"))
    again = graph.rerun("fused", until="sched")
    if mode == "default":
        assert "nv = 1 :" in str(again.stage("sched"))


def test_constants_are_packed_as_the_rule_says():
    """Panels of a frozen weight are as wide as the rule's schedule."""
    layer, x = torch.nn.Linear(64, 128).eval(), torch.randn(32, 64)

    def wide(fusion):
        return dataclasses.replace(fusion.schedule, nv=1, mr=4) if fusion.kind == "matmul" else None

    options = {"schedules": [wide], "freezing": True, **CPU}
    with torch.no_grad():
        assert notes(options, x, of=layer)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(layer, backend="kiln", options=options)(x), layer(x))


def test_on_a_gpu():
    def two_warps(fusion):
        assert (fusion.target, fusion.arch) == ("tt-cpu", "sm_90")
        plain = to_plain(fusion.schedule)
        return {**plain, "nests": [{**nest, "num_warps": 2} for nest in plain["nests"]]}

    def model(x):
        return torch.softmax(x.relu(), -1)

    x = torch.randn(8, 16)
    options = {"schedules": [two_warps], "target": "tt-cpu", "fallback": False}
    graph = kiln.trace(model, x, options=options, calls=0).graphs[0]
    assert "num_warps = 2" in str(graph.stage("sched")) and "num_warps = 2" not in str(graph.stage("assign-layouts"))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend="kiln", options=options)(x), model(x))


def test_each_rule_sees_what_the_one_before_it_chose():
    def more(fusion):
        return dataclasses.replace(fusion.schedule, nv=fusion.schedule.nv * 4)

    first, second = notes({"schedules": [narrow, more], **CPU})
    assert first.endswith("narrow: nv: 2 -> 1") and second.endswith("more: nv: 1 -> 4")


FLASH = FlashSchedule(mr=1, nv=1, width=8, queries=1, keys=1)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda f: dataclasses.replace(f.schedule, nv=0), "field 'nv': expected an integer of at least 1, found 0"),
        (lambda f: {"kernel": "cpu.gemm.bloked"}, "field 'kernel': expected one of .*, found \"cpu.gemm.bloked\""),
        (lambda f: 7, "expected a schedule, a dictionary or None, found a int"),
        (lambda f: FLASH, "no kernel for a schedule cpu.attention.flash"),
        (lambda f: {"kernel": "parts", "parts": [{}, {}]}, "expected a schedule for each of 1 parts, found 2"),
        (lambda f: find_rule("nowhere:rule"), "KilnError: no schedule rule 'nowhere:rule'"),
        (lambda f: f.nothing, "AttributeError: .*nothing"),
    ],
)
def test_a_schedule_that_no_kernel_takes(found, message):
    """The error names the rule and the fusion; with the fallback on, it is the reason why the graph runs with ATen."""
    name = r"schedule rule '[\w.]*:<lambda>(#\d+)?', fusion 'mm_tanh_add': .*"
    with pytest.raises(Exception, match=name + message) as raised:
        notes({"schedules": found, **CPU})
    assert isinstance(raised.value.inner_exception, CompileError)
    torch._dynamo.reset()
    x, w = inputs()
    with pytest.warns(RuntimeWarning, match=name + message):
        result = torch.compile(model, backend="kiln", options={"schedules": found, "cpu": CPU["cpu"]})(x, w)
    torch.testing.assert_close(result, model(x, w))


def test_the_wrong_number_of_nests():
    def twice(fusion):
        return LoopsSchedule(nests=fusion.schedule.nests * 2)

    with pytest.raises(Exception, match=r"twice', fusion 'relu': a schedule of 2 nests for 1"):
        notes({"schedules": twice, "target": "tt-cpu", "fallback": False}, torch.randn(8), of=torch.relu)


def test_loops_of_the_cpu_have_no_schedule():
    with pytest.raises(Exception, match="fusion 'relu': no kernel for a schedule cpu.attention.flash"):
        notes({"schedules": lambda fusion: FLASH, **CPU}, torch.randn(8), of=torch.relu)


def test_what_is_no_rule():
    with pytest.raises(BackendOptionError, match="option 'schedules' must be a list of functions of a fusion, found 3"):
        Options.build(options={"schedules": [3]})


def test_names():
    """By its name a function of a module is found in another process, one in a function while it lives."""
    assert find_rule("dataclasses:replace") is dataclasses.replace
    rule = functools.partial(narrow)
    assert find_rule(name_of_rule(rule)) is rule

    def made(number):
        return lambda fusion: number

    first, second = made(1), made(2)
    names = [name_of_rule(first), name_of_rule(second)]
    assert names[1] == f"{names[0]}#2" and [find_rule(name) for name in names] == [first, second]
    del first, second
    gc.collect()
    with pytest.raises(KilnError, match="no schedule rule .*<lambda>"):
        find_rule(names[0])
    with pytest.raises(KilnError, match="no schedule rule 'nowhere:rule'"):
        find_rule("nowhere:rule")


def test_values_that_a_rule_closes_over_are_in_the_key():
    def made(nv):
        return lambda fusion: dataclasses.replace(fusion.schedule, nv=nv)

    @dataclasses.dataclass(frozen=True)
    class Rule:
        nv: int

        def __call__(self, fusion):
            return None

        def method(self, fusion):
            return None

    def key(*rules):
        return settings_text(Options.build(options={"schedules": list(rules)}))

    assert key(made(1)) == key(made(1)) != key(made(2)) != key()
    assert key(Rule(1)) == key(Rule(1)) != key(Rule(2))
    assert key(Rule(1).method) == key(Rule(1).method) != key(Rule(2).method)
    assert key(narrow, made(1)) != key(made(1), narrow)


def test_a_target_from_outside_has_them_at_the_end_of_its_schedules():
    class Mine(Target):
        name = "mine"

        def schedule(self, options):
            return [Step("pack-constants", "as scheduled", stage="sched")]

    text = f"apply-schedules{{target=mine rules={__name__}:narrow}}"
    steps = Mine().pipeline(PipelineOptions(schedules=(narrow,)), "schedule", "schedule")
    assert [(step.text, step.stage) for step in steps] == [("pack-constants", "sched"), (text, "sched")]
    assert [step.text for step in Mine().pipeline(PipelineOptions(), "schedule", "schedule")] == ["pack-constants"]


def test_kiln_opt_asks_a_rule(tmp_path, capfd):
    (tmp_path / "own_rules.py").write_text("""
import dataclasses
def one_warp(fusion):
    nests = tuple(dataclasses.replace(nest, num_warps=4) for nest in fusion.schedule.nests)
    return dataclasses.replace(fusion.schedule, nests=nests)
""")
    file = tmp_path / "in.mlir"
    file.write_text("""func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
      %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
      return %0 : !torch.vtensor<[4],f32> }""")
    own = "--insert-after=schedule-gpu:apply-schedules{target=cuda rules=own_rules:one_warp}"
    assert main([f"--load={tmp_path / 'own_rules.py'}", "--pipeline=gpu", "--until=sched", own, str(file)]) == 0
    assert "num_warps = 4" in capfd.readouterr().out


PROGRAM = """
    import torch, kiln
    from mine import rule
    from kiln.frontend.report import collect
    with torch.no_grad(), collect() as reports:
        torch.compile(lambda x: x.relu() + 1, backend="kiln", options={"schedules": [rule]})(torch.randn(4, 8))
    print(reports[0].cache)
"""


def test_the_cache_knows_the_source(tmp_path):
    """Compiled by one process, loaded by the next, until the rule's file changes."""
    source = tmp_path / "mine.py"
    source.write_text("def rule(fusion):\n    print('asked')\n")
    paths = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    settings = {"KILN_CACHE": "1", "KILN_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": paths}

    def run():
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM)]
        done = forked_python.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run() == ["asked", "stored"]
    assert run() == ["loaded"]
    source.write_text("def rule(fusion):\n    print('anew')\n")
    assert run() == ["anew", "stored"]
