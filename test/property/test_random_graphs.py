# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A fixed sample of the fuzzer's graphs (docs/fuzzing.md), in child processes; long runs are `python -m benchmarks.fuzz`."""

import multiprocessing
from pathlib import Path

import pytest

from benchmarks.fuzz.campaign import campaign
from benchmarks.fuzz.generate import generate
from benchmarks.fuzz.worker import Worker


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_sample(target: str, tmp_path: Path) -> None:
    tally = campaign(target, range(24), 2, tmp_path)
    texts = [f"graph {o.number} is a {o.kind}: {o.text}" for o in tally.failures]
    assert not texts, "\n".join(texts)
    assert tally.compared >= 20


def test_a_number_is_always_the_same_graph() -> None:
    assert generate(7, "cpu") == generate(7, "cpu")
    assert generate(7, "cpu").program != generate(8, "cpu").program


def test_a_process_that_dies_is_a_failure(tmp_path: Path) -> None:
    worker = Worker("cpu", tmp_path / "log")
    try:
        worker.submit(7)
        (child,) = multiprocessing.active_children()
        child.kill()
        while (outcome := worker.poll(1.0)) is None:
            pass
        assert (outcome.number, outcome.kind, outcome.text) == (7, "crash", "the process died: SIGKILL")
        assert worker.result(7).kind == "right"
    finally:
        worker.close()
