# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Each rule of algebra on numbers: the function of ``simplify_algebra_rules.mlir`` that has its name.

The lit test checks the form of what the rule makes. Here the function runs op by op with ATen, as it is and simplified:
a rule that says so keeps every bit, NaN, infinities and both zeros included.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_mlir import ir

from kiln.dialects import create_context, parse
from kiln.dialects.memo import type_text
from kiln.frontend.import_.fx_import import import_graph
from kiln.passes.algebra.rules import Safety, all_rules
from kiln.passes.folding.tensors import evaluate, literal_tensor
from kiln.passes.patterns.graph import trace
from kiln.passes.simplify_algebra import SimplifyAlgebra
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.torch_values import python_value

Tensor = torch.Tensor
RULES = {entry.name: entry for entry in all_rules()}
INEXACT = [name for name, entry in RULES.items() if entry.safety is not Safety.EXACT]

_FILE = Path(__file__).with_name("simplify_algebra_rules.mlir").read_text(encoding="utf-8")
FUNCTIONS = {re.findall(r"func.func @(\w+)", part)[0].replace("_", "-"): part for part in _FILE.split("// -----\n")}

INF, NAN = float("inf"), float("nan")
VALUES = {
    "f32": torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, INF, -INF, NAN, 1e-40, 3e38, -3e38]),
    "f16": torch.tensor([0.0, -0.0, 1.5, NAN, -INF, 65504.0], dtype=torch.float16),
    "si32": torch.tensor([0, 1, -1, 7, 2**31 - 1, -(2**31)], dtype=torch.int32),
    "i1": torch.tensor([True, False]),
}


def operands(function: Any) -> list[Tensor]:
    """Arguments of a function: values that are special to their element type; products get ordinary numbers."""
    found = []
    torch.manual_seed(0)
    for number, argument in enumerate(function.regions[0].blocks[0].arguments):
        attributes = ir.DictAttr(function.attributes["arg_attrs"][number]) if "arg_attrs" in function.attributes else {}
        parsed = parse_tensor_type(type_text(argument.type))
        assert parsed is not None
        sizes, element = [size for size in parsed[0] if size is not None], parsed[1]
        if "kiln.value" in attributes:
            found.append(torch.tensor(list(ir.DenseFPElementsAttr(attributes["kiln.value"]))).reshape(sizes))
        elif len(sizes) > 2:
            found.append(torch.randn(sizes))
        else:
            values = VALUES[element].flip(0) if number % 2 else VALUES[element]
            count = torch.Size(sizes).numel()
            found.append(values.repeat(count // len(values) + 1)[:count].reshape(sizes))
    return found


def as_integers(text: str) -> str:
    """A function on f32 as one on si32: integers are exact where floats may not be."""
    return text.replace("f32>", "si32>")


class Simplified:
    """A function before and after ``simplify-algebra``, both as tensors."""

    def __init__(self, text: str, fast_math: bool) -> None:
        with create_context():
            module = parse(text)
        function = module.body.operations[0].operation
        inputs = operands(function)
        self.before = run(module, inputs)
        self.step = SimplifyAlgebra(fast_math)
        with module.context:
            self.step.run(module)
        assert module.operation.verify()
        self.after = run(module, inputs)

    @property
    def is_equal(self) -> bool:
        """Whether the results are the same in each bit; every NaN is one."""
        return self.before.dtype == self.after.dtype and torch.equal(bits(self.before), bits(self.after))


def run(module: Any, inputs: list[Tensor]) -> Tensor:
    """The function's one result, by ATen."""
    block = module.body.operations[0].regions[0].blocks[0]
    known: dict[ir.Value, Tensor] = dict(zip(block.arguments, inputs, strict=True))
    with module.context:
        for op in [op.operation for op in block.operations]:
            if op.name == "func.return":
                return known[op.operands[0]]
            if op.name == "torch.vtensor.literal":
                results = [literal_tensor(op.attributes["value"], op.results[0])]
            elif op.name == "torch.prim.ListUnpack":
                unbound = op.operands[0].owner
                results = list(known[unbound.operands[0]].unbind(python_value(unbound.operands[1])))
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


def test_every_rule_has_a_function() -> None:
    assert list(FUNCTIONS) == list(RULES)


@pytest.mark.parametrize("name", list(RULES))
def test_rule(name: str) -> None:
    """It matches its function, and leaves all bits as they are where it says so."""
    safety, text = RULES[name].safety, FUNCTIONS[name]
    if safety is Safety.INTEGER:
        text = as_integers(text)
    done = Simplified(text, fast_math=safety is Safety.FAST)
    assert done.step.statistics[f"matched:{name}"] >= 1, dict(done.step.statistics)
    assert safety is Safety.FAST or done.is_equal


@pytest.mark.parametrize("name", INEXACT)
def test_rule_is_not_applied_to_floats_without_fast_math(name: str) -> None:
    """Where it would change the bits: nothing matches, and a note says why."""
    done = Simplified(FUNCTIONS[name], fast_math=False)
    assert done.step.statistics[f"matched:{name}"] == 0 and done.is_equal
    assert any(note.reason.startswith(f"{name}: needs fast_math") for note in done.step.notes)


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
    module = import_graph(trace(lambda *args: (model(*args),), (x,), "real"), create_context()).module
    with module.context:
        SimplifyAlgebra(False).run(module)
    expected, actual = model(x), run(module, [x])
    assert actual.shape == expected.shape
    assert torch.equal(bits(actual), bits(expected))
