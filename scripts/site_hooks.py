# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What mkdocs.yml cannot say: the order of pages, pages from outside of docs/, links to sources, the API reference."""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
#: Files outside of docs/ that are pages: their path in the repository and that in the site.
OUTSIDE = {name: name for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
OUTSIDE |= {f"examples/{path.name}": f"examples/{path.stem}.md" for path in sorted((ROOT / "examples").glob("*.ipynb"))}

#: The public names, by the module that defines them: name -> (module, what is shown of it).
API = {
    "kiln.explain": "kiln.frontend.report.explain.explain",
    "kiln.Explanation": "kiln.frontend.report.explain.Explanation",
    "kiln.profile": "kiln.frontend.report.profile.profile",
    "kiln.Profile": "kiln.frontend.report.profile.Profile",
    "kiln.trace": "kiln.frontend.report.trace.notebook.trace",
    "kiln.Trace": "kiln.frontend.report.trace.notebook.Trace",
    "kiln.TracedGraph": "kiln.frontend.report.trace.notebook.TracedGraph",
    "kiln.Stage": "kiln.frontend.report.trace.notebook.Stage",
    "kiln.Insert": "kiln.inserts.Insert",
    "kiln.patterns": "kiln.patterns",
    "kiln.schedules": "kiln.schedules",
    "kiln.errors": "kiln.errors",
    "Options": "kiln.frontend.options.Options",
    "Passes": "kiln.passes.core",
    "Pass managers": "kiln.passes.manager",
    "Instruments": "kiln.passes.instruments.base",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation: the headings and tables of docs/README.md."""
    text = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    order, _, extend = text.partition("To extend Kiln:")
    extend, _, generated = extend.partition("Generated from the code:")
    config.nav = [
        {"Kiln": "README.md"},
        {"How it works": _rows(order)},
        {"Extend it": _rows(extend)},
        {"Notebooks": [path for path in OUTSIDE.values() if path.startswith("examples/")]},
        {"Complaints": ["complaints/README.md", *sorted(_names("complaints"))]},
        {"Reference": ["reference/api.md", *re.findall(r"\]\((reference/[\w/.-]+)\)", generated)]},
        {"Changes": "CHANGELOG.md"},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made here."""
    for source, path in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, path, content=_notebook(text) if source.endswith(".ipynb") else text))
    files.append(File.generated(config, "reference/api.md", content=_api()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links by what is in the repository, as pages of the site; a source file has no page, and its name stays."""
    here = next((source for source, path in OUTSIDE.items() if path == page.file.src_uri), f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(here)

    def linked(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or not target:
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        site = path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE.get(path, "")
        if not site:
            return text
        return f"[{text}]({posixpath.relpath(site, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    link = re.compile(r"(?<!!)\[([^\]\n]+(?:\n[^\]\n]+)?)\]\(([^)#\s]*)(#[^)\s]*)?\)")
    return "".join(part if part.startswith("```") else link.sub(linked, part) for part in parts)


def _rows(text: str) -> list[str]:
    """The pages that the first column of a table links to."""
    links = re.findall(r"^\| \[[^\]]+\]\(([\w./-]+)\)", text, re.M)
    return [OUTSIDE.get(link.removeprefix("../"), link) for link in links]


def _names(folder: str) -> list[str]:
    pages = (ROOT / "docs" / folder).glob("*.md")
    return [f"{folder}/{page.name}" for page in pages if page.name != "README.md"]


def _notebook(text: str) -> str:
    """A notebook as a page."""
    cells: list[dict[str, Any]] = json.loads(text)["cells"]
    sources = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in sources)


def _api() -> str:
    head = (
        "# Python API\n\nMade of docstrings. [Options](../../README.md) of `torch.compile` are fields of `Options`.\n"
    )
    head = head.replace("[Options](../../README.md)", "Options")
    return head + "".join(f"\n## {name}\n\n::: {path}\n" for name, path in API.items())
