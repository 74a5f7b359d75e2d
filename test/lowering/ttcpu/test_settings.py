# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The order of programs, poison, and the option that sets them."""

import os
import sys

import pytest
import torch

import kiln
from kiln.errors import BackendOptionError
from kiln.frontend.options import Options
from kiln.lowering.gpu.builder import Builder
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import run

# Each program writes at the next place which one it is.
IN_TURN = """
      %one = arith.constant 1 : i32
      %pid = "tt.get_program_id"() {axis = 0 : i32} : () -> i32
      %turn = "tt.atomic_rmw"(%a0, %one) {atomic_rmw_op = 4 : i32, sem = 4 : i32, scope = 1 : i32}
        : (!tt.ptr<i32>, i32) -> i32
      %p = "tt.addptr"(%a1, %turn) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>
      "tt.store"(%p, %pid) : (!tt.ptr<i32>, i32) -> ()
"""


def order(programs: int, **settings) -> list[int]:
    out, counter = torch.full((programs,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    given = Settings(**{"together": 1, **settings})
    run("!tt.ptr<i32>; !tt.ptr<i32>", IN_TURN, [counter, out], grid=f"() -> ({programs})", settings=given)
    return out.tolist()


def test_orders_of_programs():
    assert order(5, order="forward") == [0, 1, 2, 3, 4]
    assert order(5, order="reversed") == [4, 3, 2, 1, 0]
    seen = set()
    for seed in range(12):
        found = order(37, seed=seed)
        assert sorted(found) == list(range(37)) and found != list(range(37))
        seen.add(tuple(found))
    assert len(seen) == 12
    assert order(37) == order(37, seed=0)
    assert order(2) == [1, 0] and order(1) == [0]


def compiled(function, **options):
    torch._dynamo.reset()
    options = {"target": "tt-cpu", "fallback": False, "cache": False, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


@pytest.mark.planted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_what_nobody_writes_is_poison(monkeypatch, dtype):
    """A compiler with a defect: the stores of a kernel are lost. Memory that was used before tells nothing."""
    x = torch.ones(300, 70).to(dtype)
    run = compiled(lambda x: (x + 1)[:, 3:])
    assert (run(x) == 2).all()
    monkeypatch.setattr(Builder, "store", lambda *arguments, **named: None)
    out = compiled(lambda x: x + 1)(x)
    assert out.isnan().all() if dtype.is_floating_point else (out == -1).all()
    assert compiled(lambda x: x + 1, tt_cpu="poison=off")(x).shape == x.shape


def test_what_a_kernel_changes_in_place_is_no_poison():
    def step(x, y):
        x.add_(y)
        return x.index_add(0, torch.tensor([1, 1]), y[:2])

    x, y = torch.randn(5, 8), torch.randn(5, 8)
    expected = x + y
    out = compiled(step)(x, y)
    torch.testing.assert_close(x, expected)
    torch.testing.assert_close(out, expected.index_add(0, torch.tensor([1, 1]), y[:2]))


def test_the_option():
    assert Settings.parse("") == DEFAULTS
    found = Settings.parse("order=reversed seed=3 bounds=off")
    assert found == Settings(bounds=False, order="reversed", seed=3)
    assert Settings.parse(str(found)) == found and str(DEFAULTS) == ""
    for text, message in {
        "ordr=forward": "did you mean 'order'",
        "order=sideways": "orders are shuffled, reversed, forward",
        "seed=-1": "whole number",
        "poison=maybe": "on or off",
        "together=0": "a number from 1 to 256",
        "forward": "expected name=value",
    }.items():
        with pytest.raises(BackendOptionError, match=message):
            Options.build(None, {"tt_cpu": text})


def test_the_environment_variable(monkeypatch):
    monkeypatch.setenv("KILN_TT_CPU", "seed=5")
    assert Options.build().tt_cpu == "seed=5"
