# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-lsp``: a language server for ``.mlir`` files with Kiln's dialects, over stdin and stdout (docs/editors.md)."""

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from typing import Any

from kiln.tools.editors import documents
from kiln.tools.editors.documents import Place

__all__ = ["main", "make_server"]

_SEVERITIES = {"error": 1, "warning": 2, "remark": 3, "note": 4}


def make_server() -> Any:
    """The server, with what it answers. Raises ImportError without pygls."""
    types: Any = importlib.import_module("lsprotocol.types")
    server: Any = importlib.import_module("pygls.lsp.server").LanguageServer("kiln-lsp", _version())

    def tell(uri: str) -> None:
        text = server.workspace.get_text_document(uri).source
        found = [_diagnostic(types, text, problem) for problem in documents.problems(text, uri)]
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=found))

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: Any) -> None:
        tell(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: Any) -> None:
        tell(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hovered(params: Any) -> Any:
        text = server.workspace.get_text_document(params.text_document.uri).source
        shown = documents.hover(text, Place(params.position.line, params.position.character))
        content = types.MarkupContent(kind=types.MarkupKind.Markdown, value=shown)
        return types.Hover(contents=content) if shown else None

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    def defined(params: Any) -> Any:
        uri = params.text_document.uri
        text = server.workspace.get_text_document(uri).source
        found = documents.definition(text, Place(params.position.line, params.position.character))
        if found is None:
            return None
        place = types.Position(line=found.line, character=found.column)
        return types.Location(uri=uri, range=types.Range(start=place, end=place))

    del opened, changed, hovered, defined  # the server has them
    return server


def _diagnostic(types: Any, text: str, problem: documents.Problem) -> Any:
    """From the place of a problem to the end of the word there."""
    word = documents.word_at(text, problem.place)
    start = types.Position(line=problem.place.line, character=problem.place.column)
    end = types.Position(line=start.line, character=start.character + max(1, len(word)))
    severity = types.DiagnosticSeverity(_SEVERITIES.get(problem.severity, 1))
    return types.Diagnostic(
        range=types.Range(start=start, end=end), message=problem.message, severity=severity, source="kiln"
    )


def _version() -> str:
    try:
        return importlib.metadata.version("kiln-mlir")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status (1 without pygls)."""
    description = "A language server for .mlir files, over stdin and stdout: an editor starts it (docs/editors.md)."
    parser = argparse.ArgumentParser(prog="kiln-lsp", description=description)
    parser.add_argument("--stdio", action="store_true", help="accepted, as editors add it: there is no other way")
    parser.parse_known_args(argv)  # editors add more, such as --clientProcessId
    try:
        server = make_server()
    except ImportError as error:
        print(f"kiln-lsp: error: {error}; pip install 'kiln-mlir[editors]' has what is needed", file=sys.stderr)
        return 1
    server.start_io()
    return 0


if __name__ == "__main__":
    sys.exit(main())
