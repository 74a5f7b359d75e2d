# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

import gc
import threading
import weakref

import pytest
import torch

from kiln.errors import KilnError
from kiln.runtime.executor import Executor, InputError
from kiln.runtime.plan import AtenStep, Buffer, Constant, Operand, Output, Plan, Symbol

WHOLE = Output(Operand(3))


def inputs(rows, cols):
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def expected(x):
    return (x[0] + x[1]) + x[1]


def dynamic(chain_plan, **changes):
    symbols = [Symbol("s0", "size", 0, 0), Symbol("s1", "size", 0, 1)]
    return chain_plan("s0", "s1", symbols, outputs=[WHOLE], **changes)


def test_static(chain_plan):
    executor = Executor(chain_plan(3, 5, outputs=[WHOLE], offsets={2: 0}))
    for _ in range(3):
        x = inputs(3, 5)
        (out,) = executor(x)
        assert torch.equal(out, expected(x))
        assert out.stride() == (5, 1)


def test_outputs_are_fresh(chain_plan):
    executor = Executor(chain_plan(3, 5, outputs=[WHOLE]))
    x = inputs(3, 5)
    first = executor(x)[0]
    kept = first.clone()
    executor([torch.zeros(3, 5), torch.zeros(3, 5)])
    assert torch.equal(first, kept)


@pytest.mark.parametrize("threads", [1, 2])
def test_dynamic_sizes(chain_plan, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        executor = Executor(dynamic(chain_plan))
        for rows, cols in [(2, 3), (7, 1), (0, 4), (300, 500), (2, 3), (1, 1), (4, 0)]:
            x = inputs(rows, cols)
            assert torch.equal(executor(x)[0], expected(x))
    finally:
        torch.set_num_threads(before)


def test_thread_count_follows_torch(chain_plan):
    executor = Executor(dynamic(chain_plan))
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            x = inputs(500, 500)
            assert torch.equal(executor(x)[0], expected(x))
    finally:
        torch.set_num_threads(before)
    assert len(executor._bound) == 3


def test_input_symbols_views_and_sizes(chain_plan):
    plan = chain_plan("s0", 4, [Symbol("s27", "input", 2), Symbol("Max(1, s27)", "derived", expr="Max(1, s27)")])
    plan.num_inputs = 3
    plan.outputs = [
        Output(Operand(3, (4, "s0"), (1, 4), 0)),
        Output(Operand(0, ("s0",), (4,), 3)),
        Output(value="s1 * 2"),
        Output(Operand(0)),
    ]
    x = inputs(5, 4)
    transposed, column, size, same = Executor(plan)([*x, 5])
    assert torch.equal(transposed, expected(x).t()) and transposed.stride() == (1, 4)
    assert torch.equal(column, x[0][:, 3]) and column.data_ptr() == x[0][:, 3].data_ptr()
    assert size == 10 and same is x[0]
    assert Executor(plan)([*inputs(0, 4), 0])[2] == 2


def test_view_of_an_input_with_an_offset(chain_plan):
    plan = chain_plan(2, 3, outputs=[Output(Operand(0, (3,), (1,), 3))])
    base = torch.arange(12.0).reshape(4, 3)[1:3]
    (row,) = Executor(plan)([base, base])
    assert torch.equal(row, base[1]) and row.storage_offset() == 6


def test_concurrent_calls(chain_plan):
    executor = Executor(dynamic(chain_plan))
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for i in range(60):
            x = [torch.randn(20 + seed, 30 + i % 3, generator=generator) for _ in range(2)]
            if not torch.equal(executor(x)[0], expected(x)):
                failures.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert 1 <= len(executor._free) <= 6


def test_reentrant(chain_plan):
    """A call made while another one runs (from an ATen step) has a state and a workspace of its own."""
    depth = []
    with torch.library._scoped_library("kiln_test", "FRAGMENT") as library:
        library.define("again(Tensor x) -> Tensor")

        def again(x):
            depth.append(len(depth))
            if len(depth) < 3:
                executor([torch.zeros(3, 5), torch.zeros(3, 5)])
            return x * 2

        library.impl("again", again, "CPU")
        plan = chain_plan(3, 5)
        # Between the launches, so that the second one reads the workspace after the inner call.
        step = AtenStep("kiln_test.again.default", '[{"operand": 0}]', "{}", (Operand(0),), (), (4,))
        plan.buffers.append(Buffer("aten", "float32", (3, 5), (5, 1), 60))
        plan.steps.insert(1, step)
        plan.outputs = [WHOLE, Output(Operand(4))]
        executor = Executor(plan)
        x = inputs(3, 5)
        out, doubled = executor(x)
    assert torch.equal(out, expected(x)) and torch.equal(doubled, x[0] * 2)
    assert len(depth) == 3 and len(executor._free) == 3


def aten_plan(chain_plan, op, strides=(5, 1), **fields):
    plan = chain_plan(3, 5)
    plan.steps.insert(1, AtenStep(op, '[{"operand": 0}]', "{}", (Operand(3),), (), (4,), **fields))
    plan.buffers.append(Buffer("aten", "float32", (3, 5), strides, 60))
    return plan


def test_aten_errors_are_pytorchs(chain_plan):
    plan = aten_plan(chain_plan, "aten.inverse.default")
    plan.outputs = [Output(Operand(4))]
    with pytest.raises(RuntimeError, match="batches of square matrices"):
        Executor(plan)(inputs(3, 5))


def test_aten_result_gets_the_assumed_strides(chain_plan):
    plan = chain_plan(3, 5)
    step = AtenStep("aten.clone.default", '[{"operand": 0}]', "{}", (Operand(3, (5, 3), (1, 5), 0),), (), (4,))
    plan.steps.append(step)
    plan.buffers.append(Buffer("aten", "float32", (5, 3), (3, 1), 60))
    plan.outputs = [Output(Operand(4))]
    x = inputs(3, 5)
    (out,) = Executor(plan)(x)
    assert out.stride() == (3, 1) and torch.equal(out, expected(x).t())


def test_sizes_known_only_at_run_time():
    """nonzero makes a symbol; the step after it and the outputs use it."""
    nonzero = AtenStep("aten.nonzero.default", '[{"operand": 0}]', "{}", (Operand(0),), (), (1,), ((1, 0, 0),))
    ones = AtenStep("aten.new_ones.default", '[{"operand": 0}, [{"sym": 0}]]', "{}", (Operand(0),), ("s1",), (2,),
                    epoch=1)  # fmt: skip
    plan = Plan(
        "nonzero",
        1,
        symbols=[Symbol("s0", "size", 0, 0), Symbol("u0", "aten", input=0)],
        buffers=[
            Buffer("input", "float32", ("s0",), (1,), "s0 * 4", 0),
            Buffer("aten", "int64", ("s1", 1), (1, 1), "s1 * 8", epoch=1),
            Buffer("aten", "float32", ("s1",), (1,), "s1 * 4", epoch=1),
        ],
        steps=[nonzero, ones],
        outputs=[Output(Operand(1)), Output(Operand(2)), Output(value="s1 + s0")],
    )
    executor = Executor(plan)
    for x in (torch.tensor([0.0, 1, 0, 2]), torch.zeros(3), torch.ones(5)):
        where, ones_, total = executor([x])
        assert torch.equal(where, x.nonzero())
        assert ones_.shape == (len(where),) and total == len(where) + len(x)


def test_constants():
    plan = Plan(
        "constants",
        0,
        buffers=[Buffer("constant", "float32", (2,), (1,), 8, 0), Buffer("constant", "bool", (3,), (1,), 3, 1)],
        constants=[Constant("weight"), Constant("", "bool", (3,), 0)],
        blobs=[b"\1\0\1"],
        outputs=[Output(Operand(0)), Output(Operand(1))],
    )
    weight = torch.randn(2)
    given, embedded = Executor(plan, {"weight": weight})([])
    assert given.data_ptr() == weight.data_ptr()
    assert torch.equal(embedded, torch.tensor([True, False, True]))
    with pytest.raises(KilnError, match="'weight'"):
        Executor(plan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.double(), "expected float32"),
        (lambda x: x.t().contiguous(), "compiled for shape"),
        (lambda x: torch.randn(5, 3).t(), "compiled for strides"),
        (lambda x: 3, "expected a tensor"),
    ],
)
def test_wrong_inputs(chain_plan, change, message):
    executor = Executor(chain_plan(3, 5, outputs=[WHOLE]), check=True)
    x = inputs(3, 5)
    executor(x)
    with pytest.raises(InputError, match=message):
        executor([x[0], change(x[1])])


def test_accepts_misaligned_and_odd_unit_strides(chain_plan):
    executor = Executor(chain_plan(1, 5, outputs=[WHOLE]))
    storage = torch.randn(64)
    x = [storage[3:8].as_strided((1, 5), (77, 1)), storage[11:16].as_strided((1, 5), (5, 1))]
    assert torch.equal(executor(x)[0], expected(x))


def test_serialised_plan_runs(chain_plan):
    plan = Plan.from_bytes(dynamic(chain_plan).to_bytes())
    x = inputs(4, 6)
    assert torch.equal(Executor(plan)(x)[0], expected(x))


def test_code_is_unloaded_with_the_executor(chain_plan):
    executor = Executor(chain_plan(3, 5, outputs=[WHOLE]))
    code = weakref.ref(executor._code)
    executor(inputs(3, 5))
    del executor
    gc.collect()
    assert code() is None


def test_bindings_are_bounded(chain_plan, monkeypatch):
    monkeypatch.setattr("kiln.runtime.executor._MAX_BINDINGS", 4)
    executor = Executor(dynamic(chain_plan))
    for n in range(1, 12):
        x = inputs(n, 2)
        assert torch.equal(executor(x)[0], expected(x))
    assert len(executor._bound) == 4
