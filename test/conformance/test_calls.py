# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Arguments and outputs of every kind reach and leave a compiled graph as in eager."""

import sys
import threading

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def count_graphs(fn, **options):
    """A compiled ``fn``, and a list that grows by one per graph compiled."""
    from kiln.frontend.backend import kiln as backend

    graphs = []

    def counting(gm, inputs):
        graphs.append(gm)
        return backend(gm, inputs)

    return torch.compile(fn, backend=counting, fullgraph=True, **options), graphs


def test_module(check):
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 3))
    with torch.no_grad():
        check(model, torch.randn(5, 8))


def test_none_and_number_outputs(check):
    with torch.no_grad():
        check(lambda x, n: (x + n, None, 3, 2.5, "name", n * 2), torch.randn(4), 7)


def test_none_argument(check):
    with torch.no_grad():
        check(lambda x, bias: x * 2 if bias is None else x + bias, torch.randn(4), None)


def test_float_argument(check):
    with torch.no_grad():
        compiled = check(lambda x, a: x * a, torch.randn(4), 1.5)
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, 2.5), x * 2.5)


def test_int_argument_varies():
    compiled, graphs = count_graphs(lambda x, n: x[:n] * n)
    x = torch.randn(10)
    with torch.no_grad():
        for n in (2, 3, 5, 7):
            torch.testing.assert_close(compiled(x, n), x[:n] * n)
    assert len(graphs) <= 2


def test_symint_output(check):
    with torch.no_grad():
        check(lambda x: (x.relu(), x.shape[0] * 2 + 1, x.numel()), torch.randn(3, 4), dynamic=True)


def test_dynamic_compiles_once():
    compiled, graphs = count_graphs(lambda x, w: F.relu(x @ w).sum(-1), dynamic=True)
    w = torch.randn(6, 9)
    with torch.no_grad():
        for rows in (2, 3, 5, 17, 64):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(compiled(x, w), F.relu(x @ w).sum(-1), rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1


def test_constant_outputs(check):
    with torch.no_grad():
        check(lambda x: (torch.ones(3), torch.arange(4), x + 1, torch.tensor([1.0, 2.0, 3.0])), torch.randn(2))


def test_captured_constant_tensor(check):
    table = torch.randn(4)
    with torch.no_grad():
        check(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]) * table, torch.randn(4))


def test_empty_graph(check):
    with torch.no_grad():
        check(lambda x: x, torch.randn(3))
        check(lambda x: (x, x), torch.randn(3))
        check(lambda x, y: (y, x), torch.randn(3), torch.randn(2))


def test_duplicated_outputs(check):
    def fn(x):
        y = x + 1
        return y, y, y * 2

    with torch.no_grad():
        check(fn, torch.randn(3))


def test_duplicated_inputs(check):
    x = torch.randn(3)
    with torch.no_grad():
        check(lambda a, b: (a + b, a * b), x, x)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0), (2, 0, 5)])
def test_zero_size(check, shape):
    with torch.no_grad():
        check(
            lambda x: (x + 1, x.sum(), x.sum(0), torch.cat([x, x]), x.relu().t() if x.dim() == 2 else x),
            torch.randn(shape),
        )


def test_zero_size_dynamic():
    compiled = torch.compile(lambda x: (x * 2, x.sum(-1)), backend="kiln", dynamic=True)
    with torch.no_grad():
        for shape in [(3, 4), (5, 6), (0, 4), (3, 0)]:
            x = torch.randn(shape)
            ours, sums = compiled(x)
            assert ours.stride() == (x * 2).stride() and ours.shape == x.shape
            torch.testing.assert_close(sums, x.sum(-1))


def test_zero_dim(check):
    with torch.no_grad():
        check(
            lambda x, y: (x + y, x.sin(), x.item() if False else x.clone(), (x * y).sum()),
            torch.tensor(2.0),
            torch.tensor(3.0),
        )


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DTYPES += [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(check, dtype):
    x = torch.randint(0, 2, (5, 7)).to(dtype)
    y = torch.randint(0, 2, (5, 7)).to(dtype)
    with torch.no_grad():
        check(lambda a, b: (a + b, a * b, torch.where(a > b, a, b), a.to(torch.float32), a == b, a.sum()), x, y)


def test_complex_runs(check):
    with torch.no_grad():
        check(lambda x: (torch.view_as_real(x * x.conj()), x.abs()), torch.randn(3, 4, dtype=torch.complex64))


def test_several_threads():
    compiled = torch.compile(lambda x: F.softmax(x * 2, -1) + x.sum(), backend="kiln")
    inputs = [torch.randn(16, 33) for _ in range(4)]
    with torch.no_grad():
        compiled(inputs[0])
    errors = []

    def work(x):
        try:
            for _ in range(20):
                with torch.no_grad():
                    torch.testing.assert_close(compiled(x), F.softmax(x * 2, -1) + x.sum(), rtol=1e-4, atol=1e-4)
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_reentrant():
    """A compiled function called from within another compiled function's custom op."""
    inner = torch.compile(lambda x: x.sin() * 2, backend="kiln")

    @torch.library.custom_op("kiln_test::reenter", mutates_args=())
    def reenter(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    reenter.register_fake(lambda x: torch.empty_like(x))
    outer = torch.compile(lambda x: reenter(x + 1) * 3, backend="kiln")
    x = torch.randn(8)
    with torch.no_grad():
        torch.testing.assert_close(outer(x), (x + 1).sin() * 6)


def test_flex_attention(check):
    """Its score function runs under vmap, inside of the call."""
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = torch.randn(3, 1, 2, 16, 8)
    with torch.no_grad():
        check(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1), q, k, v)


def test_backward_with_a_checked_solver():
    """The check of a solver is an effect: its token is an output that AOTAutograd does not count."""

    def fn(a, b):
        return torch.linalg.tensorsolve(a, b).sum()

    a, b = torch.randn(2, 3, 6, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    actual = torch.autograd.grad(torch.compile(fn, backend="kiln")(a, b), (a, b))
    for ours, theirs in zip(actual, torch.autograd.grad(fn(a, b), (a, b)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_long_chain(check):
    """One kernel of more ops than Python's recursion limit has frames for."""
    limit = sys.getrecursionlimit()

    def fn(x):
        for i in range(200):
            x = x * 1.01 + 0.01 * i
        return x

    with torch.no_grad():
        check(fn, torch.randn(33))
    assert sys.getrecursionlimit() == limit


def test_boxed_call_empties_the_list():
    from kiln.frontend.calls.aten_executor import AtenExecutor

    gm = torch.fx.symbolic_trace(lambda x: (x + 1,))
    inputs = [torch.ones(2)]
    assert torch.equal(AtenExecutor(gm)(inputs)[0], torch.full((2,), 2.0))
    assert inputs == []


def test_results_of_another_type_than_pytorch_said():
    """The trace has statistics of f32 where ATen returns those of the parameters' type."""

    def fn(x, w, b, mean, var):
        return torch.ops.aten._batch_norm_with_update_functional(x, w, b, mean, var, 0.1, 1e-5)

    x, w, b = (torch.randn(*shape, dtype=torch.bfloat16) for shape in ((3, 5, 7), (5,), (5,)))
    statistics = torch.zeros(5, dtype=torch.bfloat16), torch.ones(5, dtype=torch.bfloat16)
    with torch.no_grad():
        found = torch.compile(fn, backend="kiln")(x, w, b, *statistics)
        for ours, theirs in zip(found, fn(x, w, b, *statistics), strict=True):
            torch.testing.assert_close(ours, theirs, check_dtype=False)


def test_backward_of_lazily_conjugated_and_negated_tensors():
    """Gradients that are handed in, and tensors that the forward graph saved."""

    def fn(m, a, b):
        return torch.addr(m, a, b, beta=0.5 + 1j, alpha=1.5j)

    m, a, b = (torch.randn(*shape, dtype=torch.complex64, requires_grad=True) for shape in ((4, 3), (4,), (3,)))
    gradient = torch.randn(4, 3, dtype=torch.complex64).conj()
    found = torch.autograd.grad(torch.compile(fn, backend="kiln")(m, a, b), (m, a, b), gradient)
    for ours, theirs in zip(found, torch.autograd.grad(fn(m, a, b), (m, a, b), gradient), strict=True):
        torch.testing.assert_close(ours, theirs)

    x = torch.randn(5, requires_grad=True)
    negated = torch.randn(5, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    (ours,) = torch.autograd.grad(torch.compile(torch.sin, backend="kiln")(x), x, negated)
    torch.testing.assert_close(ours, x.detach().cos() * negated)


def test_inputs_that_are_lazily_conjugated_or_negated():
    """Views that are not plain memory are resolved before a call, whatever their strides; writes go to the original."""
    compiled = torch.compile(lambda x: x * 2 + x.sum(), backend="kiln", options={"fallback": False})
    z = torch.randn(4, 6, dtype=torch.complex64)
    views = [z, z.conj(), z[::2, 1:4].conj(), z.t().conj(), z[:1].conj().expand(3, 6), z.conj().imag[1:, ::2], z.imag]
    for x in [*views, torch.randn(0, 3, dtype=torch.complex64).conj()]:
        torch.testing.assert_close(compiled(x), x * 2 + x.sum())

    def mutate(x):
        x.mul_(2)
        return x + 1

    compiled = torch.compile(mutate, backend="kiln", options={"fallback": False})
    for view in (torch.conj, lambda x: x.conj().imag):
        ours, theirs = z.clone(), z.clone()
        torch.testing.assert_close(compiled(view(ours)), mutate(view(theirs)))
        torch.testing.assert_close(ours, theirs)


def test_backward_with_a_conjugated_input():
    x = torch.randn(6, 6, dtype=torch.complex64, requires_grad=True)

    def fn(x):
        return (x * x.conj() + x.exp()).real.sum()

    (ours,) = torch.autograd.grad(torch.compile(fn, backend="kiln", options={"fallback": False})(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(fn(x), x)[0])


@pytest.mark.parametrize("shape", [(0, 70), (7, 0), (0, 3, 2)])
def test_flipped_empty_tensors(shape):
    """The first element of a flipped dim would lie before the memory."""

    def fn(x):
        y = x * 0.5 + 1
        return y.flip(0), y.flip(-1), y[:0].flip(0)

    x = torch.randn(shape)
    for ours, theirs in zip(torch.compile(fn, backend="kiln")(x), fn(x), strict=True):
        assert (ours.shape, ours.stride()) == (theirs.shape, theirs.stride())


def test_training_with_a_number_that_changes():
    """A number that is no tensor's size is an input of the forward graph, and one of its outputs."""
    w = torch.randn(4, 4, requires_grad=True)

    def fn(x, n):
        return (x @ w) * n

    compiled = torch.compile(fn, backend="kiln", options={"fallback": False})
    for n in (3, 4, 5):
        x = torch.randn(4, 4)
        torch.testing.assert_close(compiled(x, n), fn(x, n))
        torch.testing.assert_close(torch.autograd.grad(compiled(x, n).sum(), w), torch.autograd.grad(fn(x, n).sum(), w))


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_composed_sizes_that_a_guard_fixes_at_one(target):
    """The second half of three columns has one, and is broadcast: its size is an expression over the number of columns."""

    def halves(x, w):
        a, b = torch.chunk(x @ w.T, 2, -1)
        return a * torch.sigmoid(b)

    run = torch.compile(halves, backend="kiln", dynamic=True, options={"fallback": False, "target": target})
    for columns in (3, 8, 3, 2):
        x, w = torch.randn(4, 25), torch.randn(columns, 25)
        torch.testing.assert_close(run(x, w), halves(x, w))


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_sizes_of_a_convolution_that_are_one(target):
    """A guard fixes `(h - k) // 2 + 1` at 1, since the result is broadcast; neither the image's nor the window's type
    tells."""

    def scaled(x, w, b, y):
        z = F.conv2d(x, w, b, stride=2)
        return z * y, F.avg_pool2d(z, 1)

    run = torch.compile(scaled, backend="kiln", dynamic=True, options={"fallback": False, "target": target})
    for size in (4, 3):
        x, w, b, y = torch.randn(2, 3, size, size), torch.randn(4, 3, 3, 3), torch.randn(4), torch.randn(2, 4, 5, 6)
        for found, expected in zip(run(x, w, b, y), scaled(x, w, b, y), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
