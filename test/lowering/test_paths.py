# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Special paths: all kinds of kernels have one, the fuzzer's tables name them all, marks are counted."""

import pytest

from benchmarks.fuzz.table import belonging, table, unreached
from kiln.errors import KilnError
from kiln.lowering import paths
from kiln.lowering.emitters import kernel_kinds


def test_kinds_of_kernels_are_paths() -> None:
    names = paths.declared()
    assert {f"gpu kind: {kind}" for kind in kernel_kinds("gpu")} <= set(names)
    assert {f"cpu kind: {kind}" for kind in kernel_kinds("cpu")} <= set(names)


def test_the_tables_name_each_path() -> None:
    named = {path for target in ("cpu", "tt-cpu", "cuda") for path in belonging(target)}
    assert named == set(paths.declared())
    for target in ("cpu", "tt-cpu", "cuda"):
        text = table(target, {})
        assert all(path.partition(": ")[2] in text for path in belonging(target))


def test_marks_are_counted() -> None:
    mark = paths.declared()["gpu scan: one block"]
    paths.reset()
    assert "gpu scan: one block" in unreached("tt-cpu", paths.taken())
    mark("one block")
    mark("one block")
    assert paths.taken() == {"gpu scan: one block": 2}
    assert "gpu scan: one block" not in unreached("tt-cpu", paths.taken())
    with pytest.raises(KilnError, match="no path 'two blocks'"):
        mark("two blocks")
    paths.reset()
