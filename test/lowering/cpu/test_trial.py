# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Candidates on trial: that every one computes what PyTorch does, in its own memory, on operands as in the graph."""

import dataclasses

import pytest
import torch
from torch_mlir import ir
from tune_support import Scheduled, attention, conv, error, product

from kiln.dialects import affine
from kiln.dialects.schedules import from_attribute
from kiln.errors import KilnError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.emit import emit_kernel
from kiln.lowering.cpu.tune.candidates import candidates
from kiln.lowering.cpu.tune.residence import outside
from kiln.lowering.cpu.tune.trial import Trial
from kiln.lowering.cpu.tune.tuner import CpuTuner
from kiln.lowering.tune.store import TunedSchedules


def check_all(text, exact, tolerance=1e-5):
    """Every candidate, and the default, against `exact(buffers)`; returns how many there were."""
    with Scheduled(text) as fusion:
        default = from_attribute(fusion.operation.attributes["schedule"])
        trial = Trial(fusion, 2)
        expected = exact(*trial.buffers)
        found = candidates(trial.body, trial.layouts, default)
        assert default not in found
        for schedule in [default, *found]:
            run = trial.prepare(schedule)
            trial.results[0].zero_()
            run()
            assert error(trial.results[0].view(expected.shape), expected) < tolerance, schedule
        return len(found)


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 50, 70), (1, 1, 1), (33, 130, 129), (100, 257, 300)])
def test_every_candidate_of_a_product_is_right(m, n, k, transposed):
    def exact(x, w):
        w = w.double()
        return x.double().view(m, k) @ (w.view(n, k).T if transposed else w.view(k, n))

    assert check_all(product(m, n, k, transposed), exact) >= 1


def test_every_candidate_of_a_frozen_product_is_right():
    m, n, k = 24, 100, 70
    text = product(m, n, k, constant=True)
    assert check_all(text, lambda x, w: x.double().view(m, k) @ w.double().view(n, k).T) >= 4
    with Scheduled(text) as fusion:
        trial = Trial(fusion, 1)
        found = candidates(trial.body, trial.layouts, from_attribute(fusion.operation.attributes["schedule"]))
        assert {getattr(s, "packed", False) for s in found} == {True, False}


def test_every_candidate_of_a_product_in_half_precision_is_right():
    m, n, k = 9, 40, 64
    text = product(m, n, k, dtype="bf16")
    assert check_all(text, lambda x, w: x.double().view(m, k) @ w.double().view(n, k).T, 1e-2) >= 1


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "groups", "stride"),
    [(5, 40, 11, 1, 2), (24, 24, 13, 24, 1)],
)
def test_every_candidate_of_a_convolution_is_right(channels, outputs, size, groups, stride):
    def exact(x, w):
        image = x.double().view(2, channels, size, size)
        weight = w.double().view(outputs, channels // groups, 3, 3)
        return torch.nn.functional.conv2d(image, weight, stride=stride, padding=1, groups=groups)

    assert check_all(conv(channels, outputs, size, groups, stride), exact) >= 2


@pytest.mark.parametrize(("queries", "keys", "causal"), [(100, 100, True), (3, 90, False)])
def test_every_candidate_of_attention_is_right(queries, keys, causal):
    def exact(q, k, v):
        q, k, v = (x.double().view(2, 3, -1, 40) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.25)

    assert check_all(attention(queries, keys, causal), exact) >= 1


def test_a_kernel_that_writes_beyond_its_memory_is_none(monkeypatch) -> None:
    """Such as one whose scratch memory is less than it takes."""

    def with_little_scratch(fusion, name):
        module = emit_kernel(fusion, name)
        kernel = next(op for op in module.body if "kiln.scratch_bytes" in op.attributes)
        needed = ir.AffineMapAttr(kernel.attributes["kiln.scratch_bytes"]).value.results[0]
        less = ir.AffineConstantExpr.get(affine.constant_of(needed) - 1024)
        kernel.attributes["kiln.scratch_bytes"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, 0, [less]))
        return module

    monkeypatch.setattr("kiln.lowering.cpu.tune.trial.emit_kernel", with_little_scratch)
    with Scheduled(attention(40, 50, causal=False)) as fusion:
        schedule = from_attribute(fusion.operation.attributes["schedule"])
        with pytest.raises(KilnError, match="beyond its memory"):
            Trial(fusion, 1).prepare(schedule)


def test_weights_are_as_far_as_in_the_graph():
    """Calls go through copies of the operands from outside where those of the graph do not fit into the caches."""
    cpu = dataclasses.replace(isa.host(), l2_bytes=1 << 20, l3_bytes=8 << 20)
    reaches = []
    for rows, columns in ((64, 64), (768, 1024), (4096, 1024)):
        with isa.compiling_for(cpu), Scheduled(product(16, rows, columns)) as fusion:
            trial = Trial(fusion, 1)
            reaches.append(trial.reach)
            sets = trial._sets(trial.buffers)
            weights = {operands[1].data_ptr(): operands[1] for operands in sets}
            assert sum(w.nbytes for w in weights.values()) >= trial.reach or len(weights) == 64
            assert all(torch.equal(w, trial.buffers[1]) for w in weights.values())
            assert (len(weights) > 1) == (trial.reach > trial.buffers[1].nbytes)
    assert reaches == [0, 2 << 20, 8 << 20]


def test_what_other_kernels_write_has_no_copies():
    text = product(16, 768, 1024).replace(
        "func.func @main(%x: tensor<16x1024xf32>,", "func.func @main(%y: tensor<16x1024xf32>,"
    )
    text = text.replace("{\n", "{\n %x = tensor.empty() : tensor<16x1024xf32>\n", 1)
    cpu = dataclasses.replace(isa.host(), l2_bytes=1 << 20, l3_bytes=8 << 20)
    with isa.compiling_for(cpu), Scheduled(product(16, 768, 1024)) as alone, Scheduled(text) as fusion:
        assert (outside(alone), outside(fusion)) == ([0, 1], [1])
        tuner = CpuTuner(TunedSchedules())
        assert tuner.key(alone) != tuner.key(fusion)
