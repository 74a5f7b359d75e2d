# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The workbench's verbs, each a function from texts to a text: what ``kiln-mcp`` offers to agents.

Each verb runs in a process of its own, as the command-line tools do: a pass that crashes takes nothing else with it.
A model is named as for ``kiln-explain``: ``module:function``, importable from ``folder``.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kiln.errors import KilnError, did_you_mean

__all__ = [
    "VERBS",
    "bisect",
    "check",
    "compile_model",
    "explain",
    "profile",
    "reduce",
    "run_pass",
    "show_stage",
    "try_schedule",
]

_LONGEST = 60_000
"""Characters of an answer, and seconds of a verb: agents pay for each."""
_SECONDS = 600


def compile_model(model: str, folder: str = ".", target: str = "", training: bool = False) -> str:
    """Compile a model, keep its IR at every stage, and say where. `model`: "module:function", importable from `folder`;
    the function returns (model, inputs). `target`: cpu, cuda or tt-cpu. Next: `show_stage` with the folder named.
    """
    dump = tempfile.mkdtemp(prefix="kiln-stages-")
    text = _explained(model, folder, target, training, {"KILN_DUMP": dump})
    graphs = [f"{path.name}: {', '.join(_stages(path))}" for path in sorted(Path(dump).iterdir())]
    return "\n".join([f"stages are in {dump}", *graphs, "", text])


def show_stage(dump: str, stage: str, graph: str = "") -> str:
    """The IR of a compiled model at a stage: "kiln", "fused", "sched", "vector", "llvm", "plan", or of a file by name.

    `dump`: the folder that `compile_model` named; `graph`: one of its folders, by default the first.
    """
    folders = [path for path in sorted(Path(dump).glob("*")) if path.is_dir() and graph in ("", path.name)]
    if not folders:
        raise KilnError(f"no dump of a graph {graph or ''} in {dump}; compile_model makes one")
    found = _stages(folders[0])
    if stage not in found:
        near = did_you_mean(stage, found) or f"; there are {', '.join(found)}"
        raise KilnError(f"no stage {stage!r} in {folders[0]}{near}")
    return _shortened(found[stage].read_text(encoding="utf-8"))


def explain(model: str, folder: str = ".", target: str = "", training: bool = False, verbose: bool = False) -> str:
    """What became of each op of a model: kernels, calls of ATen and why, bytes moved, and what passes noted."""
    return _explained(model, folder, target, training, {}, *(["--verbose"] if verbose else []))


def profile(model: str, folder: str = ".", target: str = "") -> str:
    """Time of each kernel, with bandwidth and the share of the machine's rates. Times of tt-cpu are no GPU's."""
    return _explained(model, folder, target, False, {}, "--time")


def run_pass(ir: str, pipeline: str) -> str:
    """Run passes on IR (text of MLIR) and show the result with remarks. `pipeline`: text as for `kiln-opt`,
    "canonicalize,fuse".
    """
    return _tool("opt", f"--pass-pipeline={pipeline}", "--remarks", "-", stdin=ir)


def check(ir: str, target: str = "cpu", kernels: bool = False) -> str:
    """Whether a target's pipeline computes on random inputs what the IR says, after each pass.

    With `kernels` the machine code as well, for cpu or tt-cpu.
    """
    more = [f"--verify-kernels={target}"] if kernels else []
    arguments = (f"--pipeline={target}", "--until=sched", "--verify-numerics", *more)
    is_right, text = _ran("opt", *arguments, "-", stdin=ir)
    return "each pass computes the same" if is_right else text


def bisect(ir: str, pipeline: str = "", target: str = "cpu") -> str:
    """The first pass, and the first rewrite of it, that breaks IR: an error, a crash or other numbers.

    `pipeline`: passes; empty: those of the target up to schedules.
    """
    return _tool("bisect", *_passes(pipeline, target), "--verify-numerics", "-", stdin=ir)


def reduce(ir: str, pipeline: str = "", target: str = "cpu") -> str:
    """IR that still breaks as `bisect` says, made as small as possible."""
    return _tool("reduce", *_passes(pipeline, target), "--verify-numerics", "-", stdin=ir)


def try_schedule(ir: str, kernel: str, schedule: str, target: str = "cpu") -> str:
    """Give a fusion of scheduled IR (stage "sched") another schedule, a dictionary as in its attribute `schedule`.

    The kernels are compiled, run and compared with the IR. Returns the IR with that schedule.
    """
    from kiln.tools.schedules import with_schedule

    changed = with_schedule(ir, kernel, schedule, locations=False)
    arguments = (f"--pipeline={target}", "--from=sched", f"--verify-kernels={target}")
    is_right, text = _ran("opt", *arguments, "-", stdin=changed)
    return f"// its kernels compute the same\n{text}" if is_right else text


VERBS = (compile_model, explain, show_stage, run_pass, check, bisect, reduce, profile, try_schedule)


def _passes(pipeline: str, target: str) -> list[str]:
    return [f"--pass-pipeline={pipeline}"] if pipeline else [f"--pipeline={target}", "--until=sched"]


def _explained(model: str, folder: str, target: str, training: bool, settings: Mapping[str, str], *more: str) -> str:
    own = {**settings, **({"KILN_TARGET": target} if target else {})}
    options = [*more, *(["--backward"] if training else [])]
    return _tool("explain", model, *options, folder=folder, settings=own)


def _stages(folder: Path) -> dict[str, Path]:
    """Files of a graph, by stage, and by name where they are of one kernel."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        parts = path.name.split(".")
        found[parts[-2] if path.name[0].isdigit() and len(parts) == 3 else path.name] = path
    return {name: path for name, path in found.items() if not name.endswith((".o", ".cubin", "digests.txt"))}


def _tool(
    name: str, *arguments: str, stdin: str = "", folder: str = ".", settings: Mapping[str, str] | None = None
) -> str:
    """What one of Kiln's tools prints."""
    return _ran(name, *arguments, stdin=stdin, folder=folder, settings=settings)[1]


def _ran(
    name: str, *arguments: str, stdin: str = "", folder: str = ".", settings: Mapping[str, str] | None = None
) -> tuple[bool, str]:
    """Whether one of Kiln's tools succeeds, and what it prints. Raises KilnError where it takes too long."""
    if not Path(folder).is_dir():
        raise KilnError(f"there is no folder {folder}")
    paths = [str(Path(folder).resolve()), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = {**os.environ, **(settings or {}), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", f"kiln.tools.kiln_{name}", *arguments]
    try:
        done = subprocess.run(
            command,
            input=stdin, cwd=folder, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise KilnError(f"kiln-{name} took more than {_SECONDS} s") from error
    return done.returncode == 0, _shortened("\n".join(filter(None, [done.stderr.strip(), done.stdout.strip()])))


def _shortened(text: str) -> str:
    left = len(text) - _LONGEST
    return text if left <= 0 else f"{text[:_LONGEST]}\n... {left} characters more"
