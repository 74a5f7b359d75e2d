# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running steps on a module, with instruments around each."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.errors import BackendOptionError, CompileError, KilnError, PipelineParseError
from kiln.inserts import Insert
from kiln.lowering.host.kernels import is_outlined, kernels_of
from kiln.passes.core import Compilation, Pass
from kiln.passes.instruments.base import Instrument
from kiln.passes.kernel_pass import KernelPass
from kiln.passes.recursion import deep_recursion

__all__ = ["PassManager", "PipelineStep", "behind", "inserted", "run_pipeline", "until"]


@dataclass
class PipelineStep:
    """One entry of a pipeline.

    ``pass_`` may be given as pipeline text of one pass, which is then made for ``compilation``. ``why`` says in one
    line why the step stands where it stands. ``stage`` is the stage that is complete after this step (``kiln``,
    ``fused``, ...), or empty. ``is_inserted``: the step is a user's own, in a pipeline of Kiln's.
    """

    pass_: Pass
    why: str = ""
    stage: str = ""
    is_inserted: bool = False

    def __init__(
        self, pass_: Pass | str, why: str = "", stage: str = "", compilation: Compilation | None = None
    ) -> None:
        if isinstance(pass_, str):
            from kiln.passes.pipeline_parser import parse_pipeline

            steps = parse_pipeline(pass_, compilation)
            if len(steps) != 1:
                raise PipelineParseError(f"a step is one pass, found {len(steps)}", pass_)
            pass_ = steps[0].pass_
        self.pass_, self.why, self.stage = pass_, why, stage
        self.is_inserted = False

    @property
    def name(self) -> str:
        """The name of the pass."""
        return self.pass_.name


class PassManager:
    """Runs ``steps`` in order on one module.

    Instruments are called in the order given before a pass and in reverse after it. A pass runs when every
    ``should_run`` agrees.
    """

    def __init__(self, steps: Iterable[PipelineStep], instruments: Sequence[Instrument] = ()) -> None:
        self.steps = list(steps)
        self.instruments = list(instruments)

    def run(self, module: ir.Module) -> ir.Module:
        """Run all steps, mutating ``module``, which is also returned.

        Raises :class:`CompileError` naming the pass when one raises an error of Kiln or MLIR; an instrument may have
        set its ``reproducer`` and ``command``. Any other exception is a bug in a pass: it is raised as
        ``CompileError`` as well, with its type in the message. The module is then half rewritten.
        """
        with module.context, ir.Location.unknown(), deep_recursion():
            for instrument in self.instruments:
                instrument.before_pipeline(module, self.steps)
            index = 0
            while index < len(self.steps):
                index += self._run_kernels(index, module) or self._run_one(index, module)
            for instrument in reversed(self.instruments):
                instrument.after_pipeline(module)
        return module

    def _run_one(self, index: int, module: ir.Module) -> int:
        """Run a step; the number of steps that are done with."""
        step = self.steps[index]
        if all(i.should_run(step, module) for i in self.instruments):
            self._run_step(index, step, module, lambda: step.pass_.run(module))
        return 1

    def _run_kernels(self, index: int, module: ir.Module) -> int:
        """Take one kernel after the other through all steps on kernels from ``index`` on, if no instrument looks at the
        module in between: machine code of the first kernels is then made while the next ones are emitted.

        Returns the number of steps that are done with; none where steps have to be run one by one.
        """
        passes: list[KernelPass] = []
        for step in self.steps[index:]:
            if not isinstance(step.pass_, KernelPass):
                break
            passes.append(step.pass_)
        if len(passes) < 2 or not is_outlined(module) or not all(i.kernel_by_kernel for i in self.instruments):
            return 0
        for kernel in kernels_of(module):
            for i, pass_ in enumerate(passes, index):
                self._run_step(i, self.steps[i], module, lambda pass_=pass_, k=kernel: pass_.run_if_wanted(k))
        return len(passes)

    def _run_step(self, index: int, step: PipelineStep, module: ir.Module, run: Callable[[], None]) -> None:
        try:
            for instrument in self.instruments:
                instrument.before_pass(step, module)
            run()
            for instrument in reversed(self.instruments):
                instrument.after_pass(step, module)
        except Exception as error:
            failure = _wrap(step, error)
            for instrument in reversed(self.instruments):
                instrument.pass_failed(index, step, module, failure)
            if failure is error:
                raise
            raise failure from error


def run_pipeline(
    module: ir.Module, pipeline: str | Iterable[PipelineStep], instruments: Sequence[Instrument] = ()
) -> ir.Module:
    """Run pipeline text, or steps, on ``module``. Raises what :func:`parse_pipeline` and :class:`PassManager` raise."""
    if isinstance(pipeline, str):
        from kiln.passes.pipeline_parser import parse_pipeline

        with module.context:
            pipeline = parse_pipeline(pipeline)
    return PassManager(pipeline, instruments).run(module)


def until(steps: Sequence[PipelineStep], stage: str) -> list[PipelineStep]:
    """The steps up to the last one that completes ``stage``. Raises :class:`KilnError` naming the stages there are."""
    return list(steps[: _end_of(steps, stage)])


def behind(steps: Sequence[PipelineStep], stage: str) -> list[PipelineStep]:
    """The steps behind the last one that completes ``stage``; all of them for ``torch``. Raises as :func:`until`."""
    return list(steps if stage == "torch" else steps[_end_of(steps, stage) :])


def inserted(
    steps: Sequence[PipelineStep], inserts: Iterable[Insert], compilation: Compilation | None = None
) -> list[PipelineStep]:
    """The steps with own passes among them. One behind the last step of a stage is part of that stage.

    Raises :class:`BackendOptionError`, naming the near ones, where there is no such pass or stage.
    """
    result = list(steps)
    for insert in inserts:
        name = insert.after or insert.before
        places = [i for i, step in enumerate(result) if name in (step.name.partition("{")[0], step.stage)]
        if not places:
            names = [name for step in result for name in (step.name.partition("{")[0], step.stage) if name]
            raise BackendOptionError(f"no pass or stage {name!r} in this pipeline", name, dict.fromkeys(names))
        place = places[-1] + 1 if insert.after else places[0]
        result[place:place] = _own_steps(insert, result[place - 1].stage if insert.after else "", compilation)
    return result


def _own_steps(insert: Insert, stage: str, compilation: Compilation | None) -> list[PipelineStep]:
    if isinstance(insert.passes, str):
        from kiln.passes.pipeline_parser import parse_pipeline

        passes = [step.pass_ for step in parse_pipeline(insert.passes, compilation)]
    else:
        passes = [copy.copy(insert.passes)]
        for collected in ("_statistics", "_notes"):  # of this compilation alone
            passes[0].__dict__.pop(collected, None)
    own = [PipelineStep(pass_, f"inserted {insert.place}", stage) for pass_ in passes]
    for step in own:
        step.is_inserted = True
    return own


def _end_of(steps: Sequence[PipelineStep], stage: str) -> int:
    last = [i for i, step in enumerate(steps) if step.stage == stage]
    if not last:
        stages = list(dict.fromkeys(step.stage for step in steps if step.stage))
        raise KilnError(f"no step of this pipeline completes stage {stage!r}; stages: {', '.join(stages) or 'none'}")
    return last[-1] + 1


def _wrap(step: PipelineStep, error: Exception) -> CompileError:
    from kiln.passes.diagnostics import diagnostics_of

    if isinstance(error, CompileError):
        return error
    first = diagnostics_of(error)[0]
    message = f"{first.where}: {first.message}" if first.where else first.message
    failure = CompileError(message, pass_name=step.name)
    failure.__cause__ = error  # instruments ask for it before it is raised
    return failure
