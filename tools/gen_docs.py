# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The generated references: ``python -m kiln.tools.gen_docs`` writes ``docs/reference/``: passes, ops, schedules.

Everything comes from the code: docstrings, pass options, op fields, the pipeline with its reasons. ``--check`` writes
nothing and fails when a file is stale. References are made in a checkout; an installation has no ``docs``.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kiln.errors import KilnError
from kiln.passes.core import Pass
from kiln.passes.options import options_of
from kiln.passes.registry import all_passes
from kiln.tools.list_passes import default_text

__all__ = ["main", "ops_page", "passes_page", "schedules_page", "stale"]

_NOTICE = "<!-- Written by `python -m kiln.tools.gen_docs` from the code. Do not edit. -->"


def passes_page() -> str:
    """The pass reference as Markdown."""
    passes = {name: cls for name, cls in all_passes().items() if cls.__module__.startswith("kiln.passes.")}
    lines = [_NOTICE, "", "# Passes", ""]
    lines += ["`kiln-opt --list-passes` prints the short form. Options are given as `name{option=value ...}`.", ""]
    lines += _pipelines()
    lines += ["## Reference", ""]
    for name, cls in passes.items():
        lines += _pass(name, cls)
    return _join(lines)


def _pipelines() -> list[str]:
    from kiln.passes.pipelines import PIPELINES

    lines: list[str] = []
    for name, make in PIPELINES.items():
        lines += [
            f"## Pipeline `{name}`",
            "",
            "| step | why it stands there | stage complete after it |",
            "|---|---|---|",
        ]
        for step in make():
            spec = step.pass_.spec().replace("|", "\\|")
            lines.append(f"| `{spec}` | {step.why} | {f'`{step.stage}`' if step.stage else ''} |")
        lines.append("")
    return lines


def _pass(name: str, cls: type[Pass]) -> list[str]:
    module = cls.__module__.removeprefix("kiln.").replace(".", "/")
    lines = [f"### `{name}`", "", f"`{cls.__name__}` in `{module}.py`", "", _doc(cls), ""]
    options = options_of(cls)
    if options:
        lines += ["| option | type | default | meaning |", "|---|---|---|---|"]
        for option in options:
            kind = option.type_name.replace("|", "\\|")
            lines.append(f"| `{option.name}` | {kind} | `{default_text(option.default)}` | {option.help} |")
        lines.append("")
    return lines


def ops_page() -> str:
    """The reference of the `kiln` dialect's ops as Markdown."""
    from kiln.dialects import kiln

    return _dialect_page(kiln.Kiln, kiln.OPS)


def tt_page() -> str:
    """The reference of the `tt` dialect's ops as Markdown."""
    from kiln.dialects import tt

    return _dialect_page(tt.Tt, tt.OPS)


def schedules_page() -> str:
    """The reference of the kernels' schedules as Markdown."""
    from kiln.dialects import schedules

    lines = [_NOTICE, "", "# Schedules", ""]
    lines += [
        "The attribute `schedule` of a `kiln.fusion` ([fusion-attributes.md](../fusion-attributes.md)), by its entry"
    ]
    lines += ["`kernel`. Fields with their default are not printed. The verifier checks all fields.", ""]
    named = [*schedules.kernels().items(), *((class_.__name__, class_) for class_ in schedules.pieces())]
    for name, class_ in named:
        lines += [f"## `{name}`", "", f"`{class_.__name__}` in `{_file(class_)}`", "", _doc(class_), ""]
        lines += _schedule_fields(class_)
    return _join(lines)


def _schedule_fields(class_: Any) -> list[str]:
    """A table of the fields of a schedule, those of parts without a kernel of their own included."""
    from kiln.dialects import schedules

    rows = [f"| `{name}` | {kind} | {default} |" for name, kind, default in schedules.field_texts(class_)]
    return ["| field | allowed | default |", "|---|---|---|", *(row.replace("||", "| |") for row in rows), ""]


def _file(class_: type) -> str:
    return class_.__module__.removeprefix("kiln.").replace(".", "/") + ".py"


def _dialect_page(dialect: Any, ops_of_dialect: list[Any]) -> str:
    """Ops grouped by the file that defines them."""
    groups: dict[str, list[Any]] = {}
    for op in ops_of_dialect:
        groups.setdefault(op.__module__, []).append(op)
    lines = [_NOTICE, "", f"# The `{dialect.DIALECT_NAMESPACE}` dialect", "", _doc(dialect), ""]
    for module, ops in sorted(groups.items()):
        about = inspect.cleandoc(sys.modules[module].__doc__ or "").split("\n\n")[0]
        lines += [f"## {module.rsplit('.', 1)[-1]}", "", " ".join(about.split()), ""]
        for op in ops:
            lines += [f"### `{op.OPERATION_NAME}`", "", _doc(op), "", *_row(op), *_fields(op)]
    return _join(lines)


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


def _join(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


_PAGES: dict[str, Callable[[], str]] = {
    "passes.md": passes_page,
    "ops.md": ops_page,
    "schedules.md": schedules_page,
    "tt.md": tt_page,
}


def stale(folder: Path) -> list[Path]:
    """The files in ``folder`` that are missing or differ from what the code says."""
    pages = {folder / name: make() for name, make in _PAGES.items()}
    return [p for p, text in pages.items() if not p.exists() or p.read_text(encoding="utf-8") != text]


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
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in _PAGES.items():
            (folder / name).write_text(make(), encoding="utf-8")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
