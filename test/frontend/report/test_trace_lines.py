# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which lines of a trace belong together: from ops to instructions, between stages, loops of machine code."""

from inspect import getfile
from pathlib import Path
from typing import Any

import pytest
from trace_support import TARGETS, Block, Layers, nodes_of, traced

from kiln.dialects import create_context, parse, to_text
from kiln.frontend.report.trace.diffing import changed_lines
from kiln.frontend.report.trace.graph_data import graph_data
from kiln.frontend.report.trace.locations import located_lines, places
from kiln.frontend.report.trace.machine_code import hot_loop, ptx, triton_stage

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@pytest.mark.parametrize("target", TARGETS)
def test_every_op_leads_to_instructions_and_back(target: str):
    data = graph_data(traced(target).graphs[0].record)
    levels = [level for kernel in data["kernels"] for level in kernel["levels"]]
    for title in ("linalg", "loops", "LLVM IR", "assembly"):
        mine = [level for level in levels if level["title"] == title]
        found = set[str]().union(*(nodes_of(data, level["sets"]) for level in mine))
        assert {"native_layer_norm", "addmm", "gelu", "add"} <= found, title
    assert not any(level.get("note") for level in levels)
    # Instructions of one kernel come from different ops, each by itself: not all from the kernel as a whole.
    alone = {
        tuple(data["sets"][s]) for level in levels if level["title"] == "assembly" for s in level["sets"] if s >= 0
    }
    names = {data["nodes"][nodes[0]]["name"] for nodes in alone if len(nodes) == 1}
    assert {"native_layer_norm", "addmm", "gelu"} <= names
    lines = {line for node in data["nodes"] if node["name"] == "gelu" for _, line in node["frames"]}
    source = Path(getfile(Block)).read_text().splitlines()
    assert any("functional.gelu(y)" in source[line - 1] for line in lines)


def test_assembly_refers_to_lines_of_llvm_ir():
    data = graph_data(traced().graphs[0].record)
    for kernel in data["kernels"]:
        assembly = next(level for level in kernel["levels"] if level["title"] == "assembly")
        llvm = kernel["levels"][assembly["of"]]
        texts, ir = assembly["text"].split("\n"), llvm["text"].split("\n")
        products = [ir[r] for text, r in zip(texts, assembly["refs"], strict=True) if "fmadd" in text and r >= 0]
        assert all("intr.fma" in line or "fmul" in line or "fadd" in line for line in products)
        stores = [ir[r] for text, r in zip(texts, assembly["refs"], strict=True) if "maskmov" in text and r >= 0]
        assert all("masked" in line for line in stores)
        assert any(r >= 0 for r in assembly["refs"])


def test_equal_kernels_lead_to_all_layers():
    record = traced(model=Layers().eval()).graphs[0].record
    data = graph_data(record)
    launched = [[x["name"] for x in data["launches"] if x["kernel"] == i] for i in range(len(data["kernels"]))]
    shared = max(range(len(launched)), key=lambda i: len(launched[i]))
    assert len(launched[shared]) >= 3
    for level in data["kernels"][shared]["levels"]:
        names = nodes_of(data, level["sets"])
        assert sum(name.startswith("gelu") for name in names) == len(launched[shared]), level["title"]


def test_lines_are_those_without_debug_info():
    with create_context() as context:
        stages = traced().graphs[0].stages
        modules = stages[: next(i for i, stage in enumerate(stages) if stage.name == "kernels")]
        for stage in modules:
            assert to_text(parse(stage.source, context)) == stage.text + "\n"
        assert len(modules) > 8


def test_places_in_locations():
    text = "\n".join(
        [
            "#loc = loc(unknown)",
            '#loc1 = loc("a (b).py":3:0)',
            '  %0 = "x"(%a) : () -> () loc(#loc2)',
            '  ^bb0(%in: f32 loc("gelu"(#loc1)), %b: f32 loc(unknown)):',
            '  "y"() {text = "a loc(b"} : () -> () loc(fused[#loc2, #loc3])',
            '#loc2 = loc("mul"(#loc1))',
            '#loc3 = loc("t"(unknown))',
        ]
    )
    first, second, third = located_lines(text)
    assert first.text == '  %0 = "x"(%a) : () -> ()' and places(first.location) == [("mul", "a (b).py", 3)]
    assert second.text == "  ^bb0(%in: f32, %b: f32):" and not second.location
    assert places(third.location) == [("mul", "a (b).py", 3), ("t", "", 0)]
    assert third.text == '  "y"() {text = "a loc(b"} : () -> ()'


def test_the_first_line_of_an_op_with_regions_has_its_location():
    text = "\n".join(
        [
            '#loc1 = loc("sum"("m.py":3:0))',
            '  %0 = "if"(%a) ({',
            '    "x"() : () -> () loc(unknown)',
            "  }, {",
            '    "y"() : () -> () loc(unknown)',
            "  }) : () -> f32 loc(#loc1)",
        ]
    )
    found = [bool(places(line.location)) for line in located_lines(text)]
    assert found == [True, False, False, False, True]


def test_a_new_number_is_no_change():
    old = ["%0 = a(%x)", "%1 = b(%0)", "%2 = c(%1, %0)"]
    assert changed_lines(old, ["%7 = a(%x)", "%8 = b(%7)", "%9 = c(%8, %7)"]) == []
    removed = [line for line in changed_lines(old, ["%0 = a(%x)", "%1 = c(%0, %0)"]) if line.kind != " "]
    assert [line.kind for line in removed] == ["-", "-", "+"]  # c reads another value now
    other = changed_lines(["#map = f", "%0 = a(#map)"], ["#map1 = f", "%0 = a(#map1)"])
    assert other == [] and changed_lines(["#map = f", "%0 = a(#map)"], ["#map = g", "%0 = a(#map)"])


def test_the_hot_loop_is_the_inner_one():
    code = [
        "f>:",
        "   0: \tnop",
        "   1: \tvaddps %a",
        "   2: \tvmulps %a",
        "   3: \tjne\t0x1 <f>",
        "   4: \tjmp\t0x0 <f>",
    ]
    assert hot_loop(code) == (2, 4)
    assert hot_loop(code[:4]) is None
    assert hot_loop(["$L__BB0_1:", "\tfma.rn.f32 %f1;", "\t@%p1 bra $L__BB0_1;"]) == (0, 2)


def test_ptx_refers_to_triton_ir():
    from kiln.lowering.gpu.compile import compile_ttir, triton_problem

    if triton_problem():
        pytest.skip(str(triton_problem()))
    record = traced("tt-cpu").graphs[0].record
    source = next(text for name, text in record.ttir.items() if "gelu" in name)
    lines = [line.text for line in located_lines(source)]
    made = compile_ttir("\n".join(lines) + "\n", "sm_90")
    found = ptx(made.ptx)
    stores = [lines[i.line - 1] for i in found if "st.global" in i.text and i.line]
    assert stores and all("tt.store" in line for line in stores)
    blocks = [lines[i.line - 1] for i in triton_stage(made.ttgir) if "tt.store" in i.text and i.line]
    assert blocks and all("tt.store" in line for line in blocks)
    sums = [lines[i.line - 1] for i in triton_stage(made.llir) if " fadd " in i.text and i.line]
    assert sums and all("arith." in line or "tt.dot" in line for line in sums)


def for_sm_90(record: Any) -> Any:
    """The record with what Triton and ptxas make of its kernels for a GPU that need not be here."""
    from concurrent.futures import Future

    from kiln.lowering.gpu.compile import compile_ttir, triton_problem
    from kiln.lowering.gpu.sass import disassembler
    from kiln.lowering.host.gpu_kernels import GpuCode, LaunchForm

    if triton_problem() or disassembler() is None:
        pytest.skip("needs Triton, and nvdisasm of its package")
    for name, text in record.ttir.items():
        lines = [line.text for line in located_lines(text)]
        made: Future[Any] = Future()
        made.set_result(compile_ttir("\n".join(lines) + "\n", "sm_90"))
        record.code[name] = GpuCode(name, "sm_90", 0, 0, LaunchForm(()), made).texts()
    return record


def test_sass_leads_to_ptx_to_triton_ir_and_to_the_model():
    data = graph_data(for_sm_90(traced("tt-cpu").graphs[0].record))
    reached: set[str] = set()
    for kernel in data["kernels"]:
        levels = kernel["levels"]
        last = levels[-1]
        above = levels[last["of"]]
        assert (last["title"], above["title"], levels[above["of"]]["title"]) == ("SASS", "PTX", "Triton IR")
        texts = {title: level["text"].split("\n") for level in levels for title in [level["title"]]}
        for text, line in zip(texts["SASS"], last["refs"], strict=True):
            if "STG" in text:
                assert "st.global" in texts["PTX"][line]
                assert "tt.store" in texts["Triton IR"][above["refs"][line]]
            if "LDG." in text:  # inline assembly of several lines
                assert "ld.global" in texts["PTX"][line] and "tt.load" in texts["Triton IR"][above["refs"][line]]
        nowhere = [t for t, s in zip(texts["SASS"], last["sets"], strict=True) if s < 0 and t.startswith("/*")]
        assert len(nowhere) < 0.1 * len(texts["SASS"]), nowhere
        reached |= nodes_of(data, last["sets"])
    assert {"native_layer_norm", "addmm", "gelu", "add"} <= reached


def test_the_hot_loop_of_sass():
    code = [".L_x_0:", "/*0010*/  FFMA R1, R2, R3, R1 ;", "/*0020*/  @P0 BRA `(.L_x_0) ;", "/*0030*/  EXIT ;"]
    assert hot_loop(code) == (0, 2)
