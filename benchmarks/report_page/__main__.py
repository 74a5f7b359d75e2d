# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m benchmarks.report_page`` writes docs/performance.md and its charts from the stored measurements.

``--check`` writes nothing and fails when a file is stale. ``--record FILE --machine NAME`` first stores the figures of
a benchmark's ``--json FILE`` as runs of that machine, in place of earlier runs of the same name.
"""

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report_page.data import FOLDER, load
from benchmarks.report_page.page import files
from benchmarks.report_page.record import runs_of, write_run

__all__ = ["main", "parser", "stale"]

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"


def stale(docs: Path = DOCS, results: Path = FOLDER) -> list[str]:
    """The names of files in `docs` that are not what the measurements in `results` give."""
    found = files(load(results))
    return [name for name, text in found.items() if _text(docs / name) != text]


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.report_page", description="Write docs/performance.md.")
    made.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    made.add_argument("--docs", type=Path, default=DOCS, help="where the page and its charts go")
    made.add_argument("--results", type=Path, default=FOLDER, help="folder of the stored measurements")
    made.add_argument("--record", type=Path, metavar="FILE", help="JSON of a benchmark to store first")
    made.add_argument("--machine", help="short name of the machine that FILE was measured on")
    made.add_argument("--processor", default="NVIDIA H200", help="the GPU, where FILE is of `benchmarks.gpu`")
    made.add_argument(
        "--versions", nargs="*", default=[], metavar="NAME=VERSION", help="for a GPU: torch=..., triton=..."
    )
    made.add_argument("--note", nargs="*", default=[], help="what a reader of the figures has to know")
    made.add_argument("--date", default=datetime.date.today().isoformat())
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns 1 if ``--check`` finds a stale file, else 0."""
    options = parser().parse_args(argv)
    if options.record:
        _record(options)
    if options.check:
        found = stale(options.docs, options.results)
        for name in found:
            print(f"{name} is stale; run python -m benchmarks.report_page", file=sys.stderr)
        return 1 if found else 0
    for name, text in files(load(options.results)).items():
        (options.docs / name).write_text(text, encoding="utf-8")
    return 0


def _record(options: argparse.Namespace) -> None:
    if not options.machine:
        raise SystemExit("python -m benchmarks.report_page: error: --record needs --machine")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    head = {
        "machine": {"name": options.machine, "processor": options.processor},
        "versions": dict(item.split("=", 1) for item in options.versions),
        "date": options.date,
        "commit": commit,
        "notes": options.note,
    }
    document = json.loads(options.record.read_text(encoding="utf-8"))
    for name, run in runs_of(document, options.machine, head).items():
        print(f"stored {write_run(options.results, name, run)}")


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
