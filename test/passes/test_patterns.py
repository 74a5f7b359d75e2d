# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Patterns from outside: the page's example, several results, lists, numbers, conditions, scopes and errors."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import kiln
from kiln.dialects import create_context
from kiln.errors import KilnError
from kiln.frontend.import_.fx_import import import_graph
from kiln.passes.patterns.graph import graphs_of, trace
from kiln.passes.patterns.registry import RewritePattern, active_patterns
from kiln.passes.rewrite_patterns import RewritePatterns

PAGE = Path(__file__).resolve().parents[2] / "docs" / "patterns.md"
X, Y = torch.randn(4, 8), torch.randn(4, 8)


@pytest.fixture(autouse=True)
def own_patterns() -> Iterator[None]:
    torch._dynamo.reset()
    with kiln.patterns.scope(builtin=False):
        yield


def rewrite(model: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[str], RewritePatterns]:
    """Short names of the ops that are left, and the pass that ran."""

    def listed(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = model(*args)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    module = import_graph(trace(listed, inputs, "real"), create_context()).module
    step = RewritePatterns()
    with module.context:
        step.run(module)
    assert module.operation.verify()
    names = [op.operation.name for op in module.body.operations[0].regions[0].blocks[0].operations]
    return [name.removeprefix("torch.aten.") for name in names if name.startswith("torch.aten.")], step


def test_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    exec(compile(code, str(PAGE), "exec"), {})
    assert "401.3863" in capsys.readouterr().out


def test_several_results() -> None:
    kiln.patterns.register(
        "sincos",
        lambda x: (torch.sin(x) * 2, torch.cos(x) * 2),
        lambda x: (torch.tanh(x), torch.sigmoid(x)),
        (torch.empty(3),),
    )
    ops, step = rewrite(lambda x, y: (torch.cos(x) * 2 + y, torch.sin(x) * 2), X, Y)
    assert sorted(ops) == ["add.Tensor", "sigmoid", "tanh"]
    assert step.statistics["matched:sincos"] == 1
    ops, _ = rewrite(lambda x, y: (torch.cos(x) * 2 + y, torch.sin(y) * 2), X, Y)
    assert "tanh" not in ops


def test_lists_of_tensors() -> None:
    kiln.patterns.register(
        "cat-relu",
        lambda xs: torch.relu(torch.cat(xs, -1)),
        lambda xs: torch.cat([torch.relu(x) for x in xs], -1),
        ([torch.empty(3, 4), torch.empty(3, 5)],),
    )
    assert rewrite(lambda x, y: torch.relu(torch.cat([x, y[:, :5]], 1)), X, Y)[0] == [
        "slice.Tensor",
        "relu",
        "relu",
        "cat",
    ]
    assert rewrite(lambda x, y: torch.relu(torch.cat([x, y, x], -1)), X, Y)[0][0] == "cat"


def test_numbers_are_handed_on() -> None:
    kiln.patterns.register(
        "clamped", lambda x, a: torch.relu(x - a), lambda x, a: torch.clamp_min(x, a) - a, (torch.empty(3), 0.5)
    )
    ops, _ = rewrite(lambda x: torch.relu(x - 0.25), X)
    assert ops == ["clamp_min", "sub.Scalar"] or ops == ["clamp_min", "sub.Tensor"]


def test_a_condition_refuses_with_a_reason() -> None:
    def even(x: torch.Tensor) -> str | None:
        return None if x.shape[-1] % 2 == 0 else "the last dimension is odd"

    kiln.patterns.register(
        "twice", lambda x: torch.exp(torch.sin(x)), lambda x: torch.tanh(x), (torch.empty(3),), condition=even
    )
    assert rewrite(lambda x: torch.exp(torch.sin(x)), X)[0] == ["tanh"]
    ops, step = rewrite(lambda x: torch.exp(torch.sin(x)), X[:, :7].contiguous())
    assert ops[-2:] == ["sin", "exp"]
    assert any("the last dimension is odd" in note.reason for note in step.notes)


def test_a_replacement_of_other_type_is_refused() -> None:
    def half(x: torch.Tensor) -> torch.Tensor:
        return x.half() if x.dim() == 2 else x.tanh()

    kiln.patterns.register("half", lambda x: torch.exp(torch.sin(x)), half, (torch.empty(3),))
    ops, step = rewrite(lambda x: torch.exp(torch.sin(x)), X)
    assert ops == ["sin", "exp"]
    assert any("the replacement gives" in note.reason for note in step.notes)


@pytest.mark.parametrize(
    ("pattern", "replacement", "examples", "message"),
    [
        (torch.sin, torch.sum, (X,), r"the pattern gives float32\[.*\], its replacement float32\[\]"),
        (torch.sin, lambda x: x.half(), (X,), r"the pattern gives float32.*, its replacement float16"),
        (torch.sin, lambda x, y: x, (X,), "the replacement fails with the example of 1 arguments: TypeError"),
        (lambda x: x.sin(), torch.cos, (X, X), "the pattern fails with the example of 2 arguments: TypeError"),
        (lambda x: x * x.sum().item(), torch.cos, (X,), "the pattern reads an element of a tensor"),
        (torch.sin, lambda x: x * x.sum().item(), (X,), "the replacement reads an element of a tensor"),
        (torch.sin, lambda x: "cos", (X,), "the replacement must give tensors, found"),
        (torch.sin, torch.cos, X, "examples must be a tuple of arguments, or a list of tuples, found a Tensor"),
        (torch.sin, torch.cos, [], "there is no example"),
        (torch.sin, torch.cos, [X], "a list of examples must hold tuples, found a Tensor"),
        (lambda x: x, torch.cos, (X,), "the pattern gives one of its arguments as it is"),
        # What calls a kernel of PyTorch's that wants numbers for sizes.
        (lambda x: torch.dropout(x, 0.5, True), torch.cos, (X,), "the pattern fails with .* and symbols for sizes"),
    ],
)
def test_what_cannot_match_is_an_error_at_once(pattern: Any, replacement: Any, examples: Any, message: str) -> None:
    with pytest.raises(KilnError, match=f"^pattern 'wrong': {message}"):
        kiln.patterns.register("wrong", pattern, replacement, examples)
    assert "wrong" not in kiln.patterns.active()


def test_a_condition_that_fails_is_an_error_at_once() -> None:
    with pytest.raises(
        KilnError, match="^pattern 'wrong': the condition fails with the example of 1 arguments: TypeErr"
    ):
        kiln.patterns.register("wrong", torch.sin, torch.cos, (X,), condition=lambda x, y: None)


def test_examples_may_hold_one_tensor_twice() -> None:
    kiln.patterns.register("twice", torch.atan2, lambda x, y: torch.sub(y, x), (X, X))
    assert rewrite(lambda x, y: torch.atan2(x, y), X, Y)[0] == ["sub.Tensor"]


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (lambda x, y: x.cos() if x.shape[0] == X.shape[0] else x[:0], "the replacement gives"),
        (lambda x, y: x + y, "the pattern does not read argument 1"),
    ],
)
def test_a_match_of_one_op_that_is_refused_is_noted(replacement: Any, message: str) -> None:
    kiln.patterns.register("one", lambda x, y: torch.sin(x), replacement, (X, X))
    ops, step = rewrite(lambda x: torch.sin(x), X[1:].contiguous())
    assert ops == ["sin"]
    assert any(message in note.reason for note in step.notes)


def test_a_replacement_that_holds_its_own_pattern_ends() -> None:
    kiln.patterns.register("again", torch.exp, lambda x: torch.exp(x) * 1.5, (X,))
    _, step = rewrite(lambda x: torch.exp(x), X)
    assert step.statistics["matched"] == 8
    assert any("again: 8 times in a row it matched and the graph became no smaller" in n.reason for n in step.notes)


def test_scopes_and_names() -> None:
    kiln.patterns.register("a", lambda x: torch.sin(x), lambda x: torch.cos(x), (X,))
    with pytest.raises(KilnError, match="'a' is registered already"):
        kiln.patterns.register("a", lambda x: torch.sin(x), lambda x: torch.cos(x), (X,))
    with kiln.patterns.scope():
        kiln.patterns.register("b", lambda x: torch.sin(x), lambda x: torch.cos(x), (X,))
        assert kiln.patterns.active()[:2] == ["a", "b"]
    assert kiln.patterns.active() == ["a"]
    kiln.patterns.unregister("a")
    with pytest.raises(KilnError, match="no pattern named 'a'"):
        kiln.patterns.unregister("a")


def test_a_number_that_is_computed_with_is_an_error() -> None:
    kiln.patterns.register("bad", lambda x, a: x * (1 / a), lambda x, a: x / a, (X, 2.0))
    with pytest.raises(KilnError, match="number argument 1 must reach an op as it is"):
        rewrite(lambda x: x * 2.0, X)


@pytest.mark.parametrize("pattern", [p for p in active_patterns() if p.needs], ids=lambda pattern: pattern.name)
def test_a_pattern_holds_what_it_needs(pattern: RewritePattern) -> None:
    """A function without these ops is not searched, so that each match has to hold them."""
    for graph in graphs_of(pattern):
        names = {op: op.name.split(".")[2] for op in graph.ops if op.name.count(".") > 1}
        operands = [(op, leaf.op) for op in names for o in op.operands for leaf in (o, *o.elements)]
        held = {*names.values(), *(f"{names[made]}>{names[op]}" for op, made in operands if made in names)}
        assert pattern.needs - {"bf16", "f16"} <= held


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_traces_leave_the_sizes_of_the_compiled_graph_alone(mode):
    """A pattern is traced while a graph with dynamic sizes is compiled: its example gets none of them."""
    sizes = ShapeEnv()
    with tracing(TracingContext(FakeTensorMode(shape_env=sizes))):
        gm = trace(lambda x: x * torch.sigmoid(x), [torch.randn(5, 7)], mode)
    example = next(node for node in gm.graph.nodes if node.op == "placeholder").meta["val"]
    assert all(isinstance(size, int) for size in example.shape) is (mode == "fake")
    assert not sizes.var_to_range
