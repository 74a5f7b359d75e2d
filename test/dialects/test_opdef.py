# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of ops: it is whole, what it says of an op is so, and nothing else lists ops by name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_mlir import ir
from torch_mlir.dialects import tensor

from kiln.dialects import create_context, kiln
from kiln.dialects.kiln.family import Family
from kiln.dialects.kiln.movement import shape_attribute
from kiln.dialects.reference import Builder
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import ops_inside

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "dialects", "frontend", "kiln", "lowering", "passes", "runtime", "scripts", "tools")


def example(op: type) -> ir.Module:
    """The last example of an op's docstring."""
    return kiln.parse(re.findall(r"```mlir\n(.*?)```", op.__doc__ or "", flags=re.DOTALL)[-1])


def first(module: ir.Module, name: str) -> ir.Operation:
    return next(op for op in ops_inside(module.operation) if kiln.name_of(op) == name)


def test_each_op_is_in_the_table() -> None:
    assert [entry.op for entry in kiln.opdefs()] == kiln.OPS


def test_an_op_is_defined_once() -> None:
    with pytest.raises(ValueError, match=r"kiln\.matmul is defined twice"):
        kiln.define(kiln.MatmulOp, kiln.Role.CONTRACTION)


@pytest.mark.parametrize("entry", kiln.opdefs(), ids=lambda entry: entry.kind)
def test_references_give_the_results_of_the_op(entry: kiln.OpDef) -> None:
    """Those of an op's example; an op without one says so."""
    with create_context(), ir.Location.unknown():
        module = example(entry.op)
        op = first(module, entry.name)
        builder = Builder(SymbolicShapes(op.parent))
        with ir.InsertionPoint(op):
            if entry.reference is None:
                with pytest.raises(KeyError, match=entry.name):
                    entry.expand(op.opview, builder)
                return
            made = entry.expand(op.opview, builder)
        values = [made] if isinstance(made, ir.Value) else list(made)
        assert [ir.RankedTensorType(v.type).rank for v in values] == [r.type.rank for r in op.results]


@pytest.mark.parametrize("entry", kiln.opdefs(), ids=lambda entry: entry.kind)
def test_shape_rules_give_a_size_per_dim(entry: kiln.OpDef) -> None:
    with create_context(), ir.Location.unknown():
        module = example(entry.op)
        op = first(module, entry.name)
        tensors = [r for r in op.results if isinstance(r.type, ir.RankedTensorType)]
        assert (entry.shape is None) == (not tensors)
        if entry.shape is None or op.parent is None:
            return
        shapes = SymbolicShapes(op.parent)
        for result in tensors:
            found = entry.shape(shapes, op, ir.OpResult(result).result_number)
            assert found is not None and len(found) == ir.RankedTensorType(result.type).rank
            known = [e.value for e in found if isinstance(e, ir.AffineConstantExpr)]
            assert set(known) <= set(ir.RankedTensorType(result.type).shape)


@pytest.mark.parametrize("entry", kiln.opdefs(), ids=lambda entry: entry.kind)
def test_verifiers_take_the_sizes_that_the_table_says(entry: kiln.OpDef) -> None:
    """Operands of which the sizes are known that were not, and the other way round, with the result's type as it was."""
    with create_context() as context, ir.Location.unknown():
        context.attach_diagnostic_handler(lambda _: True)
        module = example(entry.op)
        op = first(module, entry.name)
        changed = False
        with ir.InsertionPoint(op):
            for i, operand in enumerate(op.operands):
                if isinstance(operand.type, ir.RankedTensorType):
                    sizes = [5 if n < 0 else ir.ShapedType.get_dynamic_size() for n in operand.type.shape]
                    changed |= bool(sizes)
                    op.operands[i] = tensor.cast(ir.RankedTensorType.get(sizes, operand.type.element_type), operand)
        try:
            is_taken = module.operation.verify()
        except ir.MLIRError:
            is_taken = False
        assert entry.takes_any_sizes == (changed and is_taken)


@pytest.mark.parametrize(
    ("op", "count"),
    [
        (kiln.MatmulOp, 2 * (7 * 16 * 32) * 64),
        (kiln.ConvOp, 2 * (7 * 8 * 16 * 16) * (3 * 3 * 3)),
        (kiln.AttentionOp, 2 * (7 * 12 * 128) * 128 * (64 + 64)),
    ],
)
def test_products_count_two_operations_per_term(op: type, count: int) -> None:
    """Of the examples, with 7 for the dynamic size."""
    with create_context(), ir.Location.unknown():
        module = example(op)
        found = first(module, op.OPERATION_NAME)
        entry = kiln.opdef(found)
        assert entry.flops is not None
        assert entry.flops(found, lambda v: [7 if n < 0 else n for n in ir.RankedTensorType(v.type).shape]) == count


def test_operations_of_static_sizes() -> None:
    text = """
    func.func @main(%x: tensor<3x4x8xf32>, %y: tensor<16x8xf32>) -> tensor<3x4x16xf32> {
      %0 = "kiln.matmul"(%x, %y) {transpose_lhs = false, transpose_rhs = true}
        : (tensor<3x4x8xf32>, tensor<16x8xf32>) -> tensor<3x4x16xf32>
      %1 = "kiln.softmax"(%0) {dim = 2, log = false} : (tensor<3x4x16xf32>) -> tensor<3x4x16xf32>
      return %1 : tensor<3x4x16xf32>
    }
    """
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text)
        assert kiln.static_flops(first(module, "kiln.matmul")) == 2 * (3 * 4 * 16) * 8
        assert kiln.static_flops(first(module, "kiln.softmax")) == 0


def test_an_op_from_outside_is_known_everywhere() -> None:
    """An op of another dialect with a record of its own: no list of names has to hear of it."""
    from kiln.dialects.kiln import table

    class TwiceOp(Family):
        """Not loaded into any context."""

        NAME = "twice_for_the_test"

    entry = kiln.define(TwiceOp, kiln.Role.MOVEMENT, shape=shape_attribute, has_kernel=True)
    try:
        assert entry in list(kiln.opdefs())
        assert entry.name in kiln.op_names(lambda e: e.has_kernel)
        assert kiln.opdef_of_kind("twice_for_the_test") is entry
    finally:
        del table._OPDEFS[entry.name]


# ------------------------------------------------------------------------------------------------------- no other lists

NAMES = {entry.name for entry in kiln.opdefs()}


def lists_of_names(source: str) -> Iterator[int]:
    """Lines of tuples, sets, lists and dicts with the quoted names of two ops or more, as elements or keys."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Tuple | ast.Set | ast.List):
            parts: list[ast.expr | None] = list(node.elts)
        elif isinstance(node, ast.Dict):
            parts = list(node.keys)
        else:
            continue
        parts = [x for p in parts for x in (p.elts if isinstance(p, ast.Tuple) else [p])]
        if sum(isinstance(p, ast.Constant) and p.value in NAMES for p in parts) > 1:
            yield node.lineno


def test_no_other_list_of_ops() -> None:
    """A second list drifts apart from the table: ask `kiln.opdef(op)`, or name the ops' classes."""
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 500
    found = [f"{path.relative_to(ROOT)}:{line}" for path in files for line in lists_of_names(path.read_text())]
    assert not found


def test_lists_are_found() -> None:
    source = 'a = ("kiln.view", "kiln.pad")\nb = {"kiln.matmul": 1, ("cpu", "kiln.conv"): 2}\nc = ["kiln.view", "x"]\n'
    assert list(lists_of_names(source)) == [1, 2]
