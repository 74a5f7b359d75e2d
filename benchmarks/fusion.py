# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks.fusion``: how many kernels each case takes, and what they move and hold.

Kernels are counted as the program that is run calls them: Kiln's launches and ATen calls, and what Inductor's generated
``call`` calls, its own kernels and extern ones. Bytes moved are the planner's next to those of eager's operators (each
reads its inputs and writes its results once); memory is what is allocated at once, inputs and parameters left out.
"""

import argparse
import re
import sys
from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch._inductor.utils import run_and_get_code

from benchmarks.cases import CASES, Case, select
from benchmarks.contenders import CONTENDERS
from kiln.frontend.report import CompileReport

__all__ = ["Counts", "count_inductor", "count_kiln"]


@dataclass(frozen=True)
class Counts:
    """Of one call: generated kernels launched, and calls of a library's kernels."""

    kernels: int
    calls: int

    def __str__(self) -> str:
        return f"{self.kernels} + {self.calls}" if self.calls else str(self.kernels)


_OWN = re.compile(r"^\s+(?:\w+ = )?(?:cpp_fused\w*|kernel_cpp_\w+)\(", re.MULTILINE)
_EXTERN = re.compile(
    r"^\s+(?:\w+ = )?(?:extern_kernels\.\w+|torch\.ops\.(?!inductor\._reinterpret)[\w.]+|aten\.[\w.]+)\(", re.MULTILINE
)


def count_inductor(case: Case, quick: bool) -> Counts:
    """What one call of Inductor's code for the case calls. Needs a C++ compiler."""
    torch._dynamo.reset()
    module, make_inputs = case.build_small() if quick else case.build()
    inputs = make_inputs(torch.Generator().manual_seed(1))
    with torch.no_grad():
        _, sources = run_and_get_code(torch.compile(module, fullgraph=True), *inputs)
    bodies = [source[source.index("def call(") :].split("def benchmark_compiled_module")[0] for source in sources]
    return Counts(sum(len(_OWN.findall(b)) for b in bodies), sum(len(_EXTERN.findall(b)) for b in bodies))


def count_kiln(case: Case, quick: bool) -> tuple[Counts, CompileReport]:
    """(counts, report) of Kiln's program for the case."""
    import kiln

    torch._dynamo.reset()
    module, make_inputs = case.build_small() if quick else case.build()
    with torch.no_grad():
        found = kiln.explain(module, *make_inputs(torch.Generator().manual_seed(1)), options={"fallback": False})
    (report,) = found.graphs
    return Counts(sum(k.launches for k in report.kernels), len(report.aten_calls)), report


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns 1 if a case takes more kernels than with Inductor."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fusion", description="Kernels, bytes and memory.")
    parser.add_argument("--only", nargs="+", default=["model"], metavar="CASE", help="cases, prefixes, model or micro")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--markdown", action="store_true", help="print the table as markdown")
    arguments = parser.parse_args(argv)
    try:
        cases = select(arguments.only)
    except KeyError as unknown:
        parser.error(f"--only: no case begins with {unknown}; cases are {', '.join(CASES)}")
    torch._inductor.config.force_disable_caches = True
    missing = CONTENDERS["inductor"].unavailable()
    rows, worse = [], False
    for case in cases:
        mine, report = count_kiln(case, arguments.quick)
        theirs = None if missing else count_inductor(case, arguments.quick)
        worse |= theirs is not None and mine.kernels + mine.calls > theirs.kernels + theirs.calls
        memory, eager = report.memory, report.eager_memory
        figures = ["", "", "", ""]
        if memory is not None and eager is not None:
            figures = [f"{x / 1e6:.2f}" for x in (memory.moved, eager.moved, memory.peak, eager.peak)]
        rows.append([case.name, str(mine), "" if theirs is None else str(theirs), *figures])
    titles = ["case", "Kiln", "Inductor", "MB moved", "by eager", "MB held", "by eager"]
    if arguments.markdown:
        lines = [titles, ["---"] * len(titles), *rows]
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
        return int(worse)
    table = Table(*titles, title="kernels + calls of a library's; memory of one call", title_justify="left")
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table)
    if missing:
        console.print(f"Inductor was left out: {missing}")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
