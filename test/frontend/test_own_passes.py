# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes of the user's own in the pipelines of targets: ``options={"passes": [kiln.Insert(...)]}``."""

import os
import sys
import textwrap
from pathlib import Path

import forked_python
import pytest
import torch

import kiln
from kiln.dialects.kiln import FusionOp
from kiln.errors import BackendOptionError, KilnError
from kiln.frontend.options import Options
from kiln.passes import Pass, register_pass
from kiln.passes.manager import inserted
from kiln.passes.pipelines import cpu_pipeline
from kiln.tools.kiln_opt import main

ROOT = Path(__file__).parents[2]


@register_pass
class CountFusions(Pass):
    """Count the fusions of a module, and say so of the first one."""

    name = "count-fusions"
    word: str = "here"

    def run(self, module):
        for func in module.body.operations:
            for op in func.regions[0].blocks[0].operations:
                if isinstance(op, FusionOp):
                    self.count("fusions")
                    self.note(op, f"counted {self.word}")


def model(x):
    return torch.softmax(x.relu() * 2, -1)


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_it_runs_once_for_each_graph(target, tmp_path):
    own = CountFusions(word="now")
    options = {"passes": [kiln.Insert(own, after="fuse")], "target": target, "debug_dir": str(tmp_path)}
    for _ in range(2):
        torch._dynamo.reset()
        (graph,) = kiln.explain(model, torch.randn(4, 8), options=options).graphs
        assert [note.reason for note in graph.notes if note.pass_name == "count-fusions"] == ["counted now"]
        assert "kiln.fusion" in {note.op for note in graph.notes}
    assert not own.notes
    assert len(list(tmp_path.glob("*/*-count-fusions.mlir"))) == 2


def test_places():
    def names(*inserts):
        return [step.name.partition("{")[0] for step in inserted(cpu_pipeline(), inserts)]

    assert names(kiln.Insert(CountFusions(), after="fuse"))[names().index("fuse") + 1] == "count-fusions"
    found = names(kiln.Insert("count-fusions,cse", before="compose-views"))
    assert found[found.index("compose-views") - 2 : found.index("compose-views")] == ["count-fusions", "cse"]
    (own,) = (s for s in inserted(cpu_pipeline(), [kiln.Insert(CountFusions(), after="fused")]) if s.is_inserted)
    assert own.stage == "fused"


def test_wrong_places():
    with pytest.raises(KilnError, match="say either after= or before="):
        kiln.Insert(CountFusions())
    with pytest.raises(BackendOptionError, match="no pass or stage 'fuze' in this pipeline.*did you mean 'fuse'"):
        inserted(cpu_pipeline(), [kiln.Insert(CountFusions(), after="fuze")])
    with pytest.raises(BackendOptionError, match="option 'passes' must be a list of kiln.Insert"):
        Options.build(options={"passes": [CountFusions()]})
    with pytest.raises(BackendOptionError, match="option 'passes': unknown pass 'count-fusion'"):
        Options.build(options={"passes": kiln.Insert("count-fusion", after="fuse")})
    with pytest.raises(Exception, match="no pass or stage 'fuze'"):  # with the fallback on: the option is wrong
        options = {"passes": [kiln.Insert(CountFusions(), after="fuze")]}
        torch.compile(model, backend="kiln", options=options)(torch.randn(4, 8))


def test_kiln_opt_inserts(capfd):
    pipeline = ["--pipeline=cpu", "--until=fused", "--print-pipeline"]
    assert main([*pipeline, "--insert-after=fuse:count-fusions{word=there}"]) == 0
    assert ",fuse,count-fusions{word=there},drop-roundings" in capfd.readouterr().out
    assert main([*pipeline, "--insert-before=fuse:cse"]) == 0
    assert ",cse,fuse,drop-roundings" in capfd.readouterr().out


def test_remarks_say_where_in_the_model(tmp_path, capfd):
    file = tmp_path / "in.graph.mlir"
    file.write_text("""func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
      %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32> loc("relu_1"("model.py":3:5))
      return %0 : !torch.vtensor<[4],f32> }""")
    assert main(["--pipeline=cpu", "--until=fused", "--insert-after=fuse:count-fusions", "--remarks", str(file)]) == 0
    assert "model.py:3:5: remark: kiln.fusion (relu_1): counted here [count-fusions]\n" in capfd.readouterr().err


PASS = """
    from kiln.passes import Pass, register_pass

    @register_pass
    class Mine(Pass):
        \"\"\"Do nothing.\"\"\"

        name = "mine"

        def run(self, module):
            print("ran")
"""
PROGRAM = """
    import sys, torch, kiln
    from kiln.frontend.report import collect
    {given}
    with torch.no_grad(), collect() as reports:
        torch.compile(lambda x: x.relu() + 1, backend="kiln", options={options})(torch.randn(4, 8))
    print(reports[0].cache)
"""


def _run(folder, given, options):
    program = textwrap.dedent(PROGRAM).format(given=given, options=options)
    paths = os.pathsep.join([str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")])
    settings = {"KILN_CACHE": "1", "KILN_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": paths}
    done = forked_python.run(
        [sys.executable, "-c", program], env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_cache_knows_the_source(tmp_path):
    """Compiled by one process, loaded by the next, until the pass's file changes."""
    source = tmp_path / "mine.py"
    source.write_text(textwrap.dedent(PASS))
    given = ("from mine import Mine", '{"passes": [kiln.Insert(Mine(), after="fuse")]}')
    assert _run(tmp_path, *given) == ["ran", "stored"]
    assert _run(tmp_path, *given) == ["loaded"]
    source.write_text(source.read_text().replace('"ran"', '"anew"'))
    assert _run(tmp_path, *given) == ["anew", "stored"]


def test_installed_passes_are_in_every_pipeline(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(PASS))
    (tmp_path / "inserts.py").write_text("import kiln, mine\nINSERTS = [kiln.Insert(mine.Mine(), after='fuse')]\n")
    info = tmp_path / "own-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[kiln.passes]\nmine = inserts:INSERTS\n")
    given = "from kiln.tools.kiln_opt import main\nmain(['--pipeline=gpu', '--until=fused', '--print-pipeline'])"
    *passes, ran, stored = _run(tmp_path, given, "None")
    assert ",mine,drop-roundings" in " ".join(passes) and (ran, stored) == ("ran", "stored")
