# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The fuzzer where a GPU stops to work: who is blamed, and what goes on."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import benchmarks.fuzz.device as device
import benchmarks.fuzz.execute as execute
import kiln
from benchmarks.fuzz.__main__ import record
from benchmarks.fuzz.campaign import Tally
from benchmarks.fuzz.execute import Setting, attempt, why_skipped
from benchmarks.fuzz.families import images, memory, numbers, rows, special, training
from benchmarks.fuzz.generate import Family, generate
from benchmarks.fuzz.growing import Budget, Grower
from benchmarks.fuzz.program import Input, Program
from benchmarks.fuzz.reach import reached
from benchmarks.fuzz.worker import Outcome, Worker
from kiln.frontend.calls.boxed_graph import LOST_ALIAS
from kiln.frontend.report import collect
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder

PROGRAM = Program([Input((3, 4), torch.float32, 0)], ["torch.relu(v0)"], [1])


class Gpu:
    """A GPU that works until something breaks it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_broken = False
        monkeypatch.setattr(device, "settle", lambda _: self.settle())

    def settle(self) -> None:
        if self.is_broken:
            raise RuntimeError("CUDA error: misaligned address\nand much more")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def test_what_eager_breaks_is_skipped(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def reference(*given: Any) -> None:
        gpu.is_broken = True

    monkeypatch.setattr(execute, "reference", reference)
    assert why_skipped(PROGRAM, Setting("static")) == "eager breaks the GPU: CUDA error: misaligned address"


def test_what_the_compiled_program_breaks_is_a_failure(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other compiler is asked then: nothing works any more."""

    def attempt(*given: Any) -> None:
        asked.append(given[2])
        gpu.is_broken = True
        with device.computed_by_eager("cuda"):
            pass

    asked: list[Any] = []
    monkeypatch.setattr(execute, "attempt", attempt)
    with pytest.raises(RuntimeError, match="misaligned") as error:
        why_skipped(PROGRAM, Setting("static"))
    assert not isinstance(error.value, device.EagerBreaksDevice) and len(asked) == 1


def test_an_error_of_eagers_that_breaks_nothing_is_raised(gpu: Gpu) -> None:
    with pytest.raises(IndexError), device.computed_by_eager("cuda"):
        raise IndexError


class OneLife(Worker):
    """A worker whose child gives one outcome, and is gone."""

    starts = 0

    def _start(self) -> None:
        OneLife.starts += 1
        self.pipe, theirs = multiprocessing.Pipe()
        theirs.send(Outcome(OneLife.starts, "error", is_last=True))
        theirs.close()

    def close(self) -> None:
        self.pipe.close()


def test_a_child_without_a_gpu_is_replaced(tmp_path: Path) -> None:
    worker = OneLife("cuda", tmp_path / "log")
    worker.task = 1
    first = worker.poll()
    worker.task = 2
    second = worker.poll()
    assert first is not None and second is not None
    assert [first.kind, second.kind, OneLife.starts] == ["error", "error", 3]


def test_programs_for_a_gpu_have_no_attention_that_breaks_it() -> None:
    attends = "F.scaled_dot_product_attention({0}, {0}, {0})"
    inputs = [Input((1, 2, 16, 80), torch.float16, 0)]
    for for_gpu in (False, True):
        g = Grower(Random(0), inputs, Budget(1e9, 1 << 20), for_gpu)
        taken = [at for at in ("4:76", ":76", "8:72") if g.add(attends.format(f"u0[..., {at}]")) is not None]
        assert taken == ([":76", "8:72"] if for_gpu else ["4:76", ":76", "8:72"])
    rows_apart = Program(inputs, [attends.format("v0[..., 8:72]")], [1])  # by 160 bytes; two elements more: 164
    assert execute.larger(rows_apart) is not None and execute.larger(rows_apart, for_gpu=True) is None


def test_graphs_for_a_gpu_are_made_without_one() -> None:
    case = generate(701047, "cuda")
    assert case.setting.device == "cuda" and case.program == generate(701047, "cuda").program


def test_graphs_of_one_thread_are_shared_by_several_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of one element that each thread updates is one that one thread updates, where one thread runs."""
    program = Program(
        [Input((1,), torch.float32, 0), Input((303,), torch.float32, 1)], ["v0.mul_(1.5)", "v1.mul_(1.5)"], [2, 3]
    )
    monkeypatch.setattr(Builder, "split", lambda b, tid, nt, units: (0, units))
    with pytest.raises(AssertionError, match="2 threads: 1 of 1 elements of value 0 change"):
        why_skipped(program, Setting("static", {"target": "cpu"}))


def test_results_that_are_views_of_one_copy() -> None:
    program = Program([Input((7, 9), torch.float32, 0)], ["v0.flip(0)", "v1[1:3]"], [1, 2])
    paths.reset()
    assert not why_skipped(program, Setting("training", {"target": "cpu"}, dynamic=True, training=True))
    assert paths.taken()["any storage-views: results in one tensor"]


def test_a_result_by_places_in_another_runs_with_aten() -> None:
    program = Program(
        [Input((7, 9), torch.float32, 0)], ["v0.abs().contiguous()", "torch.as_strided(v1, (20,), (1,))"], [1, 2]
    )
    setting = Setting("training", {"target": "cpu"}, dynamic=True, training=True)
    assert not why_skipped(program, setting)
    with pytest.raises(BackendCompilerFailed, match=LOST_ALIAS):
        attempt(program, setting, kiln.backend, {"fallback": False, "target": "cpu"})


def test_children_have_several_threads() -> None:
    """A process that was forked behind the import of the runtime's threads has one."""
    code = (
        "import sys; import benchmarks.fuzz.worker\n"
        "assert 'kiln.runtime.threads' not in sys.modules and 'kiln.runtime.executor' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


FAMILIES: dict[str, tuple[Family, str, tuple[str, ...]]] = {
    "products": (
        special.large_products,
        "cuda",
        ("cuda library: reduction behind", "cuda library: siblings that meet", "cuda no library: siblings"),
    ),
    "few rows": (special.rows_anywhere, "cuda", ("cuda library: rows anywhere",)),
    "batches": (special.large_batches, "cuda", ("cuda library: batches with rows anywhere",)),
    "attention": (special.large_heads, "cuda", ("cuda no cuDNN attention: a kernel behind it",)),
    "windows": (images.slide, "cuda", ("gpu layouts: images that are copied",)),
    "siblings": (rows.siblings, "cpu", ("cpu kind: parts with one function",)),
    "integers": (special.integers, "cpu", ("cpu product: int8", "cpu product: int8_dot")),
    "borders": (
        training.block,
        "cpu",
        (
            *(f"any average-gradients: {path}" for path in ("channels last", "planar", "left to ATen")),
            "any padding-gradients: folded back",
            "cpu padding-gradients: wide border left to ATen",
        ),
    ),
    "maxima": (training.block, "tt-cpu", ("gpu pooling-offsets: found with the maxima",)),
    "deep": (training.deep, "cuda", ("cuda cuts: a run of launches",)),
    "arguments": (numbers.arguments, "cpu", ("any signs: negative symbol", "any signs: negative expression")),
    "places": (numbers.places, "cpu", ("any places: slice by sizes", "any places: roll by sizes")),
    "views": (training.views, "tt-cpu", ("any storage-views: results in one tensor",)),
    "neighbours": (training.weights_of_neighbours, "cpu", ("cpu phases: team: kept in another shape",)),
    "memory": (
        memory.in_memory,
        "cpu",
        ("any storage-views: all elements", "any storage-views: all elements written"),
    ),
    "copies": (
        memory.read_copies,
        "cpu",
        ("any calls: operands with eager's strides", "any calls: memory of its own"),
    ),
    "scatters": (
        special.onto_zeros,
        "cpu",
        tuple(
            f"cpu scatter: {path}"
            for path in (
                *("rows", "vectors, one by one", "scattered vectors", "one by one"),
                "threads by index",
                "onto zeros",
            )
        ),
    ),
    "beside": (
        special.beside_products,
        "cpu",
        tuple(
            f"any results beside products: {path}"
            for path in ("no dim of a single column", "dims of size 1 behind columns")
        ),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_graphs_reach_what_they_are_made_for(name: str) -> None:
    """With the passes of a GPU, on a machine without one; on the CPU without matrix units, which take products."""
    family, target, wanted = FAMILIES[name]
    missing = set(wanted)
    is_gpu = target == "cuda"
    options = {"cpu": "x86-64-v3"} if target == "cpu" else {}
    for seed in range(30):
        given = [Input((17, 32), torch.float32, 0)]
        g = Grower(Random(seed), given, Budget(7e9 if is_gpu else 1e7, 12 << 20), is_gpu)
        family(g)
        if g.made:
            setting = Setting("static", options, dynamic=g.is_dynamic, training=g.is_for_training)
            missing -= reached(g.finish([]), setting, target, kernels=not is_gpu).keys()
        if not missing:
            return
    raise AssertionError(missing)


def test_a_row_of_results_has_causes_and_paths(tmp_path: Path) -> None:
    tally = Tally()
    for number, kind, text in (
        (7, "right", ""),
        (9, "wrong", "v3: 4 of 8"),
        (8, "wrong", "v5: 1 of 9"),
        (3, "hang", ""),
    ):
        tally.add(Outcome(number, kind, text))
    record(tmp_path / "r.json", "cpu", tally, ["cpu scan: along memory"])
    record(tmp_path / "r.json", "tt-cpu", Tally(), [])
    first, second = json.loads((tmp_path / "r.json").read_text())
    assert [(c["failures"], c["graphs"], c["cause"]) for c in first["causes"]] == [
        (2, [8, 9], "wrong: v5: 1 of 9"),
        (1, [3], "hang: "),
    ]
    assert (first["failed"], first["graphs"], first["unreached"]) == (3, 4, ["cpu scan: along memory"])
    assert (second["target"], second["failed"], second["causes"]) == ("tt-cpu", 0, [])


def test_sizes_of_one_number_alone_are_dynamic() -> None:
    """Those of first dimensions before others, where eager takes that: one compilation, and the weight keeps its sizes."""
    inputs = [Input((5, 3, 7), torch.float32, 0), Input((9, 7), torch.float32, 1)]
    program = Program(inputs, ["F.linear(v0.view(-1, 3, 7), v1)"], [2])
    setting = Setting("dynamic", {"target": "cpu"}, dynamic=True, partly=True)
    marks, grown = execute.growth(program, setting)
    assert marks == [[0], []] and grown is not None and [x.shape for x in grown.inputs] == [(7, 3, 7), (9, 7)]
    with collect() as reports:
        assert not why_skipped(program, setting)
    (report,) = reports
    assert report.executor == "kiln"
