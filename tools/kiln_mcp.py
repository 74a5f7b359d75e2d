# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-mcp``: the workbench as a server of the Model Context Protocol, over stdin and stdout (docs/editors.md)."""

import argparse
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kiln.errors import KilnError
from kiln.tools.editors.workbench import VERBS

__all__ = ["main", "make_server"]

_INSTRUCTIONS = (
    "Kiln compiles PyTorch models by passes on MLIR. compile_model, then show_stage, show the IR of a model;"
    " explain says why ops were not fused; run_pass, check, bisect and reduce work on IR; try_schedule changes the"
    " schedule of a kernel."
)


def make_server() -> Any:
    """The server with the workbench's verbs as tools. Raises ImportError without the package `mcp`."""
    server = importlib.import_module("mcp.server").MCPServer("kiln", instructions=_INSTRUCTIONS)
    for verb in VERBS:
        server.add_tool(_told(verb), name=verb.__name__, description=" ".join((verb.__doc__ or "").split()))
    return server


def _told(verb: Callable[..., str]) -> Callable[..., str]:
    """A verb whose errors reach the client: texts of other exceptions are kept from it."""
    exceptions: Any = importlib.import_module("mcp.server.mcpserver.exceptions")

    @functools.wraps(verb)
    def run(*args: Any, **kwargs: Any) -> str:
        try:
            return verb(*args, **kwargs)
        except KilnError as error:
            raise exceptions.ToolError(str(error)) from error

    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status (1 without the package `mcp`)."""
    description = (
        "Serve the workbench by the Model Context Protocol, over stdin and stdout: an agent's client starts it."
    )
    argparse.ArgumentParser(prog="kiln-mcp", description=description, epilog=_INSTRUCTIONS).parse_args(argv)
    try:
        server = make_server()
    except (ImportError, AttributeError) as error:  # the latter of a version that is too old
        print(f"kiln-mcp: error: {error}; pip install 'kiln-mlir[editors]' has what is needed", file=sys.stderr)
        return 1
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
