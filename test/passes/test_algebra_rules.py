# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every rule of algebra is applied to a graph, and those that say so keep every bit: NaN, infinities, both zeros.

The simplified graph is run op by op with ATen, so that what is compared with eager is the rule alone.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir

from kiln.dialects import create_context
from kiln.frontend.import_.fx_import import import_graph
from kiln.passes.algebra.rules import Safety, all_rules
from kiln.passes.folding.tensors import evaluate, literal_tensor
from kiln.passes.patterns.graph import trace
from kiln.passes.simplify_algebra import SimplifyAlgebra

Tensor = torch.Tensor
RULES = {entry.name: entry for entry in all_rules()}

INF, NAN = float("inf"), float("nan")
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, INF, -INF, NAN, 1e-40, 3e38, -3e38]).reshape(3, 4)
OTHER = SPECIAL.reshape(-1).flip(0).reshape(3, 4).contiguous()
INTEGERS = torch.tensor([0, 1, -1, 7, 2**31 - 1, -(2**31)], dtype=torch.int32).reshape(2, 3)
OTHER_INTEGERS = INTEGERS.flip(0).contiguous()
BOOLS = torch.tensor([True, False, True, False]).reshape(2, 2)
HALF = torch.tensor([0.0, -0.0, 1.5, NAN, -INF, 65504.0], dtype=torch.float16)
ROW = torch.randn(3, 1)
CUBE = torch.randn(2, 3, 4)


def bmm4(q: Tensor, k: Tensor) -> Tensor:
    """What ``matmul`` of four dimensions is decomposed to."""
    flat = torch.bmm(q.reshape(6, 4, 5), k.reshape(6, 5, 4))
    return flat.view(2, 3, 4, 4).sin()


def twice(f: Callable[[Tensor], Tensor], g: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: f(g(x)).neg()


def negated(negation: str, comparison: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: getattr(torch, negation)(getattr(torch, comparison)(x, y))


TRANSPOSES: dict[str, Callable[[Tensor], Tensor]] = {
    "t": torch.t,
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
}


# Rule -> a graph, and its inputs. A sine at the end takes the result: what is returned may not share memory.
Case = tuple[Callable[..., Any], tuple[Tensor, ...]]
X, XY, INT, INT2, B = (SPECIAL,), (SPECIAL, OTHER), (INTEGERS,), (INTEGERS, OTHER_INTEGERS), (BOOLS,)
CASES: dict[str, Case] = {
    "mul-one": (lambda x: (x * 1).neg(), X),
    "div-one": (lambda x: (x / 1.0).neg(), X),
    "mul-zero": (lambda x: (x * 0) + 1, INT),
    "mul-minus-one": (lambda x: x * -1, X),
    "div-minus-one": (lambda x: x / -1.0, X),
    "sub-self": (lambda x: (x - x) + 1, INT),
    "div-self": (lambda x: x / x, X),
    "add-neg": (lambda x, y: x + -y, XY),
    "sub-neg": (lambda x, y: x - -y, XY),
    "mul-neg-neg": (lambda x, y: (-x) * (-y), XY),
    "mul-abs-abs": (lambda x: x.abs() * x.abs(), X),
    "neg-sub": (lambda x, y: -(x - y), INT2),
    "rsub-zero": (lambda x: 0 - x, INT),
    "abs-neg": (lambda x: (-x).abs(), X),
    "maximum-self": (lambda x: torch.maximum(x, x).neg(), X),
    "minimum-self": (lambda x: torch.minimum(x, x).neg(), X),
    "and-self": (lambda x: (x & x) + 1, INT),
    "or-self": (lambda x: (x | x) + 1, INT),
    "xor-self": (lambda x: (x ^ x) + 1, INT),
    **{
        f"{name}-{name}": (twice(getattr(torch, name), getattr(torch, name)), X)
        for name in ("relu", "abs", "floor", "ceil", "round", "trunc", "sign")
    },
    **{
        f"{outer}-{inner}": (twice(getattr(torch, outer), getattr(torch, inner)), X)
        for outer in ("relu", "abs")
        for inner in ("sigmoid", "exp")
    },
    "add-zero": (lambda x: (x + 0).neg(), INT),
    "sub-zero": (lambda x: (x - 0.0).neg(), X),
    "add-literal": (lambda x: x + torch.tensor(2.5), X),
    "sub-literal": (lambda x: x - torch.tensor(2.5), X),
    "mul-literal": (lambda x: x * torch.tensor(2.5), X),
    "div-literal": (lambda x: x / torch.tensor(2.5), X),
    "mul-mul-constants": (lambda x: (x * 3) * 5, INT),
    "add-add-constants": (lambda x: (x + 3) + 5, INT),
    "neg-neg": (lambda x: x.neg().neg().abs(), X),
    "bitwise-not-twice": (lambda x: ~(~x) + 1, INT),
    "logical-not-twice": (lambda x: x.logical_not().logical_not() & x, B),
    "logical-not-bitwise-not": (lambda x: (~x).logical_not() & x, B),
    "bitwise-not-logical-not": (lambda x: ~(x.logical_not()) & x, B),
    "exp-log": (lambda x: x.log().exp().neg(), X),
    "log-exp": (lambda x: x.exp().log().neg(), X),
    "sqrt-square": (lambda x: (x * x).sqrt(), X),
    "square-sqrt": (lambda x: (x.sqrt() * x.sqrt()).neg(), X),
    "reciprocal-reciprocal": (lambda x: x.reciprocal().reciprocal().neg(), X),
    "rsub-rsub-one": (lambda x: (1 - (1 - x)).neg(), X),
    "pow-zero": (lambda x: x**0, X),
    "pow-one": (lambda x: (x**1).neg(), X),
    "pow-two": (lambda x: x**2, X),
    "pow-three": (lambda x: x**3, X),
    "pow-half": (lambda x: x**0.5, X),
    "pow-minus-one": (lambda x: x**-1, X),
    "pow-minus-half": (lambda x: x**-0.5, X),
    "div-constant": (lambda x: x / 4.0, X),
    **{
        f"{negation.replace('_', '-')}-{name}": (
            negated(negation, name),
            XY if name in ("eq", "ne") else INT2,
        )
        for negation in ("logical_not", "bitwise_not")
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "eq-false": (lambda x: x == 0, B),
    "ne-false": (lambda x: (x != 0) & x, B),
    "where-true": (lambda x, y: torch.where(torch.ones(3, 4, dtype=torch.bool), x, y).neg(), XY),
    "where-false": (lambda x, y: torch.where(torch.zeros(3, 4, dtype=torch.bool), x, y).neg(), XY),
    "where-same": (lambda x, y: torch.where(y > 0, x, x).neg(), XY),
    "where-not": (lambda x, y: torch.where(y.isnan().logical_not(), x, y), XY),
    "masked-fill-never": (lambda x: x.masked_fill(torch.zeros(3, 4, dtype=torch.bool), 2.0).neg(), X),
    "alias": (lambda x: torch.ops.aten.alias(x).neg(), X),
    "detach": (lambda x: torch.ops.aten.detach(x).neg(), X),
    "lift-fresh": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), X),
    "view-same": (lambda x: torch.ops.aten.view(x, [3, 4]).neg(), X),
    "expand-same": (lambda x: torch.ops.aten.expand(x, [3, 4]).neg(), X),
    "slice-all": (lambda x: torch.ops.aten.slice(x, 1, 0, 4).neg(), X),
    "squeeze-none": (lambda x: torch.ops.aten.squeeze.dim(x, 0).neg(), X),
    "clone": (lambda x: x.clone().neg(), X),
    "view-view": (lambda x: x.view(4, 3).view(12).neg(), X),
    "view-unsqueeze": (lambda x: x.unsqueeze(1).view(12).neg(), X),
    "view-permute": (lambda x: x.view(3, 1, 4).permute(0, 2, 1).view(12).neg(), X),
    "expand-expand": (lambda x: x.expand(3, 4).expand(2, 3, 4).neg(), (ROW,)),
    "squeeze-unsqueeze": (lambda x: torch.ops.aten.squeeze.dim(x.unsqueeze(1), 1).neg(), X),
    "flip-flip": (lambda x: x.flip(0).flip(0).neg(), X),
    "t-nothing": (lambda x: torch.ops.aten.t(x).neg(), (torch.randn(5),)),
    "transpose-nothing": (lambda x: x.transpose(1, 1).neg(), X),
    "permute-nothing": (lambda x: x.permute(0, 1).neg(), X),
    **{
        f"{outer}-{inner}": (twice(TRANSPOSES[outer], TRANSPOSES[inner]), X)
        for outer in TRANSPOSES
        for inner in TRANSPOSES
    },
    "cat-one": (lambda x: torch.cat([x], 1).neg(), X),
    "cat-slices": (lambda x: torch.cat([x[:, :1], x[:, 1:3], x[:, 3:]], 1).neg(), X),
    "stack-unbind": (lambda x: torch.stack(x.unbind(1), 1).neg(), X),
    "slice-cat": (lambda x, y: torch.cat([x, y], 1)[:, 5:7].neg(), XY),
    "cast-same": (lambda x: torch.ops.aten._to_copy(x, dtype=torch.float32).neg(), X),
    "cast-cast": (lambda x: x.float().half().neg(), (HALF,)),
    "sum-of-one": (lambda x: x.abs().sum(1, keepdim=True).neg(), (ROW,)),
    "mean-of-one": (lambda x: x.abs().mean(1, keepdim=True).neg(), (ROW,)),
    "amax-of-one": (lambda x: x.amax(1, keepdim=True).neg(), (ROW,)),
    "amin-of-one": (lambda x: x.amin(1, keepdim=True).neg(), (ROW,)),
    "bmm": (lambda x, y: torch.bmm(x, y).neg(), (CUBE, CUBE.mT.contiguous())),
    "matmul-of-views": (bmm4, (torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 4))),
    "baddbmm-beta-zero": (
        lambda z, x, y: torch.baddbmm(z, x, y, beta=0, alpha=0.5),
        (torch.full((2, 3, 3), NAN), CUBE, CUBE.mT.contiguous()),
    ),
}  # fmt: skip


def simplified(model: Callable[..., Any], inputs: tuple[Tensor, ...], fast_math: bool) -> tuple[Any, SimplifyAlgebra]:
    imported = import_graph(trace(lambda *args: (model(*args),), inputs, "real"), create_context())
    step = SimplifyAlgebra(fast_math)
    with imported.module.context:
        step.run(imported.module)
    assert imported.module.operation.verify()
    return imported, step


def run(imported: Any, inputs: tuple[Tensor, ...]) -> Tensor:
    """The graph's one result, by ATen."""
    block = imported.module.body.operations[0].regions[0].blocks[0]
    tensors = [*inputs, *imported.constants.values()]
    known: dict[ir.Value, Tensor] = dict(zip(block.arguments, tensors, strict=True))
    with imported.module.context:
        for op in [op.operation for op in block.operations]:
            if op.name == "func.return":
                return known[op.operands[0]]
            if op.name == "torch.vtensor.literal":
                results = [literal_tensor(op.attributes["value"], op.results[0])]
            else:
                results = evaluate(op, known) or []
            known.update(zip(op.results, results, strict=False))
    raise AssertionError("no return")


def bits(x: Tensor) -> Tensor:
    """The elements as integers; every NaN is one."""
    if not x.is_floating_point():
        return x
    x = torch.where(x.isnan(), torch.full_like(x, NAN), x)
    return x.view({2: torch.int16, 4: torch.int32}[x.element_size()])


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("name", list(CASES))
def test_rule(name: str) -> None:
    model, inputs = CASES[name]
    entry = RULES[name]
    floating = any(x.is_floating_point() for x in inputs)
    fast = entry.safety is Safety.FAST or (entry.safety is Safety.INTEGER and floating)
    imported, step = simplified(model, inputs, fast)
    assert step.statistics[f"matched:{name}"] >= 1, dict(step.statistics)
    if not fast:
        expected, actual = model(*inputs), run(imported, inputs)
        assert actual.dtype == expected.dtype and torch.equal(bits(actual), bits(expected))


INEXACT = [name for name in CASES if RULES[name].safety is not Safety.EXACT]


@pytest.mark.parametrize("name", INEXACT)
def test_rule_is_not_applied_to_floats_without_fast_math(name: str) -> None:
    """Where it would change the bits: nothing matches, and a note says why."""
    model, inputs = CASES[name]
    floats = tuple(x.float() if x.dtype == torch.int32 else x for x in inputs)
    if name in ("bitwise-not-twice",):
        pytest.skip("for integers alone")
    imported, step = simplified(model, floats, False)
    assert step.statistics[f"matched:{name}"] == 0
    assert torch.equal(bits(run(imported, floats)), bits(model(*floats)))
    assert any(note.reason.startswith(f"{name}: needs fast_math") for note in step.notes)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda x: (x + 0.0).neg(), "add-zero: needs fast_math: -0.0 + 0.0 is +0.0"),
        (lambda x: (x / 3.0), "div-constant: needs fast_math: 1 / c rounds"),
        (lambda x: x * 1, "mul-one: the result is returned: it would be the argument itself"),
        (lambda x: (x.half().float()).neg(), "cast-cast: f16 does not hold every value of f32"),
    ],
)  # fmt: skip
def test_reasons(model: Callable[[Tensor], Tensor], reason: str) -> None:
    _, step = simplified(model, X, False)
    assert reason in [note.reason for note in step.notes]


# What the rules of reductions and views find without a dimension: eager takes 0 and -1 for dims of rank 0.
SCALAR_CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.abs().sum(0, keepdim=True).neg(),
    "sum, dropped": lambda x: x.abs().sum(-1).neg(),
    "mean": lambda x: x.abs().mean(0).neg(),
    "amax": lambda x: x.amax(-1, keepdim=True).neg(),
    "amin": lambda x: x.amin(0).neg(),
    "transpose": lambda x: x.transpose(0, -1).transpose(-1, 0).neg(),
    "squeeze": lambda x: torch.ops.aten.squeeze.dim(x.unsqueeze(0), 0).neg(),
    "squeeze-none": lambda x: torch.ops.aten.squeeze.dim(x, 0).neg(),
    "flip": lambda x: x.flip(()).flip(()).neg(),
    "permute": lambda x: x.permute(()).neg(),
    "view": lambda x: x.view(1, 1).view(()).neg(),
}


@pytest.mark.parametrize("name", list(SCALAR_CASES))
@pytest.mark.parametrize("value", [2.5, -0.0, NAN])
def test_rules_on_rank_0(name: str, value: float) -> None:
    model, x = SCALAR_CASES[name], torch.tensor(value)
    imported, _ = simplified(model, (x,), False)
    expected, actual = model(x), run(imported, (x,))
    assert actual.shape == expected.shape
    assert torch.equal(bits(actual), bits(expected))
