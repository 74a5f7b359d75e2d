# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The page of a trace in a browser: every tab has something to show, and a model's line leads to instructions and back."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kiln

_spec = importlib.util.spec_from_file_location("kiln_test_chromium", Path(__file__).parent / "chromium.py")
assert _spec is not None and _spec.loader is not None
browser = sys.modules.setdefault(_spec.name, importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(browser)

pytestmark = pytest.mark.skipif(browser.find() is None, reason="needs Chromium (Debian: apt-get install chromium)")
_LARGEST = 10 << 20
_TABS = ("Overview", "Model", "Graph", "Passes", "Stages", "Fusions", "Kernels", "Memory", "Host")


def bert() -> tuple[Any, dict[str, Any]]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=128, vocab_size=100
    )
    return BertModel(config).eval(), {"input_ids": torch.randint(0, 100, (2, 16))}


def llama_decoding() -> tuple[Any, dict[str, Any]]:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,
        vocab_size=100, max_position_embeddings=32,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    cache = StaticCache(config=config, max_cache_len=32)
    model(torch.randint(0, 100, (1, 5)), past_key_values=cache, cache_position=torch.arange(5))
    return model, {
        "input_ids": torch.randint(0, 100, (1, 1)),
        "past_key_values": cache,
        "cache_position": torch.tensor([5]),
    }


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("make", [bert, llama_decoding])
def test_the_page(make: Any, target: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    file = tmp_path / "trace.html"
    with torch.no_grad():
        model, inputs = make()
        kiln.trace(model, options={"target": target}, **inputs).save(file)
    assert file.stat().st_size < _LARGEST
    with browser.chromium(tmp_path) as page:
        page.open(file)
        for tab in _TABS:
            page.value(f"kiln.open('{tab}')")
            page.wait("document.querySelector('#panel .row, #panel td, #panel .shape') !== null")
            assert page.value("document.getElementById('panel').textContent.length") > 40
        _there_and_back(page)
        assert page.errors == []
        assert {url.partition(":")[0] for url in page.requests} <= {"file", "data"}


def _there_and_back(page: Any) -> None:
    """A click on a line of the model, the link to its assembly, and a click on an instruction there."""
    page.value("kiln.open('Model')")
    page.wait("document.querySelector('.row.used') !== null")
    # A line with an op that computes something: views have no instructions.
    line = page.value(
        """(() => {
          const text = kiln.graph.texts.get(`file/${kiln.mainFile(kiln.graph)}`);
          const asm = [...kiln.graph.texts].filter(([id, t]) => t.title.startsWith("assembly"));
          const made = new Set(asm.flatMap(([id, t]) => t.lines.flatMap((_, i) => t.nodesOf(i))));
          const line = text.sets.findIndex((s, i) => text.nodesOf(i).some((n) => made.has(n)
            && kiln.graph.nodes[n].frames.at(-1)[1] === i + 1));
          kiln.views[0].show(line);
          return line;
        })()"""
    )
    assert line >= 0
    name = page.value("kiln.views[0].options.id")
    page.click(f"#{name}-{line}")
    assert page.value(f"document.getElementById('{name}-{line}').classList.contains('strong')")
    number = page.value(
        """(() => {
          const links = [...document.querySelectorAll('#provenance [data-to^="kernel/"]')];
          const found = links.findIndex((link) => link.textContent.startsWith("assembly"));
          links[found].id = "to-assembly";
          return found;
        })()"""
    )
    assert number >= 0
    page.click("#to-assembly")
    page.wait("kiln.tab === 'Kernels' && document.querySelector('.lines:focus .row.cursor') !== null")
    touched = page.value("document.querySelector('.lines:focus .row.cursor').className")
    assert "strong" in touched or "weak" in touched
    page.key("ArrowDown")
    page.key("n")
    page.key("Enter")
    assert page.value("kiln.selected.size") > 0
    back = page.value(
        f"""(() => {{
          const links = [...document.querySelectorAll('#provenance [data-to^="file/"]')];
          const found = links.find((link) => link.textContent.includes(":{line + 1} "));
          if (found) found.id = "to-model";
          return Boolean(found);
        }})()"""
    )
    assert back, "the instruction leads to the line that led to it"
    page.click("#to-model")
    page.wait(f"kiln.tab === 'Model' && document.getElementById('{name}-{line}')?.classList.contains('cursor')")


def test_search_and_keys(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file = tmp_path / "trace.html"
    with torch.no_grad():
        kiln.trace(lambda x: torch.softmax(x.sin() * 2, -1), torch.randn(4, 20)).save(file)
    with browser.chromium(tmp_path) as page:
        page.open(file)
        page.value("document.getElementById('search').focus()")
        page.call("Input.insertText", text="math.sin")
        page.wait("kiln.tab === 'Search' && document.querySelectorAll('#panel .link').length > 0")
        page.click("#panel .link")
        page.wait("document.querySelector('.row.cursor .code')?.textContent.includes('math.sin')")
        page.value("document.querySelector('#tabs [aria-selected=true]').focus()")
        page.key("ArrowRight")
        assert page.value("document.activeElement.getAttribute('aria-selected')") == "true"
        before = page.value("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.value("getComputedStyle(document.body).backgroundColor") != before
        assert page.errors == []


def test_sass_and_back(tmp_path: Path) -> None:
    """An instruction of a GPU's kernel leads to PTX, Triton IR and the model's line, and that line to the instruction."""
    from kiln.lowering.gpu.compile import compile_ttir, triton_problem
    from kiln.lowering.gpu.sass import disassembler, sass

    if triton_problem() or disassembler() is None:
        pytest.skip("needs Triton, and nvdisasm of its package")
    torch._dynamo.reset()
    file = tmp_path / "trace.html"
    with torch.no_grad():
        found = kiln.trace(lambda x: x.exp() + 1, torch.randn(4, 200), options={"target": "tt-cpu"})
    record = found.graphs[0].record
    for name in record.ttir:
        made = compile_ttir(found.graphs[0].kernel(name, "ttir"), "sm_90")
        record.code[name] = {"ptx": made.ptx, "sass": sass(made.cubin or b"") or ""}
    found.save(file)
    with browser.chromium(tmp_path) as page:
        page.open(file)
        assert "Where the time goes" in page.value("document.getElementById('panel').textContent")
        page.value("kiln.open('Kernels')")
        for level, text in [("SASS", "MUFU.EX2"), ("PTX", "ex2.approx"), ("Triton IR", "math.exp")]:
            page.value(
                f"(() => {{ const v = kiln.views.find((v) => v.text.title.startsWith('{level}'));"
                f" v.choose(v.text.lines.findIndex((line) => line.includes('{text}'))); }})()"
            )
            shown = page.value("[...document.querySelectorAll('.row.cursor .code')].map((row) => row.textContent)")
            assert sum("ex2.approx" in line for line in shown) == 1 or level == "Triton IR", shown
            assert sum("math.exp" in line for line in shown) >= 1, shown
            assert "test_chromium.py" in page.value("document.getElementById('provenance').textContent")
        assert page.errors == []


def test_the_page_in_a_notebook(tmp_path: Path) -> None:
    torch._dynamo.reset()
    file = tmp_path / "cell.html"
    with torch.no_grad():
        shown = kiln.trace(lambda x: x.sin() + 1, torch.randn(4, 20))._repr_html_()
    file.write_text(f"<!doctype html><html data-ready=yes><meta charset=utf-8><body>{shown}")
    with browser.chromium(tmp_path) as page:
        page.open(file)
        inside = "document.querySelector('iframe').contentDocument"
        page.wait(f"{inside}?.documentElement?.dataset.ready === 'yes'")
        assert "1 kernels" in page.value(f"{inside}.getElementById('panel').textContent")
        assert page.errors == []


def test_a_narrow_page(tmp_path: Path) -> None:
    """As in a cell of a notebook: no word of a table's head is broken, and the selection is below."""
    torch._dynamo.reset()
    file = tmp_path / "trace.html"
    with torch.no_grad():
        kiln.trace(lambda x, y: torch.softmax(x @ y, -1), torch.randn(4, 20), torch.randn(20, 40)).save(file)
    with browser.chromium(tmp_path) as page:
        page.call("Emulation.setDeviceMetricsOverride", width=711, height=800, deviceScaleFactor=1, mobile=False)
        page.open(file)
        heights = page.value(
            "[...document.querySelectorAll('#panel table')[0].rows[0].cells].map((e) => e.offsetHeight)"
        )
        assert heights and len(set(heights)) == 1 and heights[0] < 30
        boxes = "['panel', 'provenance'].map((id) => document.getElementById(id).getBoundingClientRect())"
        assert page.value(f"(() => {{ const [a, b] = {boxes}; return b.top >= a.bottom && b.left <= a.left; }})()")


def test_a_graph_of_a_thousand_ops(tmp_path: Path) -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for i in range(125):
            x = torch.relu(x @ x.mT + i % 5).softmax(-1) * 2 - x.mean(-1, keepdim=True).sin()
        return x

    torch._dynamo.reset()
    file = tmp_path / "trace.html"
    with torch.no_grad():
        kiln.trace(long, torch.randn(16, 16), calls=1).save(file)
    assert file.stat().st_size < _LARGEST
    with browser.chromium(tmp_path) as page:
        page.open(file)
        assert page.value("kiln.graph.ops") >= 1000
        for tab in _TABS:
            spent = page.value(
                f"(() => {{ const s = performance.now(); kiln.open('{tab}'); return performance.now() - s; }})()"
            )
            assert spent < 3000, tab
        assert page.value("kiln.open('Graph'), document.querySelectorAll('.row').length") < 200
        spent = page.value(
            "(() => { const s = performance.now(); kiln.pick('graph', 500); return performance.now() - s; })()"
        )
        assert spent < 1000
        assert page.errors == []
