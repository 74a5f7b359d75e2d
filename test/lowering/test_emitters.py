# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Emitters register themselves for an op and a target; pipelines keep the ops that have one."""

import pytest

from kiln.dialects import kiln
from kiln.errors import KilnError
from kiln.lowering import emitters
from kiln.lowering.emitters import emits, kernel_kinds
from kiln.passes.pipelines import cpu_pipeline, gpu_pipeline


def test_ops_with_kernels_have_an_emitter_somewhere() -> None:
    kept = {entry.op for entry in kiln.opdefs() if entry.has_kernel}
    assert {kind.op for target in ("cpu", "gpu") for kind in kernel_kinds(target).values()} == kept


@pytest.mark.parametrize(("target", "pipeline"), [("cpu", cpu_pipeline), ("gpu", gpu_pipeline)])
def test_pipelines_keep_what_has_an_emitter(target, pipeline, monkeypatch) -> None:
    def keeps() -> str:
        return next(s.pass_.spec() for s in pipeline() if s.name == "expand-named-ops")

    given = "" if target == "cpu" else " target=cuda"
    assert keeps() == f"expand-named-ops{{keep={','.join(kernel_kinds(target))}{given}}}"
    assert "softmax" not in keeps() and "matmul" in keeps()
    monkeypatch.delitem(emitters._KINDS[target], "matmul")
    assert "matmul" not in keeps()


@pytest.mark.parametrize(
    ("op", "target", "message"),
    [
        (kiln.SoftmaxOp, "cpu", "SoftmaxOp: an emitter needs a row in the table of ops with has_kernel=True"),
        (kiln.MatmulOp, "cpu", "kiln.matmul has two emitters for 'cpu'"),
        (kiln.ScatterNdOp, "cpus", "no target 'cpus'"),
    ],
)
def test_mistakes_are_named(op: type, target: str, message: str) -> None:
    kernel_kinds("cpu")
    with pytest.raises(KilnError, match=message):
        emits(op, target=target)
