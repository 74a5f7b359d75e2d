# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that a user registers: numbers and lists among arguments and results, mutation, sizes that data decides."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def test_custom_op(check):
    @torch.library.custom_op("kiln_test::scaled_cube", mutates_args=())
    def scaled_cube(x: torch.Tensor, scale: float, names: list[int]) -> torch.Tensor:
        return x**3 * scale + sum(names)

    scaled_cube.register_fake(lambda x, scale, names: torch.empty_like(x))
    with torch.no_grad():
        check(lambda x: scaled_cube(x + 1, 2.0, [1, 2]).relu(), torch.randn(4, 5))


def test_custom_op_mutates(check):
    @torch.library.custom_op("kiln_test::fill_with", mutates_args=("out",))
    def fill_with(out: torch.Tensor, value: float) -> None:
        out.fill_(value)

    def fn(x):
        y = x + 1
        fill_with(y, 3.0)
        return y * 2, x

    with torch.no_grad():
        check(fn, torch.randn(4))


def test_custom_op_with_a_list_among_its_results(check):
    @torch.library.custom_op("kiln_test::scaled_and_shifted", mutates_args=())
    def scaled_and_shifted(xs: list[torch.Tensor], scale: float) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return xs[0] * scale, [x + 1 for x in xs]

    scaled_and_shifted.register_fake(lambda xs, scale: (torch.empty_like(xs[0]), [torch.empty_like(x) for x in xs]))

    def fn(x, y):
        scaled, shifted = scaled_and_shifted([x * 2, y], 1.5)
        return scaled.exp(), shifted[1] * 3, shifted

    with torch.no_grad():
        check(fn, torch.randn(4), torch.randn(2, 3))


@torch.library.custom_op("kiln_test::counted", mutates_args=())
def counted(x: torch.Tensor) -> tuple[torch.Tensor, int, torch.Tensor]:
    return x * 2, x.shape[0] * x.shape[1], x + 1


@counted.register_fake
def _(x):
    return torch.empty_like(x), x.shape[0] * x.shape[1], torch.empty_like(x)


@torch.library.custom_op("kiln_test::found", mutates_args=())
def found(x: torch.Tensor) -> tuple[int, torch.Tensor, int]:
    return x.shape[0], x[x > 0], int((x > 0).sum())


@found.register_fake
def _(x):
    count = torch.library.get_ctx().new_dynamic_size()
    return x.shape[0], x.new_empty(count), count


@pytest.mark.parametrize("used", [False, True])
def test_integer_results_between_tensors(check, used):
    """Sizes that inputs decide; nothing may read them."""

    def model(x):
        a, n, b = counted(x)
        return (torch.sin(a) + b) * (n if used else 1)

    with torch.no_grad():
        for shape in ((3, 5), (7, 2)):
            check(model, torch.randn(shape), dynamic=True)


def test_integer_results_of_both_kinds(check):
    """One that inputs decide, one that data decides."""

    def model(x):
        rows, values, count = found(x)
        return torch.exp(values) * count + rows

    with torch.no_grad():
        for rows in (9, 17):
            check(model, torch.randn(rows), dynamic=True)
