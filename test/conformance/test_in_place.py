# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Functions that mutate their arguments: same results, same arguments afterwards, and no copy where none is needed."""

import pytest
import torch

import kiln


def add_scaled(a, b):
    a.add_(1)
    b.copy_(a * 2)


def momentum(a, b):
    b.mul_(0.9).add_(a)
    a.sub_(b * 0.1)


def kept(a, b):
    y = a + 1
    a.copy_(y)
    return y, b * y


def swap(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)


def shifted(a, b):
    c = a * 2
    a.copy_(c.flip(0) + a)
    return c.relu() + b


def part(a, b):
    a[3] = a[4] * 2
    return a[5] + b[0]


def read_later(a, b):
    c = torch.mm(a, b.t())
    a.add_(1)
    return torch.mm(c, c).relu() + c, torch.softmax(a, -1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [add_scaled, momentum, kept, swap, shifted, part, read_later])
def test_same_as_eager(function, dynamic):
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(40, 33, generator=generator) for _ in range(2)]
    mine, theirs = [t.clone() for t in given], [t.clone() for t in given]
    compiled = torch.compile(function, backend=kiln.backend, options={"fallback": False}, dynamic=dynamic)
    with torch.no_grad():
        for _ in range(2):
            result, expected = compiled(*mine), function(*theirs)
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
            if isinstance(result, tuple):
                storages = [t.untyped_storage().data_ptr() for t in (*result, *mine)]
                assert len(set(storages)) == len(storages)


def test_a_copy_of_sizes_that_a_guard_makes_equal():
    """The source has three rows, the destination an expression's worth: a guard of Dynamo's says that it is three."""

    def f(x, source):
        made = torch.cat([x[:1], x[::2][: x.shape[0] // 2] * 2, x[: x.shape[0] // 2]])
        return made.copy_(source)

    x, source = torch.randn(3, 4), torch.randn(3, 4)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.reset()
    found = torch.compile(f, backend=kiln.backend, fullgraph=True, options={"fallback": False})(x, source)
    assert torch.equal(found, source)
