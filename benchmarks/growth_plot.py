# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The figures of ``python -m benchmarks growth`` as charts.

``python -m benchmarks.growth_plot build/growth.json --svg docs/growth.svg`` draws them again; of several files, those
with compile times and those with run times are put together.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.charts import Chart, svg

__all__ = ["growth_charts"]


def growth_charts(document: Mapping[str, Any]) -> list[Chart]:
    """Compile time against layers, then run time against size for each class."""
    clock = document.get("clock", "wall time")
    charts = []
    compiling: dict[str, list[tuple[float, float]]] = {}
    for row in document["compile"]:
        if row["median"] is not None:
            compiling.setdefault(row["contender"], []).append((row["layers"], row["median"]))
    if compiling:
        charts.append(
            Chart("compile time: first call of a GPT-2 of width 256", "layers", f"seconds, {clock}", compiling)
        )
    running: dict[str, dict[str, list[tuple[float, float]]]] = {}
    labels = {}
    for row in document["run"]:
        kind, _, size = row["case"].partition(" ")
        labels[kind] = row.get("size", "size")
        for name, outcome in row["outcomes"].items():
            if outcome["median"] is not None:
                line = running.setdefault(kind, {}).setdefault(name, [])
                line.append((float(size), 1e6 * outcome["median"]))
    charts += [
        Chart(f"run time: {kind}", labels[kind], f"us per call, {clock}", lines) for kind, lines in running.items()
    ]
    return charts


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth_plot", description="Draw figures of growth.")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--svg", type=Path, required=True)
    arguments = parser.parse_args(argv)
    documents = [json.loads(file.read_text(encoding="utf-8")) for file in arguments.files]
    arguments.svg.write_text(svg([chart for document in documents for chart in growth_charts(document)]), "utf-8")


if __name__ == "__main__":
    main()
