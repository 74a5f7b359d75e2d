# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The examples in the docstrings of passes: ``python -m kiln.tools.pass_examples`` runs them and writes the results.

A docstring ends with a block ``Before::`` and a block ``After::``, both complete MLIR. ``After ``name{options}``::``
names the pipeline that makes one of the other; without it, it is the pass with its defaults. ``After (AVX-512)::`` says
that the result is that of such a machine. ``--check`` writes nothing and fails where a result is stale.
"""

import argparse
import inspect
import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from kiln.passes.core import Pass

__all__ = ["Example", "canonical", "example_of", "main", "result_of"]

_WIDTH = 112
_BLOCK = re.compile(
    r"^(?P<head>Before|After(?: ``(?P<pipeline>[^`]+)``)?(?: \((?P<machine>[^)]+)\))?)::\n\n(?P<body>(?:    .*\n|\n)+)",
    re.M,
)


@dataclass(frozen=True)
class Example:
    """What a pass makes of a module, as its docstring says; ``machine`` is empty where it is the same everywhere."""

    before: str
    after: str
    pipeline: str
    machine: str = ""


def example_of(cls: type[Pass]) -> Example:
    """The example of a pass. Raises ``ValueError`` where its docstring has no two such blocks."""
    blocks = list(_BLOCK.finditer(inspect.cleandoc(cls.__doc__ or "") + "\n"))
    if [match["head"].split(" ")[0] for match in blocks] != ["Before", "After"]:
        raise ValueError(f"the docstring of {cls.__name__} needs one block 'Before::' and one block 'After::'")
    before, after = (textwrap.dedent(match["body"]).strip() + "\n" for match in blocks)
    return Example(before, after, blocks[1]["pipeline"] or cls.name, blocks[1]["machine"] or "")


def result_of(example: Example) -> str:
    """What the pipeline makes of the example's module today, as :func:`canonical` text."""
    from kiln.dialects import create_context, parse
    from kiln.passes import run_pipeline

    with create_context() as context:
        module = parse(example.before, context)
        run_pipeline(module, example.pipeline)
        return _text(module)


def canonical(text: str) -> str:
    """MLIR text as the printer writes it, without the hashes in kernels' names."""
    from kiln.dialects import create_context, parse

    with create_context() as context:
        return _text(parse(text, context))


def _text(module: object) -> str:
    from kiln.dialects import to_text

    lines = [line.rstrip() for line in re.sub(r"_[0-9a-f]{16}\b", "_HASH", to_text(module)).splitlines()]
    if "module {" in lines:
        lines = [line if line.startswith("#") else line[2:] for line in lines if line not in ("module {", "}", "")]
    return "\n".join(lines) + "\n"


def wrapped(text: str) -> str:
    """The text with lines that fit a docstring: broken where MLIR has a space that is no part of a string or a map."""
    return "".join(line + "\n" for long in text.splitlines() for line in _broken(long))


def _broken(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    lines: list[str] = []
    while len(line) > _WIDTH:
        cuts = [cut for cut in _spaces(line) if indent + 8 < cut <= _WIDTH]
        if not cuts:
            break
        # The outermost; of these the last.
        cut = min(cuts, key=lambda k: (_depth(line[:k]), -k))
        lines.append(line[:cut])
        line = " " * (indent + 4) + line[cut + 1 :]
    return [*lines, line]


def _spaces(line: str) -> list[int]:
    """Spaces where a line reads well broken: after a comma, or before ``:``, ``ins`` and the like."""
    found: list[int] = []
    quoted = False
    for k, character in enumerate(line):
        quoted ^= character == '"'
        after = line[k + 1 :]
        if (
            character == " "
            and not quoted
            and (line[k - 1] == "," or re.match(r": |\{\w+ = |ins\(|outs\(|attributes ", after))
        ):
            found.append(k)
    return [k for k in found if line.rfind("<", 0, k) <= line.rfind(">", 0, k)]


def _depth(text: str) -> int:
    """Brackets that are open at the end of the text."""
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")


def _write(cls: type[Pass], text: str) -> None:
    """Put ``text`` into the After block of the pass's docstring, in its file."""
    path = Path(inspect.getsourcefile(cls) or "")
    source = path.read_text(encoding="utf-8")
    start = source.index(f"class {cls.__name__}(")
    match = re.compile(r"^    After[^\n]*::\n\n(?:        .*\n|\n)+", re.M).search(source, start)
    if match is None:
        raise ValueError(f"{path} has no After block for {cls.__name__}")
    head = match[0].split("\n", 1)[0]
    # A quote within a string, as the printer escapes it, and as it is easier to read; then as Python escapes it.
    readable = text.replace("\\22", '\\"').replace("\\", "\\\\")
    block = f"{head}\n\n{textwrap.indent(wrapped(readable), ' ' * 8)}"
    path.write_text(source[: match.start()] + block + source[match.end() :], encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 1 when ``--check`` finds a stale example, or a docstring has none."""
    from kiln.passes.registry import all_passes

    parser = argparse.ArgumentParser(
        prog="python -m kiln.tools.pass_examples", description="Run the examples in the docstrings of passes."
    )
    parser.add_argument("passes", nargs="*", help="names; all by default")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where an example is stale")
    arguments = parser.parse_args(argv)
    status = 0
    for name, cls in all_passes().items():
        if not cls.__module__.startswith("kiln.passes.") or (arguments.passes and name not in arguments.passes):
            continue
        try:
            example = example_of(cls)
            text = result_of(example)
        except Exception as error:  # a docstring may hold anything
            print(f"error: {name}: {error}", file=sys.stderr)
            status = 1
            continue
        if text != _canonical_or_empty(example.after):
            print(f"{name} is stale")
            if arguments.check:
                status = 1
            else:
                _write(cls, text)
    return status


def _canonical_or_empty(text: str) -> str:
    try:
        return canonical(text)
    except Exception:  # whatever stands there is no MLIR: it is stale
        return ""


if __name__ == "__main__":
    sys.exit(main())
