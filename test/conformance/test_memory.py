# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides, aliases, views and mutation are those of eager."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 6).t(),
        lambda: torch.randn(4, 6)[:, ::2],
        lambda: torch.randn(4, 1).expand(4, 6),
        lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        lambda: torch.randn(20)[1:17].view(4, 4),
        lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
        lambda: torch.randn(12).as_strided((3, 4), (2, 1)),
        lambda: torch.randn(8, 8).diagonal(),
    ],
    ids=["transposed", "sliced", "expanded", "channels_last", "misaligned", "permuted", "overlapping", "diagonal"],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_input_strides(check, make, dynamic):
    with torch.no_grad():
        check(lambda x: (x + 1, x * x, x.sum(), x.relu().contiguous(), x.clone()), make(), dynamic=dynamic)


def test_output_strides(check):
    def fn(x):
        return x.t() + 1, x.t().contiguous(), x.unsqueeze(1).expand(4, 3, 6) + 0, torch.empty_like(x.t()).fill_(2)

    with torch.no_grad():
        check(fn, torch.randn(4, 6))


def test_channels_last_conv(check):
    conv = torch.nn.Conv2d(3, 8, 3, padding=1)
    with torch.no_grad():
        check(lambda x: conv(x).relu(), torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last))


def test_view_outputs_alias_the_input():
    compiled = torch.compile(lambda x: (x.t(), x[1:], x.view(-1), x + 1), backend="kiln", fullgraph=True)
    x = torch.randn(4, 6)
    with torch.no_grad():
        t, tail, flat, _ = compiled(x)
        x.add_(1)
        assert t._base is x and torch.equal(t, x.t())
        assert torch.equal(tail, x[1:]) and torch.equal(flat, x.view(-1))


def test_outputs_that_alias_each_other():
    def fn(x):
        y = x + 1
        return y, y.t(), y[0]

    compiled = torch.compile(fn, backend="kiln", fullgraph=True)
    with torch.no_grad():
        y, t, row = compiled(torch.randn(3, 4))
        y.fill_(5)
        assert torch.equal(t, y.t()) and torch.equal(row, y[0])


def test_outputs_do_not_share_memory_by_accident():
    compiled = torch.compile(lambda x: (x * 2, (x * 3).sin(), x + 0), backend="kiln", fullgraph=True)
    x = torch.randn(64)
    with torch.no_grad():
        first = compiled(x)
        kept = [out.clone() for out in first]
        compiled(torch.randn(64))
        for out, copy in zip(first, kept, strict=True):
            assert torch.equal(out, copy)
        assert len({out.untyped_storage().data_ptr() for out in (*first, x)}) == 4


def test_clone_is_new_memory():
    compiled = torch.compile(
        lambda x: (x.clone(), x.contiguous().clone().view(-1), x * 2), backend="kiln", fullgraph=True
    )
    x = torch.randn(4, 4)
    with torch.no_grad():
        outputs = compiled(x)
        assert len({out.untyped_storage().data_ptr() for out in (*outputs, x)}) == 4


def test_old_value_survives_mutation(check):
    def fn(x):
        old = x.clone()
        x.mul_(2)
        return old

    with torch.no_grad():
        check(fn, torch.randn(5))


def test_input_mutation(check):
    def fn(x, y):
        x.add_(y)
        z = x * 2
        x.mul_(3)
        return z + x

    x, y = torch.randn(4), torch.randn(4)
    copy = x.clone()
    with torch.no_grad():
        check(fn, x, y)
        fn(copy, y)
    torch.testing.assert_close(x, copy)


def test_mutation_of_a_view(check):
    def fn(x):
        x[1:3].fill_(7.0)
        x[:, 0] += 1
        return x.sum()

    x = torch.randn(4, 4)
    copy = x.clone()
    with torch.no_grad():
        check(fn, x)
        fn(copy)
    torch.testing.assert_close(x, copy)


def test_mutated_input_is_returned(check):
    def fn(x):
        x.mul_(2)
        return x, x + 1

    x = torch.randn(3)
    compiled = torch.compile(fn, backend="kiln", fullgraph=True)
    with torch.no_grad():
        out, _ = compiled(x)
    assert out is x


def test_mutation_swaps_inputs():
    def fn(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)

    compiled = torch.compile(fn, backend="kiln", fullgraph=True)
    x, y = torch.zeros(5), torch.ones(5)
    with torch.no_grad():
        compiled(x, y)
    assert torch.equal(x, torch.ones(5)) and torch.equal(y, torch.zeros(5))


def test_mutation_with_gradients():
    def fn(x, buffer):
        buffer.add_(1)
        return (x * buffer).sum()

    compiled = torch.compile(fn, backend="kiln", fullgraph=True)
    x, buffer = torch.randn(4, requires_grad=True), torch.zeros(4)
    compiled(x, buffer).backward()
    assert torch.equal(buffer, torch.ones(4)) and torch.equal(x.grad, torch.ones(4))


@pytest.mark.parametrize("keep", [False, True])
def test_mutation_flag(keep):
    """Both ways of handing mutations to a compiler: written back outside of the graph, or a copy_ inside it."""
    from torch._dynamo.backends.common import aot_autograd

    from kiln.frontend.compile import compile_graph
    from kiln.frontend.options import Options

    def compiler(gm, inputs):
        return compile_graph(gm, Options(), "inference")

    backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=keep)

    def fn(x, y):
        x.add_(y)
        return x * 2

    x, y = torch.ones(3), torch.ones(3)
    with torch.no_grad():
        assert torch.equal(torch.compile(fn, backend=backend)(x, y), torch.full((3,), 4.0))
    assert torch.equal(x, torch.full((3,), 2.0))


def test_parameters_updated_between_calls():
    model = torch.nn.Linear(4, 4)
    compiled = torch.compile(model, backend="kiln")
    x = torch.randn(2, 4)
    with torch.no_grad():
        compiled(x)
        model.weight.mul_(2)
        model.bias.fill_(1)
        torch.testing.assert_close(compiled(x), model(x))


def test_buffer_update_in_forward():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps.add_(1)
            return x * self.steps

    model = Counter()
    compiled = torch.compile(model, backend="kiln")
    with torch.no_grad():
        for step in (1, 2, 3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(step)))


@pytest.mark.parametrize("copy", [lambda x: x.repeat_interleave(2, 0), lambda x: x.flip(0), lambda x: x.t().clone()])
def test_two_views_of_a_copy_with_sizes_known_at_run_time(copy):
    """AOTAutograd takes the second one's place in the first one's memory from the tensor that the graph returns."""

    def views(x):
        copied = copy(x)
        return copied, copied[3:5]

    x = torch.randn(7, 9, requires_grad=True)
    copied, part = torch.compile(views, backend="kiln", dynamic=True)(x)
    wanted = views(x)
    assert torch.equal(copied, wanted[0]) and torch.equal(part, wanted[1])
    assert part.storage_offset() == wanted[1].storage_offset()
    assert part.untyped_storage().data_ptr() == copied.untyped_storage().data_ptr()
