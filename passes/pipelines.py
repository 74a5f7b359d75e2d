# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pipelines: a target's phases (`kiln.lowering.target`), as passes."""

from collections.abc import Iterable

from kiln.lowering.cpu.target import CpuTarget
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions
from kiln.lowering.target import Step, Target
from kiln.passes.core import Compilation
from kiln.passes.manager import PipelineStep

__all__ = [
    "PIPELINES",
    "cpu_kernels",
    "cpu_pipeline",
    "gpu_kernels",
    "gpu_pipeline",
    "pipeline",
    "plan_steps",
    "steps_of",
    "tt_cpu_kernels",
]


def pipeline(
    target: Target, options: PipelineOptions | None = None, compilation: Compilation | None = None
) -> list[PipelineStep]:
    """From the torch dialect to scheduled kernels. options: None means their defaults, whatever PyTorch's settings
    are."""
    return steps_of(target.pipeline(options or PipelineOptions()), compilation)


def steps_of(steps: Iterable[Step], compilation: Compilation | None = None) -> list[PipelineStep]:
    """Steps with the passes that their texts name."""
    return [PipelineStep(step.text, step.why, step.stage, compilation) for step in steps]


def cpu_pipeline(options: PipelineOptions | None = None) -> list[PipelineStep]:
    """`pipeline` of the CPU."""
    return pipeline(CpuTarget(), options)


def gpu_pipeline(options: PipelineOptions | None = None, arch: str = "sm_90", device: str = "") -> list[PipelineStep]:
    """`pipeline` of a GPU. arch: as in ``schedule-gpu``; device: one to try schedules on, if there is any."""
    return pipeline(GpuTarget(device, arch), options)


def cpu_kernels(*, checks: str = "", shared: bool = False, strict: bool = False) -> list[PipelineStep]:
    """From scheduled fusions to machine code for the CPU.

    checks: "error" or "warn" for checked execution: what each kernel computes is kept. shared: kernels are taken from
    earlier graphs of the process, and kept for later ones. strict: a defect of an emitter is an error.
    """
    return [
        *_outlining("outline-kernels", bool(checks)),
        *([PipelineStep("find-kernels", "what an earlier graph had compiled is not emitted")] if shared else []),
        PipelineStep(f"emit-kernels{_braced(_strict(strict))}", "loops and vectors, as scheduled", stage="vector"),
        *_machine_code(""),
    ]


def gpu_kernels(arch: str = "sm_90", *, checks: str = "", strict: bool = False) -> list[PipelineStep]:
    """From scheduled fusions to machine code for a GPU; options as for ``cpu_kernels``."""
    return [
        *_triton_ir(checks, strict),
        PipelineStep(f"assemble{{arch={arch}}}", "in other threads, while further kernels are emitted", stage="ptx"),
    ]


def tt_cpu_kernels(settings: str = "", *, checks: str = "", strict: bool = False) -> list[PipelineStep]:
    """From scheduled fusions to kernels for a GPU that run on a CPU; ``settings``: of `lower-triton-ir`."""
    given = _braced(f"settings='{settings}'" if settings else "", _strict(strict))
    # The kinds that the CPU compiles at a lower level are tiled by hand there; here LLVM has to vectorise.
    return [
        *_triton_ir(checks, strict),
        PipelineStep(f"lower-triton-ir{given}", "blocks of a GPU as loops of a CPU", stage="vector"),
        *_machine_code("{level=2}"),
    ]


def _triton_ir(checks: str, strict: bool) -> list[PipelineStep]:
    emit = f"emit-kernels{_braced('target=gpu', _strict(strict))}"
    return [
        *_outlining("outline-kernels{gpu}", bool(checks)),
        PipelineStep(emit, "blocks of Triton IR, as the schedules say", stage="ttir"),
        *([PipelineStep(f"prove-kernels{{policy={checks}}}", "of what goes to Triton")] if checks else []),
    ]


def _strict(strict: bool) -> str:
    return "strict" if strict else ""


def _braced(*options: str) -> str:
    """Options of a pass as text; nothing where there are none."""
    given = " ".join(filter(None, options))
    return f"{{{given}}}" if given else ""


def _outlining(text: str, checks: bool) -> list[PipelineStep]:
    keep = PipelineStep("keep-references", "what each step computes, before equal kernels are one")
    return [*([keep] if checks else []), PipelineStep(text, "equal fusions are emitted once", stage="kernels")]


def _machine_code(options: str) -> list[PipelineStep]:
    """From loops to objects."""
    return [
        PipelineStep("optimize-loops", "while loops are loops"),
        PipelineStep("expand-vector-math", "functions as arithmetic, which the lowering takes op by op"),
        PipelineStep("lower-to-llvm", "with the entry that the launcher calls", stage="llvm"),
        PipelineStep(f"assemble{options}", "in other threads, while further kernels are emitted", stage="object"),
    ]


def plan_steps(device: str = "cpu", *, strict: bool = False) -> list[PipelineStep]:
    """The last steps; strict as for ``cpu_kernels``."""
    place = "" if device == "cpu" else f"device={device}"
    called = f"call-unsupported-kernels{_braced(place, _strict(strict))}"
    return [
        PipelineStep(called, "once it is known of which kernels there is no code"),
        PipelineStep(
            f"plan-host{_braced(place)}", "launch order and buffers, while kernels are compiled", stage="plan"
        ),
    ]


def _whole_cpu() -> list[PipelineStep]:
    return [*cpu_pipeline(), *cpu_kernels(), *plan_steps()]


def _whole_gpu() -> list[PipelineStep]:
    return [*gpu_pipeline(), *gpu_kernels(), *plan_steps("cuda:0")]


def _whole_tt_cpu() -> list[PipelineStep]:
    return [*gpu_pipeline(), *tt_cpu_kernels(), *plan_steps()]


#: For ``kiln-opt --pipeline=NAME``: all steps of a target, with the options' defaults.
PIPELINES = {"cpu": _whole_cpu, "gpu": _whole_gpu, "tt-cpu": _whole_tt_cpu}
