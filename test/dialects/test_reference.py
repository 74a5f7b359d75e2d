# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reference lowerings against PyTorch in float64, with static and dynamic sizes; the interpreter beside them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.dialects.execute import run_reference
from kiln.dialects.interpret import evaluate

_ELEMENT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.bool: "i1",
}


def tensor_type(t: torch.Tensor, dynamic: Sequence[int]) -> str:
    sizes = ["?" if i in dynamic else str(n) for i, n in enumerate(t.shape)]
    return f"tensor<{'x'.join([*sizes, _ELEMENT[t.dtype]])}>"


def run(build: Callable[..., Any], inputs: list[torch.Tensor], dynamic: list[Sequence[int]]) -> list[torch.Tensor]:
    """`build` gets the context's values for `inputs` and returns the values to compare."""
    with create_context() as context, ir.Location.unknown():
        types = [ir.Type.parse(tensor_type(t, d)) for t, d in zip(inputs, dynamic, strict=True)]
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            from torch_mlir.dialects import func

            function = func.FuncOp("main", (types, []))
            block = function.add_entry_block()
            with ir.InsertionPoint(block):
                made = build(*block.arguments)
                results = [made] if isinstance(made, ir.Value) else list(made)
                func.ReturnOp(results)
            function.attributes["function_type"] = ir.TypeAttr.get(
                ir.FunctionType.get(types, [r.type for r in results])
            )
        assert module.operation.verify()
        arrays = [t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy() for t in inputs]
        assert context is not None
        results = [torch.from_numpy(np.array(r)) for r in run_reference(module, arrays)]
        _interpret(module, inputs, results)
        return results


def _interpret(module: ir.Module, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> None:
    """The interpreter computes the same: rounded as declared, and in float64, where results stay in float64."""
    for precision in ("declared", "float64"):
        for found, result in zip(evaluate(module, inputs, precision=precision), results, strict=True):
            if not found.is_floating_point():
                assert torch.equal(found, result)
                continue
            half = any(t.dtype in (torch.bfloat16, torch.float16) for t in inputs)
            tolerance = 2e-2 if half else 1e-5
            assert found.dtype == torch.float64 or precision == "declared"
            torch.testing.assert_close(found.double(), result.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def check(
    build: Callable[..., Any],
    expected: Callable[..., Any],
    inputs: list[torch.Tensor],
    dynamic: list[Sequence[int]],
    tolerance: float = 3e-6,
) -> None:
    """Static, then dynamic sizes; floats within `tolerance` of the float64 result, integers equal."""
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    want = expected(*wide)
    want = list(want) if isinstance(want, tuple | list) else [want]
    for sizes in ([()] * len(inputs), dynamic):
        got = run(build, inputs, sizes)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert g.shape == w.shape
            if w.is_floating_point():
                torch.testing.assert_close(g.double(), w, rtol=tolerance, atol=tolerance, equal_nan=True)
            else:
                assert torch.equal(g, w)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(dtype: torch.dtype, left: bool, right: bool) -> None:
    x = randn(2, 5, 3, dtype=dtype) if left else randn(2, 3, 5, dtype=dtype)
    y = randn(2, 4, 5, dtype=dtype) if right else randn(2, 5, 4, dtype=dtype)
    half = dtype in (torch.bfloat16, torch.float16)
    check(
        lambda a, b: kiln.matmul(a, b, transpose_lhs=left, transpose_rhs=right),
        lambda a, b: (a.mT if left else a) @ (b.mT if right else b),
        [x, y],
        [(0, 1, 2), (0, 1, 2)],
        1e-2 if half else 3e-6,
    )


def test_matmul_shared_rhs_and_integers() -> None:
    check(kiln.matmul, torch.matmul, [randn(2, 3, 5), randn(5, 4)], [(0, 1), ()])
    check(kiln.matmul, torch.matmul, [torch.arange(6).view(2, 3), torch.arange(12).view(3, 4)], [(0,), (1,)])
    check(kiln.matmul, torch.matmul, [randn(2, 0), randn(0, 3)], [(1,), (0,)])


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_softmax(log: bool, at: int) -> None:
    x = randn(3, 4, 5)
    check(
        lambda a: kiln.softmax(a, at, log),
        lambda a: F.log_softmax(a, at) if log else F.softmax(a, at),
        [x],
        [(0, 1, 2)],
    )


def test_softmax_of_infinities_and_nan() -> None:
    inf = float("inf")
    x = torch.tensor([[-inf, -inf], [inf, 0.0], [float("nan"), 0.0], [-inf, 0.0]])
    check(lambda a: kiln.softmax(a, 1), lambda a: F.softmax(a, 1), [x], [(0,)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms(dtype: torch.dtype) -> None:
    x, w, b = randn(3, 4, 6, dtype=dtype) + 3, randn(4, 6, dtype=dtype), randn(4, 6, dtype=dtype)
    tolerance = 3e-2 if dtype == torch.bfloat16 else 5e-6
    every: list[Sequence[int]] = [(0, 1, 2), (0, 1), (0, 1)]
    check(
        lambda a, c, d: kiln.layer_norm(a, c, d, [1, 2], 1e-5),
        lambda a, c, d: F.layer_norm(a, (4, 6), c, d, 1e-5),
        [x, w, b],
        every,
        tolerance,
    )
    check(
        lambda a: kiln.layer_norm(a, None, None, [2], 1e-5),
        lambda a: F.layer_norm(a, (6,), eps=1e-5),
        [x],
        [(0, 2)],
        tolerance,
    )
    check(
        lambda a, c: kiln.rms_norm(a, c, [1, 2], 1e-6),
        lambda a, c: F.rms_norm(a, (4, 6), c, 1e-6),
        [x, w],
        every[:2],
        tolerance,
    )


def test_batch_and_group_norm() -> None:
    x, mean, var, w, b = randn(2, 6, 3, 4), randn(6), torch.rand(6) + 0.1, randn(6), randn(6)
    check(
        lambda *v: kiln.batch_norm(*v, 1e-5),
        lambda a, m, v, c, d: F.batch_norm(a, m, v, c, d, eps=1e-5),
        [x, mean, var, w, b],
        [(0, 2), (), (), (), ()],
    )
    check(
        lambda a, c, d: kiln.group_norm(a, c, d, 3, 1e-5),
        lambda a, c, d: F.group_norm(a, 3, c, d, 1e-5),
        [x, w, b],
        [(0, 2, 3), (), ()],
    )


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(mask: str | None, causal: bool) -> None:
    q, k, v = randn(2, 4, 3, 8), randn(2, 2, 5, 8), randn(2, 2, 5, 6)
    inputs: list[torch.Tensor] = [q, k, v]
    if mask:
        inputs.append(torch.rand(2, 1, 3, 5) > 0.4 if mask == "bool" else randn(1, 4, 3, 5))

    def expected(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *m: torch.Tensor) -> torch.Tensor:
        allowed = torch.ones(3, 5, dtype=torch.bool).tril() if causal else torch.ones(3, 5, dtype=torch.bool)
        bias = torch.zeros(3, 5, dtype=torch.float64).masked_fill(~allowed, float("-inf"))
        for x in m:
            bias = bias.masked_fill(~x, float("-inf")) if x.dtype == torch.bool else bias + x
        return F.scaled_dot_product_attention(q, k, v, bias.expand(2, 4, 3, 5), scale=0.3, enable_gqa=True)

    check(
        lambda q, k, v, *m: kiln.attention(q, k, v, 0.3, causal, *m),
        expected,
        inputs,
        [(0, 2), (0, 2), (0, 2), *[() for _ in inputs[3:]]],
    )


def test_attention_of_a_row_without_keys() -> None:
    q = randn(1, 1, 2, 4)
    mask = torch.tensor([[True, False], [False, False]])
    check(
        lambda q, m: kiln.attention(q, q, q, 0.5, mask=m),
        lambda q, m: F.scaled_dot_product_attention(q, q, q, m.expand(1, 1, 2, 2), scale=0.5),
        [q, mask],
        [(2,), ()],
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 1), (2, 2, 2)])
def test_conv(groups: int, stride: int, padding: int, dilation: int) -> None:
    two = [[n] * 2 for n in (stride, padding, dilation)]
    check(
        lambda x, w: kiln.conv(x, w, *two, groups=groups),
        lambda x, w: F.conv2d(x, w, None, stride, padding, dilation, groups),
        [randn(2, 4, 8, 7), randn(6, 4 // groups, 3, 2)],
        [(0, 2, 3), ()],
        1e-5,
    )
    check(
        lambda x, w: kiln.conv(x, w, *two, groups=groups, transposed=True, output_padding=[stride - 1, 0]),
        lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, (stride - 1, 0), groups, dilation),
        [randn(2, 4, 5, 4), randn(4, 6 // groups, 3, 2)],
        [(0, 2, 3), ()],
        1e-5,
    )


def test_conv1d() -> None:
    check(
        lambda x, w: kiln.conv(x, w, [2], [1], [1]),
        lambda x, w: F.conv1d(x, w, None, 2, 1),
        [randn(2, 3, 9), randn(4, 3, 3)],
        [(0, 2), ()],
        1e-5,
    )


@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool(ceil: bool) -> None:
    x = randn(2, 3, 8, 7)
    x[0, 0, 2, 2] = float("nan")
    x[1, 0] = float("-inf")
    dynamic: Sequence[int] = (0,) if ceil else (0, 2, 3)

    def build(a: ir.Value) -> list[ir.Value]:
        op = kiln.pool(a, "max", [3, 2], [2, 2], [1, 0], [1, 2], ceil=ceil, with_indices=True)
        return [op.result, op.indices]

    check(build, lambda a: F.max_pool2d(a, (3, 2), 2, (1, 0), (1, 2), ceil, True), [x], [dynamic])
    check(
        lambda a: kiln.pool(a, "max", [3, 2], [2, 2], [1, 0], [1, 2], ceil=ceil).result,
        lambda a: F.max_pool2d(a, (3, 2), 2, (1, 0), (1, 2), ceil),
        [x],
        [dynamic],
    )


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(("include", "divisor"), [(True, 0), (False, 0), (True, 5)])
def test_avg_pool(ceil: bool, include: bool, divisor: int) -> None:
    check(
        lambda a: (
            kiln.pool(a, "avg", [3, 2], [2, 3], [1, 1], ceil=ceil, count_include_pad=include, divisor=divisor).result
        ),
        lambda a: F.avg_pool2d(a, (3, 2), (2, 3), 1, ceil, include, divisor or None),
        [randn(2, 3, 8, 7)],
        [(0,) if ceil else (0, 2, 3)],
    )


def test_reads_at_positions() -> None:
    x, table = randn(3, 5, 4), randn(7, 4)
    index = torch.randint(0, 5, (3, 2, 4))
    check(lambda a, i: kiln.gather(a, 1, i), lambda a, i: a.gather(1, i), [x, index], [(0, 1, 2), (1,)])
    rows = torch.tensor([2, 0, 2])
    check(lambda a, i: kiln.index_select(a, 1, i), lambda a, i: a.index_select(1, i), [x, rows], [(0, 2), (0,)])
    tokens = torch.randint(0, 7, (2, 3))
    check(kiln.embedding, lambda w, i: F.embedding(i, w), [table, tokens], [(1,), (0, 1)])
    check(kiln.embedding, lambda w, i: F.embedding(i, w), [table, tokens.int()], [(), (1,)])


def test_advanced_index() -> None:
    x = randn(3, 5, 4)
    i, j = torch.tensor([[0], [-1]]), torch.tensor([1, 3, 0])
    check(lambda a, p, q: kiln.index(a, [0, 1], [p, q]), lambda a, p, q: a[p, q], [x, i, j], [(0, 2), (), (0,)])
    check(lambda a, p, q: kiln.index(a, [0, 2], [p, q]), lambda a, p, q: a[p, :, q], [x, i, j], [(1,), (0,), ()])
    check(lambda a, q: kiln.index(a, [1], [q]), lambda a, q: a[:, q], [x, j], [(0,), (0,)])


@pytest.mark.parametrize("reduce", ["none", "sum", "prod", "amax", "amin"])
def test_scatter(reduce: str) -> None:
    x, source = randn(4, 5), randn(3, 4)
    index = torch.stack([torch.randperm(5)[:4] for _ in range(3)])
    if reduce != "none":
        index[:, 1] = index[:, 0]

    def expected(a: torch.Tensor, i: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return a.scatter(1, i, s) if reduce == "none" else a.scatter_reduce(1, i, s, reduce)

    build = lambda a, i, s: kiln.scatter(a, 1, i, s, reduce)
    check(build, expected, [x, index, source], [(0, 1), (0,), (1,)])


@pytest.mark.parametrize("reduce", ["none", "sum", "amax", "amin"])
def test_scatter_nd(reduce: str) -> None:
    x, src = randn(4, 5, 3), randn(2, 3, 3)
    i = torch.tensor([[[0], [1], [2]], [[3], [1], [0]]]).expand(2, 3, 3).contiguous()
    j = torch.tensor([[[4], [1], [4]], [[2], [0], [4]]]).expand(2, 3, 3).contiguous()

    def expected(a, s, i, j):
        if reduce in ("none", "sum"):
            return a.index_put((i[..., 0], j[..., 0]), s, accumulate=reduce == "sum")
        index = (i * 5 + j).reshape(6, 3)
        return a.reshape(20, 3).scatter_reduce(0, index, s.reshape(6, 3), reduce).reshape(4, 5, 3)

    sizes: list[Sequence[int]] = [(0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2)]
    check(lambda a, s, i, j: kiln.scatter_nd(a, s, [i, j], [0, 1], [2], reduce), expected, [x, src, i, j], sizes)


def test_scatter_nd_from_zero() -> None:
    """What is there is not read."""
    build = lambda a, s, i: kiln.scatter_nd(a, s, [i], [0], [1], "sum", from_zero=True)
    s, i = randn(7, 3), torch.tensor([0, 1, 1, 3, 0, 0, 1])[:, None].expand(7, 3).contiguous()
    sizes: list[Sequence[int]] = [(0,), (0, 1), (0, 1)]
    check(build, lambda a, s, i: torch.zeros_like(a).scatter_add(0, i, s), [randn(4, 3), s, i], sizes)


def test_scan() -> None:
    x = randn(3, 6)
    x[1, 3] = float("nan")
    x[2, :2] = float("-inf")
    for kind, function in (("sum", torch.cumsum), ("prod", torch.cumprod), ("logsumexp", torch.logcumsumexp)):
        check(lambda a, k=kind: kiln.scan(a, 1, k).result, lambda a, f=function: f(a, 1), [x], [(0, 1)])
    for kind, function in (("max", torch.cummax), ("min", torch.cummin)):

        def build(a: ir.Value, kind: str = kind) -> list[ir.Value]:
            op = kiln.scan(a, 1, kind, with_indices=True)
            return [op.result, op.indices]

        check(build, lambda a, f=function: tuple(f(a, 1)), [x], [(0, 1)])
    check(lambda a: kiln.scan(a, 0, "sum").result, lambda a: a.cumsum(0), [torch.arange(6).view(3, 2)], [(0,)])


@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_topk(descending: bool) -> None:
    x = torch.tensor([[3.0, 1.0, 3.0, float("nan"), -1.0], [0.0, float("inf"), 0.0, -0.0, float("-inf")]])

    def build_sort(a: ir.Value) -> list[ir.Value]:
        op = kiln.sort(a, 1, descending)
        return [op.values, op.indices]

    check(build_sort, lambda a: tuple(torch.sort(a, dim=1, descending=descending, stable=True)), [x], [(0, 1)])

    def build_topk(a: ir.Value) -> list[ir.Value]:
        return [kiln.topk(a, 3, 1, descending).values]

    check(build_topk, lambda a: [a.topk(3, 1, descending).values], [x], [(0, 1)])


def test_random() -> None:
    seed, offset = torch.tensor(0x299F31D0A4093822), torch.tensor(0x0370734413198A2E)

    def build(kind: str) -> Callable[..., ir.Value]:
        return lambda s, o: kiln.random(s, o, kind, [2, 500])

    # First word of the known answer of Random123's kat_vectors for counter 0, key 0.
    zero = torch.tensor(0)
    bits = run(build("bits"), [zero, zero], [(), ()])[0]
    assert int(bits[0, 0]) & 0xFFFFFFFF == 0x6627E8D5
    uniform = run(build("uniform"), [seed, offset], [(), ()])[0]
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.03
    normal = run(build("normal"), [seed, offset], [(), ()])[0]
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
