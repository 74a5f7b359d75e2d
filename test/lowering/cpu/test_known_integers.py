# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a builder knows of integers holds for every value that they take."""

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects import create_context
from kiln.lowering.cpu.builder import Builder, Index

Shadow = tuple[Index, list[int]]
"""An integer under construction, and its value in each of some runs."""


@contextmanager
def kernel(arguments: int = 1) -> Iterator[tuple[Builder, list[ir.Value]]]:
    with create_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ir.FunctionType.get([ir.IndexType.get()] * arguments, []))
        entry = function.add_entry_block()
        with ir.InsertionPoint(entry):
            yield Builder(entry), list(entry.arguments)
            func.ReturnOp([])
        assert module.operation.verify()


def step(b: Builder, rng: random.Random, values: list[Shadow]) -> Shadow:
    (x, xs), (y, ys) = rng.choice(values), rng.choice(values)
    c = rng.choice([1, 2, 3, 8, 16])
    kind = rng.randrange(8)
    if kind == 0:
        return b.addi(x, y), [p + q for p, q in zip(xs, ys, strict=True)]
    if kind == 1:  # integers that are divided are not negative
        return b.maxi(b.subi(x, y), 0), [max(p - q, 0) for p, q in zip(xs, ys, strict=True)]
    if kind == 2:
        return b.muli(x, c), [p * c for p in xs]
    if kind == 3:
        return b.divi(x, c), [p // c for p in xs]
    if kind == 4:
        return b.remi(x, c), [p % c for p in xs]
    if kind == 5:
        return b.mini(x, y), [min(p, q) for p, q in zip(xs, ys, strict=True)]
    if kind == 6:
        return b.ceildivi(x, c), [-(-p // c) for p in xs]
    return b.round_down(x, c), [p // c * c for p in xs]


PREDICATES = {"slt": int.__lt__, "sle": int.__le__, "sgt": int.__gt__, "sge": int.__ge__, "eq": int.__eq__}


@pytest.mark.parametrize("seed", range(40))
def test_facts_hold(seed):
    """Random integers in a loop over a known range around one up to a size that is not known."""
    rng = random.Random(seed)
    lower, extent = rng.choice([0, 3, 16]), rng.choice([16, 40, 48])
    stride, inner, factor = (rng.choice([1, 8, 16]) for _ in range(3))
    upper = lower + extent
    runs = [
        (i, j, n)
        for i in range(lower, upper, stride)
        for n in (1, 2, 5, 13)
        for j in range(0, n * factor, inner)
    ]  # fmt: skip
    with kernel() as (b, (n,)):
        width = b.muli(b.maxi(n, 1), factor)

        def body(i: Index, j: Index) -> None:
            values: list[Shadow] = [
                (i, [i for i, _, _ in runs]),
                (j, [j for _, j, _ in runs]),
                (16, [16 for _ in runs]),
                (b.subi(upper, i), [upper - i for i, _, _ in runs]),
                (b.subi(width, j), [n * factor - j for _, j, n in runs]),
            ]
            for _ in range(14):
                values.append(step(b, rng, values))
            for value, numbers in values:
                low, high, divisor = b.known(value)
                assert low <= min(numbers) and max(numbers) <= high
                assert all(x % divisor == 0 if divisor else x == 0 for x in numbers)
            for (x, xs), (y, ys) in itertools.combinations(values, 2):
                for name, holds in PREDICATES.items():
                    known = b.cmpi(name, x, y)
                    if isinstance(known, bool):
                        assert all(holds(p, q) == known for p, q in zip(xs, ys, strict=True))

        b.for_(lower, upper, stride, lambda i: b.for_(0, width, inner, lambda j: body(i, j)))


def test_pieces_of_a_known_size():
    """No minimum, and no tail, where the pieces divide what they are pieces of."""
    with kernel() as (b, (n,)):
        found: list[Index] = []
        b.for_(0, 768, 384, lambda k: found.append(b.mini(b.subi(768, k), 384)))
        b.for_(0, 800, 384, lambda k: found.append(b.mini(b.subi(800, k), 384)))
        cols = b.muli(n, 48)
        b.for_(0, cols, 48, lambda j: found.append(b.mini(b.subi(cols, j), 48)))
        assert found[0] == 384 and isinstance(found[1], ir.Value) and found[2] == 48
        assert b.known(found[1]) == (32, 384, 32)
        assert b.subi(cols, b.round_down(cols, 16)) == 0
        assert isinstance(b.subi(cols, b.round_down(cols, 32)), ir.Value)


def test_any_size_has_a_last_piece_of_at_least_one():
    with kernel() as (b, (n,)):
        found: list[Index] = []

        def body(j: Index) -> None:
            left = b.subi(n, j)
            assert b.known(left)[0] == 1
            found.extend([b.cmpi("sgt", left, 0), b.cmpi("sge", left, 48)])

        b.for_(0, n, 48, body)
        assert found[0] is True and isinstance(found[1], ir.Value)


def test_nothing_is_divided_by_the_size_of_nothing():
    with kernel() as (b, (n,)):
        assert b.divi(0, n) == 0 and b.remi(0, n) == 0
        assert b.divi(n, 0) == 0 and b.remi(n, 0) == 0  # in code that never runs
