# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The breadth run without a GPU: what it takes for right and wrong, its processes, its order, its table."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.gpu.breadth import table
from benchmarks.gpu.breadth.__main__ import main
from benchmarks.gpu.breadth.child import Settings
from benchmarks.gpu.breadth.entry import Entry, Job, jobs_of
from benchmarks.gpu.breadth.families import entries_of
from benchmarks.gpu.breadth.judge import judge
from benchmarks.gpu.breadth.parameters import randomize
from benchmarks.gpu.breadth.pool import _row, _Running, run_jobs
from benchmarks.gpu.breadth.report import summary
from benchmarks.gpu.breadth.row import Row

ENTRIES = "breadth_entries"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of planted failures is found, here and by the processes of jobs."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def rows_of(jobs: list[Job], backend: str = "eager", limit: float = 120.0) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    settings = Settings("cpu", backend if backend == "eager" else f"{ENTRIES}:{backend}", {}, ENTRIES)
    assert run_jobs(jobs, settings, workers=2, seconds=1e4, limit=limit, show=lambda r: rows.update({r["job"]: r})) == 0
    return rows


def test_a_process_costs_one_row() -> None:
    names = ["plain", "no model", "exit", "signal", "eager raises", "drawing"]
    rows = rows_of([Job(name, "forward", "f32", 8) for name in names] + [Job("plain", "train", "f32", 8)])
    found = {row["job"].removesuffix(" f32 batch 8"): (row["status"], row["reason"]) for row in rows.values()}
    assert found["plain forward"] == ("right", "") and found["plain train"] == ("right", "")
    assert found["no model forward"][0] == "not run" and "no such model" in found["no model forward"][1]
    assert found["eager raises forward"][0] == "not run" and "eager fails" in found["eager raises forward"][1]
    assert found["drawing forward"][0] == "not run" and "eager draws numbers" in found["drawing forward"][1]
    assert found["exit forward"][0] == "crashed" and "exit 3" in found["exit forward"][1]
    assert found["signal forward"][0] == "crashed" and "SIGSEGV" in found["signal forward"][1]


def test_a_job_that_hangs_is_ended() -> None:
    (row,) = rows_of([Job("hang", "forward", "f32", 8)], limit=5.0).values()
    assert row["status"] == "hung" and "breadth_entries.py" in row["reason"]


@pytest.mark.parametrize(
    ("backend", "status", "reason"),
    [
        ("scaled", "wrong", "error 5.00e-02"),
        ("one_element", "wrong", "an element is off"),
        ("one_nan", "wrong", "1 of 320 NaN"),
        ("cut", "wrong", "[8, 39]"),
        ("half", "wrong", "torch.float16"),
        ("stale", "wrong", "call 2: error"),
        ("unsteady", "wrong", "calls differ"),
        ("writing", "wrong", "written to"),
        ("raising", "failed", "a backend that fails"),
    ],
)
def test_planted_mistakes_of_a_backend(backend: str, status: str, reason: str) -> None:
    (row,) = rows_of([Job("plain", "forward", "f32", 8)], backend).values()
    assert row["status"] == status and reason in row["reason"], row


def test_unknown_sizes_are_other_batches_as_well() -> None:
    """One compilation for all; a backend that keeps to the first batch is wrong at the second."""

    def go(kind: str, backend: str) -> Row:
        rows: list[Row] = []
        settings = Settings("cpu", backend, {}, ENTRIES, dynamic=True)
        run_jobs([Job("plain", kind, "f32", 8)], settings, workers=1, seconds=1e4, limit=120.0, show=rows.append)
        return rows[0]

    for kind in ("forward", "train"):
        row = go(kind, "eager")
        assert (row["status"], row["recompiles"]) == ("right", 0), row
    row = go("forward", f"{ENTRIES}:stale")
    assert row["status"] == "wrong" and row["reason"].startswith("call 2"), row


def test_a_model_that_asks_whether_it_is_compiled() -> None:
    """It is right where it is what Dynamo captured, and a mistake in that is seen."""
    jobs = [Job("asking", kind, "f32", 8) for kind in ("forward", "train")]
    found = rows_of(jobs)
    assert [row["status"] for row in found.values()] == ["right"] * 2, found
    assert all(row["reference"] == "float64, as Dynamo captures it" for row in found.values())
    assert [row["status"] for row in rows_of(jobs[:1], "scaled").values()] == ["wrong"]


def test_few_wrong_elements_of_many() -> None:
    """A kernel that leaves out the last columns of one tile: 2 % of eager's error in the norm."""
    torch.manual_seed(0)
    exact = torch.randn(512, 4096, dtype=torch.float64)
    eager = exact.to(torch.bfloat16)
    found = eager.clone()
    assert not judge({"output.0": found}, {"output.0": eager}, {"output.0": exact}, torch.bfloat16).reason
    found[3, 4090:] = 1.0
    finding = judge({"output.0": found}, {"output.0": eager}, {"output.0": exact}, torch.bfloat16)
    assert finding.reason.startswith("an element is off") and finding.error < 2 * finding.eager_error


def test_where_eager_is_infinite_nothing_is_held_against_anyone() -> None:
    exact = torch.tensor([1e5, 1.0], dtype=torch.float64)
    eager = exact.half()
    values = {"output.0": eager}
    assert not judge(values, values, {"output.0": exact}, torch.float16).reason
    lost = {"output.0": torch.tensor([torch.inf, torch.inf]).half()}
    assert "1 of 2 NaN or Inf" in judge(lost, values, {"output.0": exact}, torch.float16).reason


def test_integers_are_equal() -> None:
    values, others = {"output.0": torch.tensor([1, 2])}, {"output.0": torch.tensor([1, 3])}
    assert not judge(values, values, values, torch.float32).reason
    assert judge(others, values, values, torch.float32).reason == "other integers"
    assert not judge(others, others, values, torch.float32).reason  # a tie that rounding breaks, for eager as well


def test_no_constants_are_left() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.LayerNorm(8))
    module.register_parameter("scale", nn.Parameter(torch.full((8,), 1e-6)))
    module.register_parameter("table", nn.Parameter(torch.zeros(4, 8)))
    module.register_parameter("raw", nn.Parameter(torch.full((4, 8), torch.nan)))
    before = module[0].weight.detach().clone()
    randomize(module)
    assert torch.equal(module[0].weight, before)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            assert tensor.isfinite().all() and tensor.std() > 1e-3, name


def test_each_tier_has_each_architecture() -> None:
    entries = list(entries_of("").values())
    jobs = jobs_of(entries)
    assert len(entries) >= 150 and sum(entry.trains for entry in entries) * 3 >= len(entries)
    assert len({job.key for job in jobs}) == len(jobs)
    first = jobs[: len(entries)]
    assert {job.entry for job in first} == {entry.name for entry in entries}
    assert {(job.kind, job.dtype) for job in first} == {
        (k, d) for k in ("forward", "train") for d in ("bf16", "f16", "f32")
    } - {("train", "f16")}
    assert {job.batch == 1 for job in first if job.kind == "forward"} == {True, False}
    turned = jobs_of(entries, turn=1)
    assert {job.key for job in turned} == {job.key for job in jobs}
    again = {job.entry for job in set(turned[: len(entries)]) & set(first)}
    assert all(sum(job.entry == name for job in jobs) == 1 for name in again)  # those with one way alone


def test_what_a_kink_does_is_no_mistake() -> None:
    """A sign that rounding decides: perturbed parameters show it, and nothing else is let through."""
    exact = {"output.0": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)}
    eager, found = {"output.0": exact["output.0"].float()}, {"output.0": torch.tensor([1.0, 2.0, 3.001])}
    kinked = {"output.0": torch.tensor([1.0, 2.0, 3.002], dtype=torch.float64)}
    assert judge(found, eager, exact, torch.float32).reason
    assert not judge(found, eager, exact, torch.float32, [kinked]).reason
    found["output.0"][0] = 1.2
    assert judge(found, eager, exact, torch.float32, [kinked]).reason


def test_the_longest_start_first() -> None:
    entries = [Entry(str(cost), "", lambda batch: (nn.Identity(), lambda g: ()), cost=cost) for cost in (1, 5, 3)]
    assert [job.entry for job in jobs_of(entries, ["f32"])] == ["5", "3", "1"]


def test_the_same_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    arguments = ["--device", "cpu", "--backend", "eager", "--entries", ENTRIES, "--out", str(out), "--jobs", "2"]
    arguments += ["--only", "^(plain|exit) ", "--dtype", "f32", "--kind", "forward"]
    assert main([*arguments, "--minutes", "0"]) == 0
    assert "no time for 2 jobs" in capsys.readouterr().out
    assert main(arguments) == 1
    assert "2 jobs, 0 done before" in capsys.readouterr().out
    assert main(arguments) == 1
    assert "0 jobs, 2 done before" in capsys.readouterr().out
    assert main([*arguments, "--dynamic"]) == 1
    assert "sizes that are known" in capsys.readouterr().err
    assert main([*arguments, "--again", "crashed"]) == 1
    text = capsys.readouterr().out
    assert "1 jobs, 1 done before" in text and "exit 3" in text
    assert [set(json.loads(line)) & {"run", "job"} for line in out.read_text().splitlines()] == [
        {"run"},
        {"job"},
        {"job"},
    ]


def test_what_is_wrong_comes_last_in_the_summary() -> None:
    row: Row = {
        "entry": "a",
        "family": "f",
        "kind": "forward",
        "dtype": "bf16",
        "batch": 1,
        "seconds": 1.0,
        "reason": "x" * 300,
    }
    rows: list[Row] = [{**row, "job": f"job {i}", "status": "not run"} for i in range(200)]
    rows.append({**row, "job": "the one", "status": "wrong"})
    text = summary(rows, 4000)
    assert len(text) < 4600 and "the one" in text.splitlines()[-1] and "more rows)" in text


def test_the_page_shows_the_table() -> None:
    assert table.main(["--check"]) == 0


def test_a_run_is_added_once(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    about = {"date": "2026-11-22", "commit": "abc", "machine": "H200"}
    about["versions"] = dict.fromkeys(("torch", "triton", "transformers", "timm", "torchvision"), "1")
    row = {"job": "a", "entry": "a", "status": "wrong", "fallbacks": ["x"], "recompiles": 2}
    file.write_text("\n".join(map(json.dumps, [{"run": about}, row, {**row, "job": "b", "status": "right"}])))
    runs = table.add(table.add([], file), file)
    assert len(runs) == 1 and runs[0]["counts"]["jobs"] == 2
    page = table.page_with(f"before\n{table.BEGIN}\nold\n{table.END}\nbehind", runs)
    assert "| 2026-11-22 | `abc` | H200 | 1, 1, 1 | known | 1 | 2 | 1 | 1 | 0 | 0 | 0 | 0 | 2 | 4 |" in page
    file.write_text("\n".join(map(json.dumps, [{"run": about | {"sizes": "unknown"}}, row])))
    assert [run.get("sizes", "known") for run in table.add(runs, file)] == ["known", "unknown"]
    assert page.startswith("before") and page.endswith("behind") and "old" not in page
    with pytest.raises(ValueError, match="no <!-- breadth"):
        table.page_with("a page", runs)


def test_a_process_that_ends_while_its_stack_is_written_was_over_its_limit(tmp_path: Path) -> None:
    """faulthandler reads the frames of threads that go on, and may end the process by that."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.close()
    process = multiprocessing.get_context("fork").Process(target=os._exit, args=(3,))
    process.start()
    process.join()
    log = tmp_path / "job.log"
    log.write_text('Timeout (0:00:58)!\nThread 0x1 (most recent call first):\n  File "/x/emit.py", line 7 in plan\n')
    row = _row(_Running(Job("net", "train", "bf16", 8), process, receiver, log, time.monotonic()), 60)
    assert (row["status"], row["reason"]) == ("hung", "no result within 60 s; it was at emit.py:7 plan")
