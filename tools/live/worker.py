# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``python -m kiln.tools.live.worker``: one compilation, for a job on stdin. Its answer is a file."""

import json
import re
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import kiln
from kiln.errors import BackendOptionError, CompileError, KilnError
from kiln.frontend.overrides import editable_files
from kiln.frontend.report.trace.notebook import Trace, trace
from kiln.frontend.report.trace.page import page_data
from kiln.inserts import Insert
from kiln.passes.registry import load_passes_from
from kiln.tools.live.jobs import Failure, Job, Outcome
from kiln.tools.live.measuring import compared
from kiln.tools.models import error_text, load_model
from kiln.tools.schedules import schedules_of, with_schedule

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["main", "run_job"]

_PLACE = re.compile(r"(?P<file>[^\n]*?\.(?:mlir|ttir|ptx)):(?P<line>\d+)(?::\d+)?: (?P<message>.*)", re.S)
_NUMBER = re.compile(r"graph(\d+)-")


def main() -> int:
    """Entry point; returns the exit status, 0 also where the model does not compile."""
    line = sys.stdin.readline()
    if not line:  # the server has gone
        return 0
    job = Job(**json.loads(line))
    outcome = run_job(job)
    Path(job.result).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    return 0


def run_job(job: Job) -> Outcome:
    """Compile, and say what became of it; a failure is an answer, too."""
    outcome = Outcome()
    try:
        _compile(job, outcome)
    except Exception as error:  # of the model, of a pass file, of the compiler
        outcome.failure = _failure(error, job)
    outcome.files = _files_read(job)
    return outcome


def _compile(job: Job, outcome: Outcome) -> None:
    for file in job.load:
        load_passes_from(file)
    for folder, (name, schedules) in job.schedules.items():
        path = Path(job.override) / folder / name
        for fusion, schedule in schedules.items():
            path.write_text(with_schedule(path.read_text(encoding="utf-8"), fusion, schedule), encoding="utf-8")
    torch.manual_seed(0)  # inputs and weights of all compilations are equal
    model, inputs, kwargs = load_model(job.model)
    options: dict[str, Any] = {"fallback": False, "cache": False}
    if job.target:
        options["target"] = job.target
    if job.inserts:
        options["passes"] = [Insert(text, **{where: place}) for text, where, place in job.inserts]
    edited = {**options, "override": job.override} if job.override else options
    with torch.set_grad_enabled(job.training):
        found = trace(
            model, *inputs, mode=job.mode, options={**edited, "debug_dir": job.dump}, dynamic=job.dynamic or None,
            calls=job.calls, backward=job.training, **kwargs,
        )  # fmt: skip
    _describe(found, Path(job.dump), outcome)
    if job.compare:
        torch._dynamo.reset()
        outcome.comparison = compared(model, inputs, kwargs, options, edited, job)


def _describe(found: Trace, dump: Path, outcome: Outcome) -> None:
    outcome.data = page_data([graph.record for graph in found.graphs], found.title)
    folders = sorted(dump.iterdir(), key=_number)
    outcome.graphs = [folder.name for folder in folders]
    outcome.sources = [editable_files(folder) for folder in folders]
    for folder, sources in zip(folders, outcome.sources, strict=True):
        scheduled = sources.get("sched")
        text = (folder / scheduled).read_text(encoding="utf-8") if scheduled else ""
        outcome.schedules.append(schedules_of(text) if text else {})


def _number(folder: Path) -> int:
    found = _NUMBER.match(folder.name)
    return int(found[1]) if found else -1


def _failure(error: BaseException, job: Job) -> Failure:
    """What a person is told: of the errors that led to each other, the first that Kiln raised, or else the last."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    known = next((e for e in chain if isinstance(e, KilnError)), None)
    own = next((e for e in chain if isinstance(e, BackendOptionError)), None)
    shown = own or known or chain[-1]
    text = str(shown) if isinstance(shown, KilnError) else error_text(shown)
    name = shown.pass_name if isinstance(shown, CompileError) else ""
    trace_text = "".join(traceback.format_exception(chain[-1], chain=False))
    place = _PLACE.search(text) if job.override else None
    if place is not None and Path(place["file"]).is_relative_to(job.override):
        return Failure(place["message"], name, place["file"], int(place["line"]), trace_text)
    return Failure(text, name, trace=trace_text)


def _files_read(job: Job) -> list[str]:
    """Python files whose change is a reason to compile again: those below this folder, and Kiln's own in a checkout."""
    roots = [Path.cwd(), *_checkout(kiln)]
    files = {Path(file).resolve() for file in job.load}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if name and name.endswith(".py"):
            files.add(Path(name).resolve())
    wanted = {Path(file).resolve() for file in job.load}
    installed = ("site-packages", "dist-packages")
    return sorted(
        str(file)
        for file in files
        if file in wanted
        or (any(file.is_relative_to(root) for root in roots) and not any(part in installed for part in file.parts))
    )


def _checkout(package: "ModuleType") -> list[Path]:
    """The folder of a package that is no installed one."""
    root = Path(str(package.__file__)).resolve().parent.parent
    return [] if root.name in ("site-packages", "dist-packages") else [root]


if __name__ == "__main__":
    sys.exit(main())
