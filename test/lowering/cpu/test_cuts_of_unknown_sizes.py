# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops that are cut at borders known at run time only: the same code for sizes of all kinds, against eager."""

import functools
from collections.abc import Callable, Sequence

import pytest
import torch
from kernel_harness import run_fusion
from torch.nn import functional as F

import kiln
from kiln.lowering import paths

Program = Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]

IMAGES = [(9, 40), (2, 3), (3, 70), (33, 2), (17, 64)]
LENGTHS = [(5, 40), (40, 5), (2, 2), (33, 64), (3, 100)]

PADS = {
    "reflect": ((1, 1, 1, 1), (1, 0, 0, 1)),
    "circular": ((1, 1, 1, 1), (2, 1, 0, 2)),
    "replicate": ((3, 1, 2, 5),),
    "constant": ((1, 2, 3, 4), (-1, 2, 1, -1)),
}


def _cat_of_slices(x: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.cat([x.narrow(dim, 2, x.shape[dim] - 2), y, x.narrow(dim, 0, 1)], dim)


CATS: dict[str, Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor | tuple[torch.Tensor, ...]]] = {
    "two": lambda x, y, dim: torch.cat([x * 2, y], dim),
    "in either order": lambda x, y, dim: torch.cat([x, y], dim) + torch.cat([y, x], dim) * 2,
    "slices": _cat_of_slices,
    "below a pad": lambda x, y, dim: F.pad(torch.cat([x, y], dim), (1, 2, 3, 4)),
    "several results": lambda x, y, dim: (torch.cat([x, y], dim), x * 3, torch.cat([y, x], dim)),
}

OTHERS: dict[str, Program] = {
    "roll": lambda x, y: torch.roll(x, (3, -2), (1, 0)),
    "reflected": lambda x, y: F.pad(torch.cat([x, y], 1)[None], (1, 1, 1, 1), "reflect").tanh(),
    "pads": lambda x, y: torch.cat([F.pad(v[None, None], (1, 1, 1, 1), "circular") for v in (x, y)], 3),
    "sums": lambda x, y: F.pad(torch.cat([x, y], 1)[None], (1, 1, 1, 1), "reflect").sum(-1),
    "sums of columns": lambda x, y: F.pad(torch.cat([x.t(), y.t()]), (0, 0, 1, 2)).sum(0),
    "transposed": lambda x, y: F.pad(torch.cat([x, y], 1).t()[None], (1, 1, 1, 1), "reflect"),
    "flat": lambda x, y: torch.cat([x.reshape(-1), y.reshape(-1)]),
    "repeated": lambda x, y: torch.cat([x.repeat_interleave(2, 1), y.flip(0)], 1),
}


def _check(program: Program, calls: Sequence[Sequence[torch.Tensor]], dims: Sequence[int]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=kiln.backend, options={"fallback": False})
    for arguments in calls:
        for x in arguments:
            for d in dims:
                torch._dynamo.maybe_mark_dynamic(x, d)
        expected, found = program(*arguments), compiled(*arguments)
        for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, expected)), strict=True):
            error = 1e-5 if a.dtype is torch.float32 else 2e-2
            torch.testing.assert_close(a, b, rtol=error, atol=error)


def _tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).mul(9).to(dtype)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("mode", PADS)
def test_pads(mode: str, dtype: torch.dtype, layout: torch.memory_format) -> None:
    if dtype is torch.int64 and mode in ("reflect", "replicate"):
        pytest.skip("ATen has no such pad of integers")
    for widths in PADS[mode]:
        pad = functools.partial(F.pad, pad=widths, mode=mode)
        images = [_tensor(2, 3, h, w, dtype=dtype).to(memory_format=layout) for h, w in IMAGES]
        _check(lambda x, pad=pad: pad(x + 1), [[x] for x in images], (2, 3))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("name", CATS)
def test_concatenations(name: str, dim: int, threads: int) -> None:
    shapes = [[[4, 6, 7][:dim] + [n] + [4, 6, 7][dim + 1 :] for n in pair] for pair in LENGTHS]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        _check(lambda x, y: CATS[name](x, y, dim), [[_tensor(*s) for s in pair] for pair in shapes], (dim,))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", OTHERS)
def test_other_programs(name: str) -> None:
    _check(OTHERS[name], [[_tensor(6, m), _tensor(6, n)] for m, n in LENGTHS], (1,))


def test_lanes_are_cut() -> None:
    paths.reset()
    x = torch.randn(4, 3, 64, 64)
    _check(lambda x: F.pad(x, (1, 1, 1, 1), "reflect"), [[x]], (2, 3))
    taken = paths.taken()
    assert taken.get("cpu loops: cut at concatenations")
    assert taken.get("cpu loops: lanes cut at unknown borders")


FUSION = """
func.func @main(%x: tensor<SHAPE>, %y: tensor<SHAPE>, %s0: index {kiln.symbol = "s0"}, %s1: index {kiln.symbol = "s1"})
    -> tensor<SHAPE> attributes {kiln.symbols = ["s0", "s1"]} {
  %r = "kiln.fusion"(%x, %y, %s0, %s1) ({
  ^bb0(%a: tensor<SHAPE>, %b: tensor<SHAPE>, %m: index, %n: index):
    %v = "kiln.view"(%a, %m, %n) {map = affine_map<(d0, d1)[s0, s1] -> (LAST)>,
        shape = affine_map<()[s0, s1] -> (SIZES0)>} : (tensor<SHAPE>, index, index) -> tensor<SHAPE>
    %c = "kiln.cat"(%v, %b, %m, %n) {dim = DIM : i64, shape = affine_map<()[s0, s1] -> (SIZES)>}
        : (tensor<SHAPE>, tensor<SHAPE>, index, index) -> tensor<SHAPE>
    "kiln.yield"(%c) : (tensor<SHAPE>) -> ()
  }) {kind = "pointwise", name = "cat", layouts = [affine_map<(d0, d1)[s0, s1] -> (ROW0)>,
      affine_map<(d0, d1)[s0, s1] -> (ROW1)>, affine_map<(d0, d1)[s0, s1] -> (ROW)>],
      shapes = [affine_map<()[s0, s1] -> (SIZES0)>, affine_map<()[s0, s1] -> (SIZES1)>]}
      : (tensor<SHAPE>, tensor<SHAPE>, index, index) -> tensor<SHAPE>
  return %r : tensor<SHAPE>
}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(3, 5), (0, 40), (40, 0), (1, 1)])
@pytest.mark.parametrize("dim", [0, 1])
def test_pieces_of_no_elements(dim: int, sizes: tuple[int, int], threads: int) -> None:
    """The last row or column of one operand, repeated, before the other: nothing is read where there is none."""
    shape, total = [64, 64], ["64", "64"]
    names = {"SHAPE": "?x64xf32" if dim == 0 else "64x?xf32", "LAST": "s0 - 1, d1" if dim == 0 else "d0, s0 - 1"}
    for key, size in (("0", "s0"), ("1", "s1"), ("", "s0 + s1")):
        total[dim] = size
        names |= {f"SIZES{key}": ", ".join(total), f"ROW{key}": f"d0 * ({total[1]}) + d1"}
    text = FUSION.replace("DIM", str(dim))
    for key in sorted(names, key=len, reverse=True):
        text = text.replace(key, names[key])
    operands: list[torch.Tensor] = []
    for n in sizes:
        shape[dim] = n
        operands.append(torch.randn(shape))
    x, y = operands
    repeated = x.narrow(dim, sizes[0] - 1, 1).expand(x.shape) if sizes[0] else x
    expected = torch.cat([repeated, y], dim)
    found = torch.empty_like(expected)
    run_fusion(text, operands, [found], sizes, threads)
    assert torch.equal(found, expected)
