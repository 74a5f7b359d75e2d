# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The torch-dialect module that an AOT graph becomes, and the specifications beside it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

from kiln.dialects import create_context
from kiln.frontend.calls.aten_executor import AtenExecutor
from kiln.frontend.import_.fx_import import ImportedGraph, ImportUnsupported, import_graph


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def imported(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> ImportedGraph:
    """The import of the one inference graph of ``fn``."""
    graphs = []

    def compiler(gm, inputs):
        graphs.append(import_graph(gm, create_context()))
        return AtenExecutor(gm)

    backend = aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)
    with torch.no_grad():
        torch.compile(fn, backend=backend, dynamic=dynamic, fullgraph=True)(*args)
    (graph,) = graphs
    assert graph.module.operation.verify()
    return graph


def text(graph: ImportedGraph, debug: bool = False) -> str:
    return graph.module.operation.get_asm(enable_debug_info=debug, use_local_scope=True)


def test_static_function():
    graph = imported(lambda x: x.t().relu(), torch.randn(2, 3))
    ir = text(graph)
    assert "%arg0: !torch.vtensor<[2,3],f32>" in ir
    assert "kiln.shape = affine_map<() -> (2, 3)>" in ir and "kiln.strides = affine_map<() -> (3, 1)>" in ir
    assert "-> (!torch.vtensor<[3,2],f32> {kiln.strides = affine_map<() -> (1, 3)>})" in ir
    assert graph.symbols == [] and "kiln.symbols = []" in ir


def test_symbols_and_shapes():
    graph = imported(lambda x: torch.cat([x, x]) * 2, torch.randn(5, 7), dynamic=True)
    ir = text(graph)
    assert len(graph.symbols) == 2
    assert [spec.kind for spec in graph.inputs] == ["int", "int", "tensor"]
    for spec, hint in zip(graph.inputs, (8, 8), strict=False):  # the next power of two above 5 and 7
        assert f'!torch.int {{kiln.hint = {hint} : i64, kiln.symbol = "{spec.name}"}}' in ir
    rows = graph.symbols.index(graph.inputs[0].name)
    assert f"(s{rows} * 2, s{1 - rows})" in ir and "!torch.vtensor<[?,?],f32>" in ir


def test_sizes_are_written_from_their_expression():
    graph = imported(lambda x: x.view(x.shape[0] * x.shape[1]) + x.shape[0] // 2, torch.randn(6, 4), dynamic=True)
    ir = text(graph)
    assert "torch.aten.floordiv.int" in ir and "torch.aten.mul.int" in ir
    assert "sym_size" not in ir


@pytest.mark.parametrize(
    "size", [lambda n, m: n // (n - m), lambda n, m: (n - 2 * m + 7) // (n - 4)], ids=["zero", "less"]
)
def test_rounded_sizes_may_contradict_each_other(size):
    """Sizes of 7 and 5 are about 8 both: nothing is known of what is derived of them by a quotient by 0, or below 0."""
    graph = imported(lambda x: x.new_zeros(size(*x.shape)) + x.sum(), torch.randn(7, 5), dynamic=True)
    (derived,) = (spec.name for spec in graph.inputs if spec.kind == "derived")
    assert f'!torch.int {{kiln.symbol = "{derived}"}}' in text(graph)


def test_derived_symbol():
    def fn(x):
        return torch.zeros(max(x.shape[0] - 3, 1)) + 1

    graph = imported(fn, torch.randn(6), dynamic=True)
    assert all(spec.kind != "derived" or "Max" in spec.name for spec in graph.inputs)


def test_locations_lead_to_the_source():
    graph = imported(lambda x: x.sin(), torch.randn(2))
    ir = text(graph, debug=True)
    assert 'loc("sin"("' in ir and "test_fx_import.py" in ir


def test_lifted_constant():
    graph = imported(lambda x: x + torch.tensor([1.0, 2.0]), torch.randn(2))
    assert len(graph.constants) == 1
    (name,) = graph.constants
    assert f'kiln.constant = "{name}"' in text(graph)
    assert graph.inputs[-1].kind == "constant"


def test_mutation_is_a_result():
    def fn(x):
        x.add_(1)
        return x * 2

    graph = imported(fn, torch.randn(3))
    assert graph.mutations == [(0, graph.mutations[0][1])]
    assert "kiln.mutates = 0 : i64" in text(graph) and "copy_" not in text(graph)


def test_outputs_without_code():
    graph = imported(lambda x, y: (x + y, None, 3), torch.randn(3), torch.randn(3))
    assert [spec.kind for spec in graph.outputs] == ["result"]


def test_repeated_and_passed_through_outputs():
    def fn(x):
        y = x + 1
        return y, y * 2, x.clone()

    graph = imported(fn, torch.randn(3))
    assert len(graph.result_storages) == 3 and len(set(graph.result_storages)) == 3


def test_number_for_a_tensor_uses_the_scalar_overload():
    ir = text(imported(lambda x: x * 2.0 + 1, torch.randn(3)))
    assert "torch.aten.mul.Scalar" in ir and "torch.aten.add.Scalar" in ir and "NumToTensor" not in ir


def test_list_results():
    ir = text(imported(lambda x: torch.split(x, 2)[1] + 1, torch.randn(4)))
    assert "torch.prim.ListUnpack" in ir or "torch.aten.slice" in ir


def test_higher_order_op_is_opaque():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))

    graph = imported(fn, torch.ones(3))
    assert 'torch.operator "torch.kiln_fx.call_' in text(graph)
    assert len(graph.opaque) == 1 and "cond" in graph.opaque[0]


def test_complex_scalar_argument_is_opaque():
    graph = imported(lambda x: x * 2j, torch.randn(3, dtype=torch.complex64))
    assert "complex<f32>" in text(graph)


def test_the_fx_graph_is_left_alone():
    before, after = [], []

    def compiler(gm, inputs):
        before.append(str(gm.graph))
        import_graph(gm, create_context())
        after.append(str(gm.graph))
        return AtenExecutor(gm)

    with torch.no_grad():
        torch.compile(lambda x: x.as_strided((2,), (1,)) + x.sum(), backend=aot_autograd(fw_compiler=compiler))(
            torch.randn(4)
        )
    assert before == after


def test_same_graph_same_text():
    def fn(x, y):
        return torch.softmax(x @ y, -1), x.sum()

    texts = set()
    for _ in range(2):
        torch._dynamo.reset()
        texts.add(text(imported(fn, torch.randn(3, 4), torch.randn(4, 5), dynamic=True)))
    assert len(texts) == 1


def test_unsupported_says_why():
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    (placeholder,) = [node for node in gm.graph.nodes if node.op == "placeholder"]
    placeholder.meta["val"] = torch.ones(2, device="meta")
    with pytest.raises(ImportUnsupported, match="is on device meta"):
        import_graph(gm, create_context())
