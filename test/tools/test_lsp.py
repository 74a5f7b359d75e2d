# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What editors are told of files of IR, and the language server that tells it."""

import asyncio
import importlib.util
import subprocess
import sys

import pytest

from kiln.tools.editors.documents import Place, definition, hover, problems

TEXT = """\
#map = affine_map<(d0) -> (d0)>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "kiln.fusion"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    %0 = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%a : tensor<4xf32>) outs(%0 : tensor<4xf32>) {
    ^bb0(%a_0: f32, %out: f32):
      %2 = math.exp %a_0 : f32
      linalg.yield %2 : f32
    } -> tensor<4xf32>
    "kiln.yield"(%1) : (tensor<4xf32>) -> ()
  }) {kind = "pointwise", name = "exp"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def place(text, number=0, of=TEXT):
    """That of an occurrence of a text."""
    at = -1
    for _ in range(number + 1):
        at = of.index(text, at + 1)
    return Place(of.count("\n", 0, at), at - of.rfind("\n", 0, at) - 1)


def test_a_right_file_has_no_problems():
    assert problems(TEXT) == []


@pytest.mark.parametrize(
    ("old", "new", "name", "where", "message"),
    [
        ("math.exp %a_0", "math.exp %b", "x.mlir", "%b : f32", "use of undeclared SSA value name"),
        ("math.exp %a_0 : f32", "math.exp %a_0 : i32", "x.mlir", "%a_0 : i32", "different type"),
        ('"kiln.yield"(%1)', '"kiln.yield"(%0, %1)', "x.mlir", '"kiln.yield"', ""),
        ("call @main", "call @none", "x.mlir", "call @none", "does not reference a valid function"),
        ("", "", "x.fused.mlir", "call @main", "stage 'fused': func.call is not allowed"),
    ],
)
def test_problems_are_where_they_are(old, new, name, where, message):
    """Also in a part behind another, with ops that come from lines of a model."""
    text = "// first\n// -----\n" + TEXT.replace("tensor<4xf32>\n}", 'tensor<4xf32> loc("model.py":77:3)\n}')
    text = text.replace(old, new, 1) if old else text
    (problem,) = problems(text, f"/tmp/{name}")
    assert message in problem.message and problem.severity == "error"
    assert problem.place.line == place(where, of=text).line, problem


def test_values_are_found_in_their_regions():
    assert definition(TEXT, place("%0 : tensor<4xf32>) {")) == place("%0 = ", 1)
    assert definition(TEXT, place("return %0")) is None  # the op
    assert definition(TEXT, Place(place("return %0").line, 10)) == place("%0 = ")
    assert definition(TEXT, place("%x) : (tensor")) == place("%x: tensor", 1)
    assert definition(TEXT, place("%a :")) == place("%a: ")
    assert definition(TEXT, place("%a_0 : f32")) == place("%a_0: ")


def test_symbols_and_aliases_are_found():
    assert definition(TEXT, place("@main(%x) :")).line == 1
    assert definition(TEXT, place("#map, ")) == Place(0, 0)


def test_hover_shows_documentation_and_definitions():
    assert hover(TEXT, place("kiln.fusion")).startswith("**kiln.fusion**\n\n")
    assert "natural exponential" in hover(TEXT, place("math.exp"))
    assert hover(TEXT, place("%2 : f32")) == "```mlir\n%2 = math.exp %a_0 : f32\n```"
    assert hover(TEXT, place("ins(")) == ""


def test_help_is_shown(capsys):
    """A server that waits for a client looks like a command that hangs."""
    from kiln.tools.kiln_lsp import main

    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "over stdin and stdout" in " ".join(capsys.readouterr().out.split())


def test_a_missing_package_is_said():
    program = "import sys; sys.modules['pygls'] = None; from kiln.tools.kiln_lsp import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'kiln-mlir[editors]'" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("pygls") is None, reason="needs pygls (pip install kiln-mlir[editors])")
def test_the_server_answers():
    from lsprotocol import types
    from pygls.lsp.client import LanguageClient

    async def session():
        client = LanguageClient("test", "1")
        told = asyncio.Queue()

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params):
            told.put_nowait(params.diagnostics)

        await client.start_io(sys.executable, "-m", "kiln.tools.kiln_lsp", "--stdio", "--clientProcessId=1")
        await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        uri = "file:///x.mlir"
        wrong = TEXT.replace("math.exp %a_0", "math.exp %b")
        item = types.TextDocumentItem(uri=uri, language_id="mlir", version=1, text=wrong)
        client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        (first,) = await asyncio.wait_for(told.get(), 60)
        change = types.TextDocumentContentChangeWholeDocument(text=TEXT)
        document = types.VersionedTextDocumentIdentifier(uri=uri, version=2)
        client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        second = await asyncio.wait_for(told.get(), 60)
        at = place("%a_0 : f32")
        where = types.TextDocumentIdentifier(uri=uri), types.Position(line=at.line, character=at.column)
        hovered = await client.text_document_hover_async(types.HoverParams(*where))
        defined = await client.text_document_definition_async(types.DefinitionParams(*where))
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
        return first, second, hovered, defined

    first, second, hovered, defined = asyncio.run(session())
    assert "undeclared" in first.message and first.range.start.line == place("math.exp").line
    assert not second and "%a_0: f32" in hovered.contents.value
    assert defined.range.start.line == place("%a_0: ").line
