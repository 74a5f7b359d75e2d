# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The trace as one HTML file that needs nothing else: data, styles and scripts are in it."""

import base64
import gzip
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from kiln.errors import KilnError
from kiln.frontend.report.trace.graph_data import graph_data
from kiln.frontend.report.trace.records import GraphTrace

__all__ = ["page", "page_data", "page_of", "write_page"]

_STYLES = ("page.css",)
_SCRIPTS = ("data.js", "lines.js", "selection.js", "pictures.js", "times.js", "tabs.js", "main.js")
"""In the order in which they are run; each adds to the one object ``kiln``."""


def page(traces: Sequence[GraphTrace], title: str = "Kiln trace") -> str:
    """The page of some graphs."""
    return page_of(page_data(traces, title))


def page_data(traces: Sequence[GraphTrace], title: str = "Kiln trace") -> dict[str, Any]:
    """What the page of some graphs shows, as JSON."""
    return {"title": title, "graphs": [graph_data(trace) for trace in traces]}


def page_of(data: dict[str, Any], more: Sequence[str] = ()) -> str:
    """The page of such data; ``more``: names of scripts that it runs as well."""
    packed = gzip.compress(json.dumps(data, separators=(",", ":")).encode(), compresslevel=6, mtime=0)
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(_asset("page.html.j2"))
    return template.render(
        title=data["title"],
        styles="\n".join(map(_asset, _STYLES)),
        scripts="\n".join(map(_asset, (*_SCRIPTS[:-1], *more, _SCRIPTS[-1]))),
        data=base64.b64encode(packed).decode(),
    )


def write_page(path: str | Path, traces: Sequence[GraphTrace], title: str = "Kiln trace") -> None:
    """Write the page of some graphs. Raises KilnError for a file that cannot be written."""
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(traces, title), encoding="utf-8")
    except OSError as error:
        raise KilnError(f"cannot write the trace to {file}: {error.strerror}") from error


def _asset(name: str) -> str:
    return (resources.files("kiln.frontend.report.trace") / "assets" / name).read_text(encoding="utf-8")
