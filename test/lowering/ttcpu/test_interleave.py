# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs that are under way at the same time: planted races show, kernels that wait as they should are right."""

import os
import sys
from typing import Any

import pytest
import torch

from kiln.errors import AccessError
from kiln.lowering.ttcpu.settings import Settings

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import load, range_, run, store

ADD = "{atomic_rmw_op = 4 : i32, sem = 4 : i32, scope = 1 : i32} : (!tt.ptr<i32>, i32) -> i32"
PARTS, WIDTH = 24, 64

PROGRAM = f"""{range_(WIDTH)}
      %c1 = arith.constant 1 : i32
      %c0 = arith.constant 0 : i32
      %width = arith.constant {WIDTH} : i32
      %pid = "tt.get_program_id"() {{axis = 0 : i32}} : () -> i32
      %at = arith.muli %pid, %width : i32
      %mine = "tt.addptr"(%a0, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
      %part = "tt.addptr"(%a1, %at) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
      {load("x", "%mine", WIDTH)}"""
WRITE = store("%x", "%part", WIDTH)
COUNT = f'%before = "tt.atomic_rmw"(%a2, %c1) {ADD}'
SUM_UP = f"""
      %last = arith.constant {PARTS - 1} : i32
      %is_last = arith.cmpi eq, %before, %last : i32
      scf.if %is_last {{
        %parts = arith.constant {PARTS} : i32
        %zero = arith.constant dense<0.0> : tensor<{WIDTH}xf32>
        %sum = scf.for %k = %c0 to %parts step %c1 iter_args(%acc = %zero) -> (tensor<{WIDTH}xf32>) : i32 {{
          %from = arith.muli %k, %width : i32
          %p = "tt.addptr"(%a1, %from) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
          {load("y", "%p", WIDTH)}
          %more = arith.addf %acc, %y : tensor<{WIDTH}xf32>
          scf.yield %more : tensor<{WIDTH}xf32>
        }}
        {store("%sum", "%a3", WIDTH)}
      }}"""


def split(body: str, **settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A sum whose parts are added by the program that counts last; what it is to be."""
    x, out = torch.randn(PARTS, WIDTH), torch.zeros(WIDTH)
    parts, counter = torch.full((PARTS, WIDTH), float("nan")), torch.zeros(1, dtype=torch.int32)
    types = "!tt.ptr<f32>; !tt.ptr<f32>; !tt.ptr<i32>; !tt.ptr<f32>"
    run(types, body, [x, parts, counter, out], grid=f"() -> ({PARTS})", settings=Settings(**settings))
    return out, x.double().sum(0)


@pytest.mark.parametrize("together", [2, 8, 64])
def test_a_sum_in_parts(together: int) -> None:
    """What a program writes behind the counter may not be there when the last one reads it."""
    lost = 0
    for seed in range(6):
        out, expected = split(PROGRAM + WRITE + COUNT + SUM_UP, seed=seed, together=together)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
        out, expected = split(PROGRAM + COUNT + WRITE + SUM_UP, seed=seed, together=together)
        lost += int(out.isnan().any())
    assert lost > 0
    for alone in ({"together": 1}, {"order": "reversed"}):
        out, expected = split(PROGRAM + COUNT + WRITE + SUM_UP, **alone)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


LOCK = """
      %c0 = arith.constant 0 : i32
      %c1 = arith.constant 1 : i32
      %held = scf.while (%try = %c1) : (i32) -> i32 {
        %old = "tt.atomic_cas"(%a0, %c0, %c1) {sem = 4 : i32, scope = 1 : i32} : (!tt.ptr<i32>, i32, i32) -> i32
        %taken = arith.cmpi ne, %old, %c0 : i32
        scf.condition(%taken) %old : i32
      } do {
      ^bb0(%old: i32):
        scf.yield %old : i32
      }"""
CHANGE = """
      %v = "tt.load"(%a1) {operandSegmentSizes = array<i32: 1, 0, 0>} : (!tt.ptr<i32>) -> i32
      %w = arith.addi %v, %c1 : i32
      "tt.store"(%a1, %w) : (!tt.ptr<i32>, i32) -> ()"""
UNLOCK = """
      %free = "tt.atomic_rmw"(%a0, %c0) {atomic_rmw_op = 10 : i32, sem = 4 : i32, scope = 1 : i32}
        : (!tt.ptr<i32>, i32) -> i32"""


def count(body: str, programs: int = 40, **settings: Any) -> int:
    lock, value = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    run("!tt.ptr<i32>; !tt.ptr<i32>", body, [lock, value], grid=f"() -> ({programs})", settings=Settings(**settings))
    return int(value)


def test_a_lock() -> None:
    assert count(LOCK + CHANGE + UNLOCK) == 40
    assert count(LOCK + CHANGE + UNLOCK, together=256) == 40
    # Without the wait, changes that other programs make in between are lost.
    taken = '%got = "tt.atomic_rmw"(%a0, %c1) ' + ADD
    constants = "%c0 = arith.constant 0 : i32\n%c1 = arith.constant 1 : i32\n"
    assert min(count(constants + taken + CHANGE + UNLOCK, seed=seed) for seed in range(4)) < 40
    assert count(constants + taken + CHANGE + UNLOCK, together=1) == 40


def test_a_lock_that_nobody_gives_back() -> None:
    with pytest.raises(AccessError, match="@kernel: its programs wait for each other for ever: 4 of them"):
        count(LOCK + CHANGE, together=4)
    assert count(LOCK + CHANGE, programs=1) == 1


def test_a_seed_gives_the_same_run() -> None:
    constants = "%c0 = arith.constant 0 : i32\n%c1 = arith.constant 1 : i32\n"
    found = [count(constants + CHANGE + UNLOCK, seed=seed) for seed in (2, 2, 0, 1, 3)]
    assert found[0] == found[1] and len(set(found)) > 1
