# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The worked example of docs/architecture.md: ``python -m kiln.tools.gen_example`` compiles one small model and writes
its IR at every stage between the page's ``<!-- stage: NAME -->`` marks.

``--check`` writes nothing and fails when a stage that is the same on every machine is stale. What depends on the CPU
(vector widths, tiles, hashes of kernels) is masked or, in the kernel itself, left as the machine that wrote it has it.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from kiln.errors import KilnError

__all__ = ["STAGES", "main", "render", "stages", "stale"]

PAGE = Path("docs/architecture.md")
STAGES = ("torch", "kiln", "fused", "sched", "plan", "vector", "llvm")
"""Marks of the page, in the order in which data flows."""
MACHINE = ("vector", "llvm")
"""Stages whose text is that of one CPU; not compared."""

_MARK = re.compile(r"(<!-- stage: (\w+) -->\n```mlir\n)(.*?)(```\n)", re.S)


def stages() -> dict[str, str]:
    """The example's IR by stage, shortened for reading."""
    with tempfile.TemporaryDirectory() as folder:
        _compile(folder)
        graph = next(Path(folder).iterdir())
        found = {
            "torch": _module(graph, "*.graph.mlir"),
            "kiln": _module(graph, "*.kiln.mlir"),
            "fused": _without_body(_module(graph, "*.fused.mlir"), 0),
            "sched": _fusion_attributes(_module(graph, "*.sched.mlir")),
            "plan": (graph / "plan.mlir").read_text(encoding="utf-8"),
            "vector": _module(graph, "native_layer_norm*.vector.mlir"),
            "llvm": _loop(_module(graph, "native_layer_norm*.llvm.mlir")),
        }
    return {name: _masked(text) for name, text in found.items()}


def _compile(folder: str) -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    import kiln

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(64)
            self.linear = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + functional.gelu(self.linear(self.norm(x)))

    options: dict[str, Any] = {"fallback": False, "debug_dir": folder}
    with torch.no_grad():
        torch.compile(Block().eval(), backend=kiln.backend, options=options)(torch.randn(8, 64))


def _module(folder: Path, pattern: str) -> str:
    """A stage without locations and without the attributes of the arguments."""
    from kiln.dialects import create_context, parse, to_text

    path = next(iter(sorted(folder.glob(pattern))))
    with create_context() as context:
        text = to_text(parse(path.read_text(encoding="utf-8"), context), use_local_scope=True)
    text = re.sub(r"( attributes)? \{kiln\.(?:[^{}]|\{[^{}]*\})*\}", "", text)
    lines = [line.removeprefix("  ") for line in text.split("\n") if line not in ("module {", "}", "")]
    return "\n".join(lines) + "\n"


def _without_body(text: str, number: int) -> str:
    """`text` with the body of one fusion left out."""
    starts = [m.start() for m in re.finditer(r'"kiln\.fusion"\(', text)]
    opened = text.index("({\n", starts[number]) + 3
    closed = text.index("\n  })", opened)
    return f"{text[:opened]}    ...{text[closed:]}"


def _fusion_attributes(text: str) -> str:
    """The fusions without their bodies, with what the schedule passes have set."""
    for number in range(text.count('"kiln.fusion"(')):
        text = _without_body(text, number)
    return re.sub(r"schedule = \{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "schedule = {...}", text)


def _loop(text: str) -> str:
    """The head of a function and its last loop."""
    lines = text.split("\n")
    blocks = [i for i, line in enumerate(lines) if re.match(r"\s*\^bb\d+", line)]
    end = next((i for i in blocks if any("llvm.return" in line for line in lines[i : i + 3])), len(lines))
    inner = [i for i in blocks if i < end and any("llvm.store" in line for line in lines[i:end])]
    start = max(inner, default=0)
    stop = next((i for i in blocks if i > start), end)
    return "\n".join([lines[0], "  ...", *lines[start:stop], "  ...", "}"]) + "\n"


def _masked(text: str) -> str:
    text = re.sub(r"_[0-9a-f]{16}\b", "_HASH", text)
    return re.sub(r", scratch = affine_map<\(\) -> \(\d+\)>", ", scratch = ...", text)


def render(page: str, found: dict[str, str]) -> str:
    """`page` with each marked block replaced."""
    return _MARK.sub(lambda m: m[1] + found[m[2]] + m[4], page)


def stale(path: Path) -> list[str]:
    """Stages of the page, the same on every machine, that are not what the compiler does now; or lack a mark."""
    shown = {m[2]: m[3] for m in _MARK.finditer(path.read_text(encoding="utf-8"))}
    found = stages()
    return [name for name in STAGES if name not in shown or (name not in MACHINE and shown[name] != found[name])]


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 1 when ``--check`` finds a stale stage, or the example does not compile."""
    parser = argparse.ArgumentParser(prog="python -m kiln.tools.gen_example", description=f"Refresh the IR in {PAGE}.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a stage is stale")
    parser.add_argument("--page", default=str(PAGE), help=f"the page ({PAGE})")
    arguments = parser.parse_args(argv)
    page = Path(arguments.page)
    try:
        if arguments.check:
            old = stale(page)
            if old:
                print(f"error: {page}: {', '.join(old)}; run python -m kiln.tools.gen_example", file=sys.stderr)
            return 1 if old else 0
        page.write_text(render(page.read_text(encoding="utf-8"), stages()), encoding="utf-8")
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
