# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The code samples and exercises of "Graph-Level Optimizations" (ML compilers course, day 17), by Kiln's own passes.

The samples' models are taken as they stand there; where a sample transforms an FX graph by hand, the pass of Kiln that
does it runs in its place, on the torch dialect. CUDA tensors are CPU tensors here, with smaller sizes.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir

import kiln
from kiln.dialects import create_context
from kiln.dialects.kiln import name_of
from kiln.frontend.import_.fx_import import import_graph
from kiln.passes import run_pipeline
from kiln.passes.patterns.graph import trace

X = torch.randn(8, 16)


class Graph:
    """A model in the torch dialect, op by op as it was written, and passes run on it one after the other."""

    def __init__(self, model: Callable[..., Any], *inputs: torch.Tensor) -> None:
        self.module = import_graph(trace(lambda *args: (model(*args),), inputs, "real"), create_context()).module

    def run(self, pipeline: str) -> "Graph":
        run_pipeline(self.module, pipeline)
        return self

    @property
    def ops(self) -> list[str]:
        """Short names of the ops that compute (constants and lists are operands)."""
        names = [op.operation.name for op in self.function.regions[0].blocks[0].operations]
        return [n.removeprefix("torch.aten.") for n in names if n.startswith("torch.aten.")]

    @property
    def function(self) -> ir.Operation:
        return self.module.body.operations[0].operation

    @property
    def fusions(self) -> list[list[str]]:
        """For each kernel after ``fuse``, the arithmetic in it."""
        kernels = [op.operation for op in self.function.regions[0].blocks[0].operations if name_of(op) == "kiln.fusion"]
        found = []
        for kernel in kernels:
            inner: list[str] = []
            kernel.walk(lambda op, inner=inner: (inner.append(op.name), ir.WalkResult.ADVANCE)[1])
            found.append([n for n in inner if n.startswith(("arith.", "math.")) and n != "arith.constant"])
        return found


FUSED = "convert-torch-to-kiln,compose-views,canonicalize,cse,fuse"


# -- 1. Constant folding


class WithConstants(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.tensor(2.0) * torch.tensor(3.0)  # constant!
        return x * scale


def test_constant_folding() -> None:
    graph = Graph(WithConstants(), X)
    assert Counter(graph.ops)["mul.Tensor"] == 2
    graph.run("fold-constants")
    assert graph.ops == ["mul.Tensor"]
    assert "torch.vtensor.literal(dense<6.000000e+00> : tensor<f32>)" in str(graph.module)
    torch.testing.assert_close(torch.compile(WithConstants(), backend="kiln")(X), X * 6)


def test_scale_factor_of_attention() -> None:
    """1.0 / sqrt(d_model), of a static shape, is a number."""
    graph = Graph(lambda x: x * (1.0 / torch.sqrt(torch.tensor(float(x.shape[-1])))), X).run("fold-constants")
    assert graph.ops == ["mul.Tensor"]
    assert "dense<2.500000e-01>" in str(graph.module)


# -- 2. Dead code elimination


class HasDeadCode(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(x)
        b = torch.exp(x)  # computed but never used!  # noqa: F841 - a line of the document
        return torch.log(a)


def test_dead_code_elimination() -> None:
    graph = Graph(HasDeadCode(), X)
    dead = "exp" in graph.ops  # make_fx may have dropped it already
    graph.run("torch-cse")
    assert graph.ops == ["relu", "log"]
    assert dead or len(graph.ops) == 2


# -- 3. Common subexpression elimination


class HasCSE(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(x)
        b = torch.relu(x)  # redundant!
        return a * 2 + b * 3


def test_common_subexpressions() -> None:
    graph = Graph(HasCSE(), X)
    assert graph.ops.count("relu") == 2
    graph.run("torch-cse")
    assert graph.ops == ["relu", "mul.Scalar", "mul.Scalar", "add.Tensor"]


# -- 4. Operator fusion


class FusableModel(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = x * 2.0
        b = a + 1.0
        return torch.relu(b)


def test_fusable_chain() -> None:
    graph = Graph(FusableModel(), X).run(FUSED)
    (kernel,) = graph.fusions
    assert [name for name in kernel if name in ("arith.mulf", "arith.addf")] == ["arith.mulf", "arith.addf"]


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.relu(x * 2 + 1), lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)],
    ids=["elementwise chain", "reduction + elementwise"],
)
def test_fusion_categories(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert len(Graph(function, X).run(f"torch-cse,{FUSED}").fusions) == 1


def kernels(model: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> list[str]:
    """The kind of each kernel; ATen computes nothing."""
    with torch.no_grad():
        (graph,) = kiln.explain(model, *inputs, options=options).graphs
    assert all(decision.way == "kiln" for decision in graph.decisions)
    return [kernel.kind for kernel in graph.kernels]


def test_fusion_category_product_with_bias_and_activation() -> None:
    w, bias = torch.randn(32, 16), torch.randn(32)
    assert kernels(lambda x, w, b: torch.relu(x @ w.T + b), X, w, bias) == ["matmul"]


def test_fusion_category_attention() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v

    assert kernels(attention, *torch.randn(3, 2, 4, 24, 16)) == ["attention"]


def test_weight_preprocessing() -> None:
    """`weight.T` of a frozen model is computed once, at compile time."""
    linear = torch.nn.Linear(16, 8).eval()

    def model(x: torch.Tensor) -> torch.Tensor:
        return x @ (linear.weight.T.contiguous() * 2)

    assert len(kernels(model, X)) == 2
    assert kernels(model, X, freezing=True) == ["matmul"]


# -- 5. Layout transformation


def test_layout_is_decided_for_connected_convolutions() -> None:
    """In bf16, whose kernels multiply neighbouring channels: images between convolutions are channels last."""
    model = torch.nn.Sequential(*[torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(2)]).bfloat16().eval()
    x = torch.randn(2, 64, 14, 14, dtype=torch.bfloat16)
    with torch.no_grad():
        graph = Graph(lambda x: model(x), x)
        graph.run("convert-torch-to-kiln,compose-views,canonicalize,cse,propagate-layouts,fuse,assign-layouts")
        torch.testing.assert_close(torch.compile(model, backend="kiln")(x), model(x), rtol=2e-2, atol=2e-2)
    channels_last = f"d0 * {64 * 14 * 14} + d1 + d2 * {14 * 64} + d3 * 64"
    assert channels_last in str(graph.module)


# -- 6. Algebraic simplification

# Row of the table -> the function, the ops left, and those left under fast_math.
TABLE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[str], list[str]]] = {
    "x * 1.0": (lambda x: torch.sin(x * 1.0), ["sin"], ["sin"]),
    "x + 0.0": (lambda x: torch.sin(x + 0.0), ["add.Scalar", "sin"], ["sin"]),
    "x * 0.0": (lambda x: torch.sin(x * 0.0), ["mul.Scalar", "sin"], ["full_like", "sin"]),
    "x ** 2": (lambda x: x**2, ["mul.Tensor"], ["mul.Tensor"]),
    "exp(log(x))": (lambda x: torch.sin(torch.exp(torch.log(x))), ["log", "exp", "sin"], ["sin"]),
    "x / x": (lambda x: torch.sin(x / x), ["div.Tensor", "sin"], ["full_like", "sin"]),
    "relu(relu(x))": (lambda x: torch.relu(torch.relu(x)), ["relu"], ["relu"]),
    "x.T.T": (lambda x: torch.sin(x.T.T), ["sin"], ["sin"]),
}


@pytest.mark.parametrize("row", list(TABLE))
def test_algebraic_simplification(row: str) -> None:
    function, exact, fast = TABLE[row]
    assert Graph(function, X).run("simplify-algebra").ops == exact
    assert Graph(function, X).run("simplify-algebra{fast-math=true}").ops == fast


@pytest.mark.parametrize("row", list(TABLE))
def test_simplified_numbers_are_eagers(row: str) -> None:
    """Without fast_math to the last bit of special values: NaN, infinities, both zeros."""
    function = TABLE[row][0]
    x = torch.tensor([0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan"), 1e-40]).reshape(2, 4)
    actual, expected = torch.compile(function, backend="kiln")(x), function(x)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    if "relu" in row:
        return  # the kernel of relu itself gives +0.0 for -0.0
    zeros = expected == 0
    assert torch.equal(torch.signbit(actual[zeros]), torch.signbit(expected[zeros]))


def test_fast_math_is_an_option_of_the_backend() -> None:
    x = torch.tensor([1.0, 0.0, float("nan")])
    options = {"fast_math": True}
    result = torch.compile(lambda x: x / x + 1, backend="kiln", options=options)(x)
    assert result.tolist() == [2.0, 2.0, 2.0]


# -- Exercise 1: a complete pipeline


class UnoptimizedModel(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 2.0 * 3.0  # constant folding target
        a = torch.relu(x)
        b = torch.relu(x)  # redundant
        c = a * 1.0  # identity
        d = torch.exp(x)  # unused  # noqa: F841 - a line of the document
        e = b * scale
        f = e + 1.0
        g = torch.relu(f)
        return c + g


def test_exercise_1_node_counts_after_each_pass() -> None:
    graph = Graph(UnoptimizedModel(), X)
    start = ["relu", "relu", "mul.Scalar", "mul.Scalar", "add.Scalar", "relu", "add.Tensor"]
    # make_fx records the dead exp as well.
    assert sorted(op for op in graph.ops if op != "exp") == sorted(start)
    counts = {"start": len(graph.ops)}
    for step in ("fold-constants", "torch-cse", "simplify-algebra", "torch-cse"):
        counts[step] = len(graph.run(step).ops)
    # 2.0 * 3.0 is Python's; folding erases the dead op, CSE one relu, algebra the product with 1.
    assert counts == {"start": counts["start"], "fold-constants": 7, "torch-cse": 5, "simplify-algebra": 5}
    assert graph.ops == ["relu", "mul.Scalar", "add.Scalar", "relu", "add.Tensor"]
    assert len(graph.run(FUSED).fusions) == 1
    torch.testing.assert_close(torch.compile(UnoptimizedModel(), backend="kiln")(X), UnoptimizedModel()(X))


# -- Exercise 2: the impact of fusion


def unfused(x: torch.Tensor) -> torch.Tensor:
    x = x * 2.0
    x = x + 1.0
    x = torch.relu(x)
    x = x * 0.5
    return torch.sigmoid(x)


def test_exercise_2_five_ops_one_kernel() -> None:
    """The count of launches and of bytes; times are the benchmarks' matter."""
    graph = Graph(unfused, X)
    assert len(graph.ops) == 5
    assert len(graph.run(FUSED).fusions) == 1
    x = torch.randn(64, 64)
    compiled = torch.compile(unfused, backend="kiln", mode="reduce-overhead")
    torch.testing.assert_close(compiled(x), unfused(x))


# -- Exercise 3: a pattern-matching pass


class GeluApprox(torch.nn.Module):
    """GELU written as individual ops: ripe for pattern matching."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def test_exercise_3_written_out_gelu_is_recognised() -> None:
    graph = Graph(GeluApprox(), X).run("torch-cse,fold-constants,simplify-algebra,torch-cse,rewrite-patterns")
    assert graph.ops == ["gelu"]
    expected = torch.nn.functional.gelu(X, approximate="tanh")
    torch.testing.assert_close(torch.compile(GeluApprox(), backend="kiln")(X), expected)


def test_exercise_3_as_a_pattern_from_outside() -> None:
    def mine(some_name: torch.Tensor) -> torch.Tensor:
        return 0.5 * some_name * (1.0 + torch.tanh(0.7978845608 * (some_name + 0.044715 * some_name**3)))

    def theirs(other_name: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(other_name, approximate="tanh")

    with kiln.patterns.scope(builtin=False):
        kiln.patterns.register("my-gelu", mine, theirs, (torch.empty(2, 3),))
        assert kiln.patterns.active() == ["my-gelu"]
        graph = Graph(mine, X).run("torch-cse,simplify-algebra,rewrite-patterns")
    assert graph.ops == ["gelu"]
    assert "my-gelu" not in kiln.patterns.active()
