# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Arguments written to kiln.aten and read back at run time: the call gives what eager gives."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir
from views_harness import convert, run_calls

from kiln.dialects import kiln
from kiln.runtime.aten_call import AtenCallError, affine_to_python, decode_call, resolve_op

F = torch.nn.functional


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, SQUARE = noise(4, 6), noise(4, 4)

# Functions whose graph is all ATen: each has an argument of a kind of its own.
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "two results, ints and bools": (lambda x: torch.sort(x, 1, True), (X,)),
    "a list of optional tensors": (
        lambda x, i, v: torch.ops.aten.index_put.default(x, [None, i], v),
        (X, torch.tensor([1, 3]), noise(4, 2)),
    ),
    "a string": (lambda x: torch.searchsorted(x.sort()[0], x, side="right"), (X,)),
    "sizes": (
        lambda x, i: torch.ops.aten.max_unpool2d(x, i, [x.shape[2], 6]),
        (X[None, None], torch.arange(24).view(1, 1, 4, 6)),
    ),
    "a number": (lambda x: torch.ops.aten.bernoulli.p(x, 1.0), (X,)),
    "infinity": (lambda x: torch.ops.aten.histc(x, 5, -2, 2), (X,)),
    "a dtype": (lambda x: torch.linalg.svdvals(x), (X,)),
    "a list of tensors": (lambda x: torch.block_diag(x, x), (X,)),
    "several sizes of results": (lambda x: torch.linalg.slogdet(x), (SQUARE,)),
    "complex": (lambda x: torch.view_as_real(torch.fft.rfft(x)), (X,)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_round_trip(name: str, dynamic: bool, context: ir.Context) -> None:
    fn, inputs = CASES[name]
    imported, _ = convert(fn, inputs, context, dynamic)
    names = [kiln.name_of(op.operation) for op in imported.module.body.operations[0].regions[0].blocks[0].operations]
    assert set(names) == {"kiln.aten", "func.return"}
    expected = fn(*inputs)
    with context, ir.Location.unknown():
        results = run_calls(imported, inputs)
    for got, want in zip(results, expected if isinstance(expected, tuple) else [expected], strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_random_and_mutating_ops_are_not_pure(context: ir.Context) -> None:
    imported, _ = convert(lambda x: x + torch.rand_like(x), (X,), context)
    assert "pure = false" in str(imported.module)


def test_custom_op(context: ir.Context) -> None:
    @torch.library.custom_op("kiln_test::scale_all", mutates_args=())
    def scale_all(xs: list[torch.Tensor], factor: float, name: str | None = None) -> torch.Tensor:
        return torch.stack([x * factor for x in xs])

    @scale_all.register_fake
    def fake(xs: list[torch.Tensor], factor: float, name: str | None = None) -> torch.Tensor:
        return xs[0].new_empty((len(xs), *xs[0].shape))

    imported, _ = convert(lambda x, y: scale_all([x, y], math.pi, "n"), (X, X), context)
    with context, ir.Location.unknown():
        found = run_calls(imported, (X, X))[0]
    torch.testing.assert_close(found, scale_all([X, X], math.pi))


def test_unsigned_operands_are_named(context: ir.Context) -> None:
    imported, _ = convert(lambda x: x.sort()[0], (torch.arange(6, dtype=torch.uint8),), context)
    assert 'operand_dtypes = ["uint8"]' in str(imported.module)


def test_none_results_are_left_out() -> None:
    call = decode_call(
        "aten.convolution_backward.default",
        '[{"operand": 0}, {"operand": 1}, {"operand": 2}, [0], [1], [0], [1], false, [0], 1, [true, false, false]]',
    )
    x, weight = noise(1, 2, 5), noise(3, 2, 3)
    assert [tuple(t.shape) for t in call([noise(1, 3, 3), x, weight], [])] == [(1, 2, 5)]


@pytest.mark.parametrize(
    ("node", "value"),
    [
        ('{"float": "-inf"}', -math.inf),
        ('{"sym": 1}', 7),
        ('{"expr": "s0 * 2 + s1 ceildiv 2"}', 10),
        ('{"expr": "-s0 + (s1 floordiv 2) mod 2"}', -2),
        ('{"div": [{"sym": 0}, 4]}', 0.75),
    ],
)
def test_scalar_arguments(node: str, value: float) -> None:
    call = decode_call("aten.full.default", f"[[], {node}]", '{"dtype": {"dtype": "float64"}}')
    assert call([], [3, 7])[0].item() == value


@pytest.mark.parametrize("strides", [(60, 5, 1), (0, 5, 1), (1, 1, 0), (0, 0, 0), (3, 1, 7), (7, 2, 1)], ids=str)
def test_operands_with_strides(strides: tuple[int, int, int]) -> None:
    """An operand is given to an op with the strides that PyTorch traced, also where elements share a place: as those of
    a mask that is expanded over heads, or of windows that overlap."""
    x = torch.empty(2, 4, 5)
    expected = torch.randn(200).as_strided(x.shape, strides)
    x.copy_(expected)
    arguments = f'[{{"operand": 0, "strides": {list(strides)}}}]'
    (found,) = decode_call("aten.view_as_real.default", arguments)([x.to(torch.complex64)], [])
    assert found.stride() == tuple(2 * n for n in strides) + (1,)
    assert torch.equal(found[..., 0], expected)


def test_other_keywords() -> None:
    kwargs = '{"dtype": {"dtype": "int8"}, "device": {"device": "cpu"}, "layout": {"layout": "strided"}}'
    assert decode_call("aten.zeros.default", "[[2, 3]]", kwargs)([], [])[0].dtype == torch.int8
    cloned = decode_call(
        "aten.clone.default", '[{"operand": 0}]', '{"memory_format": {"memory_format": "channels_last"}}'
    )
    assert cloned([noise(1, 2, 3, 4)], [])[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("text", ["s0 +", "s0 $ 2", "(s0", "s0 s1", "x0", ""])
def test_bad_expressions(text: str) -> None:
    with pytest.raises(AtenCallError, match="affine"):
        affine_to_python(text)


def test_unknown_operator() -> None:
    with pytest.raises(AtenCallError, match="aten.no_such_op.default"):
        resolve_op("aten.no_such_op.default")


def test_unknown_argument_kind() -> None:
    with pytest.raises(AtenCallError, match="unknown argument kind 'tensor'"):
        decode_call("aten.relu.default", '[{"tensor": 0}]')
