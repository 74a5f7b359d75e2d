# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The generated references: ``python -m kiln.tools.gen_docs`` writes ``docs/reference/``: passes, ops, schedules.

Everything comes from the code: docstrings, pass options, op fields, the pipeline with its reasons. Each reference is a
page that lists what there is, and a folder with a page per pass, or per group of ops or schedules. ``--check`` writes
nothing and fails when a file is stale. References are made in a checkout; an installation has no ``docs``.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kiln.errors import KilnError
from kiln.passes.core import Pass
from kiln.passes.options import options_of
from kiln.passes.registry import all_passes
from kiln.tools.list_passes import default_text

__all__ = ["main", "pages", "stale"]

_NOTICE = "<!-- Written by `python -m kiln.tools.gen_docs` from the code. Do not edit. -->"

Lines = list[str]


def pages() -> dict[str, str]:
    """Path below ``docs/reference`` -> Markdown."""
    from kiln.dialects import kiln, tt

    found: dict[str, Lines] = {}
    found |= _passes()
    found |= _dialect("ops", kiln.Kiln, kiln.OPS)
    found |= _dialect("tt", tt.Tt, tt.OPS)
    found |= _schedules()
    return {path: "\n".join([_NOTICE, "", *lines]).rstrip() + "\n" for path, lines in found.items()}


# ----------------------------------------------------------------------------------------------------------- passes


def _passes() -> dict[str, Lines]:
    """``passes.md``, the pipelines and all passes, and a page for each pass."""
    passes = {name: cls for name, cls in all_passes().items() if cls.__module__.startswith("kiln.passes.")}
    lines = ["# Passes", ""]
    lines += ["`kiln-opt --list-passes` prints the short form. Options are given as `name{option=value ...}`.", ""]
    lines += ["| pass | what it does |", "|---|---|"]
    lines += [f"| [`{name}`](passes/{name}.md) | {_summary(cls)} |" for name, cls in passes.items()]
    lines += ["", *_pipelines(passes)]
    return {"passes.md": lines} | {f"passes/{name}.md": _pass(name, cls) for name, cls in passes.items()}


def _pipelines(passes: Mapping[str, type[Pass]]) -> Lines:
    from kiln.passes.pipelines import named_pipeline

    lines: Lines = []
    for name in ("cpu", "gpu", "tt-cpu"):
        lines += [
            f"## Pipeline `{name}`",
            "",
            "| step | why it stands there | stage complete after it |",
            "|---|---|---|",
        ]
        for step in named_pipeline(name):
            spec = step.pass_.spec()
            text = f"`{spec}`".replace("|", "\\|")
            base = spec.partition("{")[0]
            linked = f"[{text}](passes/{base}.md)" if base in passes else text
            lines.append(f"| {linked} | {step.why} | {f'`{step.stage}`' if step.stage else ''} |")
        lines.append("")
    return lines


def _pass(name: str, cls: type[Pass]) -> Lines:
    lines = [f"# `{name}`", "", f"`{cls.__name__}` in `{_file(cls)}`", "", _doc(cls), ""]
    options = options_of(cls)
    if options:
        lines += ["| option | type | default | meaning |", "|---|---|---|---|"]
        for option in options:
            kind = option.type_name.replace("|", "\\|")
            meaning = option.help.replace("|", "\\|")
            lines.append(f"| `{option.name}` | {kind} | `{default_text(option.default)}` | {meaning} |")
        lines.append("")
    return [*lines, "All passes: [passes.md](../passes.md)."]


# -------------------------------------------------------------------------------------------------------- schedules


def _schedules() -> dict[str, Lines]:
    """``schedules.md`` and a page for each kind of kernel: ``cpu.gemm``, ``gpu.conv``, ..."""
    from kiln.dialects import schedules

    groups: dict[str, list[tuple[str, Any]]] = {}
    for name, class_ in schedules.kernels().items():
        groups.setdefault(".".join(name.split(".")[:2]) if name.count(".") > 1 else "others", []).append((name, class_))
    for class_ in schedules.pieces():
        groups.setdefault("others", []).append((class_.__name__, class_))
    lines = ["# Schedules", ""]
    lines += [
        "The attribute `schedule` of a `kiln.fusion` ([fusion-attributes.md](../fusion-attributes.md)), by its entry"
    ]
    lines += ["`kernel`. Fields with their default are not printed. The verifier checks all fields.", ""]
    lines += ["| schedule | of |", "|---|---|"]
    found: dict[str, Lines] = {"schedules.md": lines}
    for group, members in sorted(groups.items()):
        page = [f"# Schedules: `{group}`" if group != "others" else "# Other schedules", ""]
        for name, class_ in members:
            lines.append(f"| [`{name}`](schedules/{group}.md#{_anchor(name)}) | {_summary(class_)} |")
            page += [f"## `{name}`", "", f"`{class_.__name__}` in `{_file(class_)}`", "", _doc(class_), ""]
            page += _schedule_fields(class_)
        found[f"schedules/{group}.md"] = [*page, "All schedules: [schedules.md](../schedules.md)."]
    return found


def _schedule_fields(class_: Any) -> list[str]:
    """A table of the fields of a schedule, those of parts without a kernel of their own included."""
    from kiln.dialects import schedules

    rows = [f"| `{name}` | {kind} | {default} |" for name, kind, default in schedules.field_texts(class_)]
    return ["| field | allowed | default |", "|---|---|---|", *(row.replace("||", "| |") for row in rows), ""]


def _file(class_: type) -> str:
    return class_.__module__.removeprefix("kiln.").replace(".", "/") + ".py"


# ------------------------------------------------------------------------------------------------------------- ops


def _dialect(page: str, dialect: Any, ops_of_dialect: Sequence[Any]) -> dict[str, Lines]:
    """``PAGE.md``, a table of a dialect's ops, and a page for each file that defines some."""
    groups: dict[str, list[Any]] = {}
    for op in ops_of_dialect:
        groups.setdefault(op.__module__.rsplit(".", 1)[-1], []).append(op)
    lines = [f"# The `{dialect.DIALECT_NAMESPACE}` dialect", "", _doc(dialect), ""]
    lines += ["| op | | page |", "|---|---|---|"]
    found: dict[str, Lines] = {f"{page}.md": lines}
    for group, ops in sorted(groups.items()):
        about = inspect.cleandoc(sys.modules[ops[0].__module__].__doc__ or "").split("\n\n")[0]
        own = [f"# `{dialect.DIALECT_NAMESPACE}` dialect: {group}", "", " ".join(about.split()), ""]
        for op in ops:
            link = f"{page}/{group}.md#{_anchor(op.OPERATION_NAME)}"
            lines.append(f"| [`{op.OPERATION_NAME}`]({link}) | {_summary(op)} | [{group}]({page}/{group}.md) |")
            own += [f"## `{op.OPERATION_NAME}`", "", _doc(op), "", *_row(op), *_fields(op)]
        found[f"{page}/{group}.md"] = [*own, f"All ops: [{page}.md](../{page}.md)."]
    return found


def _row(op: Any) -> list[str]:
    """What the table of ops says of an op; nothing for ops of other dialects and those that are no part of fusion."""
    from kiln.dialects import kiln
    from kiln.lowering.emitters import kernel_kinds

    entry = next((entry for entry in kiln.opdefs() if entry.op is op), None)
    if entry is None or (entry.role is kiln.Role.OPAQUE and entry.reference is None):
        return []
    facts = [f"Role in fusion: {entry.role.value}."]
    if entry.reference is not None:
        module = entry.reference if isinstance(entry.reference, str) else entry.reference.__module__
        facts.append(f"Reference: `{module.partition(':')[0].removeprefix('kiln.').replace('.', '/')}.py`.")
    targets = [target for target in ("cpu", "gpu") if entry.kind in kernel_kinds(target)]
    if targets:
        facts.append(f"Kernels of its own: {', '.join(targets)}.")
    return [" ".join(facts), ""]


def _fields(op: Any) -> list[str]:
    """A table of operands, results and attributes; for an op family, which takes any operands, its attributes."""
    rows: list[tuple[str, str, str]] = []
    if hasattr(op, "_fields"):
        for field in op._fields:
            kind = type(field).__name__.removesuffix("Def").lower()
            many = {"optional": "optional ", "variadic": "any number of "}.get(_variadicity(field), "")
            rows.append((field.name, kind, many + _constraint(getattr(field, "constraint", None))))
    else:
        rows = [(name, "attribute", _constraint(c.lstrip("#"))) for name, c in op.ATTRIBUTES.items()]
    if not rows:
        return []
    rows.sort(key=lambda row: ("operand", "result", "attribute", "region").index(row[1]))
    return ["| field | kind | type |", "|---|---|---|", *(f"| `{n}` | {k} | {t} |" for n, k, t in rows), ""]


def _variadicity(field: Any) -> str:
    return str(getattr(field, "variadicity", "")).rsplit(".", 1)[-1].split(":")[0]


def _constraint(constraint: Any) -> str:
    if constraint is None or constraint is Any:
        return "any"
    name = getattr(constraint, "__name__", str(constraint))
    return _TYPE_NAMES.get(name, name)


_TYPE_NAMES = {
    "AffineMapAttr": "affine map",
    "ArrayAttr": "array",
    "FloatAttr": "float",
    "I64Array": "array of i64",
    "IndexType": "index",
    "IntegerAttr": "integer or bool",
    "RankedTensorType": "ranked tensor",
    "StringAttr": "string",
    "builtin.array": "array",
    "builtin.integer": "integer or bool",
    "builtin.string": "string",
}


def _doc(cls: type) -> str:
    # "Before::" with an indented block is a code block in Markdown as well, less one colon.
    return re.sub(r"::$", ":", inspect.cleandoc(cls.__doc__ or ""), flags=re.M)


def _summary(cls: type) -> str:
    """The first sentence of the docstring, for a cell of a table."""
    paragraph = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
    sentence = re.match(r".*?[.:;](?= |$)", paragraph)
    return (sentence[0] if sentence else paragraph).rstrip(".:;").replace("|", "\\|")


def _anchor(heading: str) -> str:
    """What a link to a heading ends with."""
    return re.sub(r"[^\w-]", "", heading.lower())


def _generated(folder: Path) -> Iterator[Path]:
    """The files in ``folder`` that say that they are generated."""
    for path in sorted(folder.rglob("*.md")):
        if path.read_text(encoding="utf-8").startswith(_NOTICE):
            yield path


def stale(folder: Path) -> list[Path]:
    """The files in ``folder`` that are missing, differ from what the code says, or are about what is gone."""
    now = {folder / path: text for path, text in pages().items()}
    old = [p for p, text in now.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    return [*old, *(path for path in _generated(folder) if path not in now)]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 1 when ``--check`` finds a stale file, or the code cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m kiln.tools.gen_docs", description="Write the generated references."
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    parser.add_argument("--folder", default="docs/reference", help="where the pages are (docs/reference)")
    arguments = parser.parse_args(argv)
    folder = Path(arguments.folder)
    try:
        if arguments.check:
            old = stale(folder)
            for path in old:
                print(f"error: {path} is stale; run python -m kiln.tools.gen_docs", file=sys.stderr)
            return 1 if old else 0
        for path in _generated(folder):
            path.unlink()
        for name, text in pages().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
