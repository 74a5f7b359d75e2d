# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One run of a pipeline on a module's text, and the first thing that is broken in it."""

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_mlir import ir

from kiln.dialects import create_context, parse, to_text
from kiln.errors import AccessError, CompileError, KilnError, NumericsError
from kiln.passes.instruments import Instrument, VerifyEach
from kiln.passes.manager import PassManager, PipelineStep
from kiln.passes.numerics.sample import KINDS, SPECIALS, Sample
from kiln.passes.rewrites import Rewrite, RewriteCounter, counted_rewrites
from kiln.tools.debugging.children import in_child

__all__ = ["KERNELS", "Finding", "Task", "attempt", "run_command", "text_before"]


KERNELS = "kernels"
"""In the place of a pass: the kernels behind the last one."""

_MEMORY = ("numbers", "memory", "crash")


@dataclass(frozen=True)
class Finding:
    """What is broken: ``kind`` is "verifier", "numbers", "memory" (an access of a kernel outside of its buffers),
    "error", "crash", "hang" or "test"; empty: nothing.

    ``step`` is the number of the pass (from 0) and ``name`` its text; ``rewrites`` are those that it had made or tried.
    """

    kind: str = ""
    step: int = -1
    name: str = ""
    message: str = ""
    rewrites: list[Rewrite] = field(default_factory=list[Rewrite])

    def __bool__(self) -> bool:
        return bool(self.kind)

    def is_like(self, other: "Finding") -> bool:
        """Whether this is the same failure of another module: its kind, in a pass of that name.

        A kernel that writes where it should not may give wrong numbers or end the process.
        """
        if self.name == other.name == KERNELS:
            return (self.kind in _MEMORY) == (other.kind in _MEMORY) and bool(self)
        return (self.kind, self.name) == (other.kind, other.name)


@dataclass(frozen=True)
class Task:
    """What is looked for: a pipeline's steps and how to tell that it is broken.

    ``numerics``: compare numbers after each pass, on random inputs of ``kinds`` and on ``samples``. ``kernels``: the
    target for which the module that is left is compiled, run and compared. ``command``: the module that is left is
    given to this command, in a file. ``timeout``: seconds for one attempt.
    """

    steps: Callable[[], list[PipelineStep]]
    numerics: bool = False
    kinds: Sequence[str] = (*KINDS, SPECIALS)
    samples: Sequence[Sample] = ()
    command: str = ""
    kernels: str = ""
    timeout: float = 60.0


class _Progress(Instrument):
    """Tells which pass runs, so that one that kills the process is known."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell, self._number = tell, -1

    def before_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self._number += 1
        self._tell(("pass", self._number, step.name))


def attempt(
    task: Task, text: str, only: int | None = None, limit: int | None = None, *, by_uses: bool = False
) -> Finding:
    """Runs the pipeline, or step ``only`` of it, in a child; returns the first failure, or one that is False.

    Args:
        limit: make the first rewrites of each pass alone.
        by_uses: count what every pass does, whether it asks ``may_rewrite`` or not: replacing all uses of a value. The
            pass is stopped where it has made as many as are allowed.
    """

    def work(tell: Callable[[Any], None]) -> tuple[str, str]:
        with create_context(), ir.Location.unknown():
            module = parse(text)
            steps = task.steps()
            steps = steps if only is None else [steps[only]]
            instruments: list[Instrument] = [_Progress(tell)]
            if task.numerics:
                from kiln.passes.instruments.numerics import VerifyNumerics

                instruments.append(VerifyNumerics(task.samples, kinds=task.kinds))
            verifier = _Verifier()
            instruments += [_CountingUses(limit, tell) if by_uses else _Counting(limit, tell), verifier]
            try:
                try:
                    PassManager(steps, instruments).run(module)
                except _Stopped:
                    for instrument in reversed(instruments):
                        instrument.after_pass(steps[0], module)
            except NumericsError as error:
                return "numbers", error.message
            except ir.MLIRError as error:
                return "verifier" if verifier.has_failed else "error", str(error)
            except CompileError as error:
                kind = "numbers" if isinstance(error.__cause__, NumericsError) else "error"
                return "verifier" if verifier.has_failed else kind, error.message
            if task.kernels:
                from kiln.passes.numerics.kernels import verify_kernels

                tell(("pass", len(steps), KERNELS))
                try:
                    verify_kernels(module, task.kernels, task.samples)
                except NumericsError as error:
                    return "numbers", error.message
                except AccessError as error:
                    return "memory", str(error)
                except (KilnError, ir.MLIRError) as error:
                    return "error", str(error)
            return "", to_text(module) if task.command else ""

    outcome = in_child(work, task.timeout)
    passes = [event for event in outcome.events if event[0] == "pass"]
    number, name = passes[-1][1:] if passes else (-1, "")
    number = number if only is None or number < 0 else only
    rewrites = [event[2] for event in outcome.events if event[0] == "rewrite" and passes and event[1] == passes[-1][1]]
    if outcome.kind == "ok":
        kind, message = outcome.value
        if kind:
            return Finding(kind, number, name, message, rewrites)
        if task.command and run_command(task.command, message, task.timeout):
            return Finding("test", number, name, f"{task.command} fails", rewrites)
        return Finding(rewrites=rewrites)
    if number < 0:
        raise KilnError(f"the module cannot be read: {outcome.message}")
    return Finding(outcome.kind, number, name, outcome.message, rewrites)


class _Counting(Instrument):
    """A counter of its own for each pass."""

    def __init__(self, limit: int | None, tell: Callable[[Any], None]) -> None:
        self._limit, self._tell, self._number = limit, tell, -1

    def before_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self._number += 1
        number = self._number
        self._counting = counted_rewrites(
            RewriteCounter(self._limit, lambda rewrite: self._tell(("rewrite", number, rewrite)))
        )
        self._counting.__enter__()

    def after_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self._counting.__exit__(None, None, None)


class _Stopped(BaseException):
    """Ends a pass in the middle. No Exception: passes and their manager must not catch it."""


class _CountingUses(_Counting):
    """Counts replacements of all uses of a value, which passes make without asking."""

    def before_pass(self, step: PipelineStep, module: ir.Module) -> None:
        self._number += 1
        number, replace = self._number, ir.Value.replace_all_uses_with
        counter = RewriteCounter(self._limit, lambda rewrite: self._tell(("rewrite", number, rewrite)))

        def counted(value: ir.Value, *arguments: Any) -> None:
            owner = value.owner
            if not counter.allows("an argument" if isinstance(owner, ir.Block) else owner, "uses of a result replaced"):
                raise _Stopped
            replace(value, *arguments)

        self._replace = replace
        ir.Value.replace_all_uses_with = counted

    def after_pass(self, step: PipelineStep, module: ir.Module) -> None:
        ir.Value.replace_all_uses_with = self._replace


class _Verifier(VerifyEach):
    """Knows whether the verifier is what failed: MLIR's passes raise errors of the same class."""

    has_failed = False

    def after_pass(self, step: PipelineStep, module: ir.Module) -> None:
        try:
            super().after_pass(step, module)
        except Exception:
            self.has_failed = True
            raise


def text_before(task: Task, text: str, step: int) -> str:
    """The module's text as step ``step`` is given it, with locations."""

    def work(tell: Callable[[Any], None]) -> str:
        with create_context(), ir.Location.unknown():
            module = parse(text)
            PassManager(task.steps()[:step]).run(module)
            return to_text(module, enable_debug_info=True)

    outcome = in_child(work, task.timeout)
    if outcome.kind != "ok":
        raise KilnError(f"the passes before step {step + 1} do not run a second time: {outcome.message}")
    return outcome.value


def run_command(command: str, text: str, timeout: float) -> bool:
    """Whether ``command FILE`` says that the module is broken: any exit status but 0, a signal, or a hang.

    Raises KilnError where the command itself cannot be run (status 126 or 127).
    """
    with _file(text) as path:
        words = [*shlex.split(command), str(path)]
        try:
            done = subprocess.run(words, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return True
        except OSError as error:
            raise KilnError(f"--test={command}: {error}") from error
    if done.returncode in (126, 127):
        raise KilnError(f"--test={command}: {done.stderr.decode('utf-8', 'replace').strip() or 'cannot be run'}")
    return done.returncode != 0


@contextmanager
def _file(text: str) -> Generator[Path, None, None]:
    with tempfile.TemporaryDirectory(prefix="kiln-") as folder:
        path = Path(folder) / "candidate.mlir"
        path.write_text(text, encoding="utf-8")
        yield path
