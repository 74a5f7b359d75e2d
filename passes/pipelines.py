# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pipelines: one readable list per target, each step with one line that says why it stands where it stands."""

from kiln.lowering.emitters import kernel_kinds
from kiln.lowering.gpu.dot.machine import machine
from kiln.passes.manager import PipelineStep

__all__ = ["PIPELINES", "cpu_pipeline", "gpu_kernels_text", "gpu_pipeline"]


# One pattern stays off: where a size is dynamic in one operand and static in another it puts tensor.cast around the op,
# which ends fusion there and says nothing about how sizes depend on symbols. MLIR names it as its compiler did.
_CANONICALIZE = (
    "canonicalize{disable-patterns="
    "{{anonymous}::InferStaticShapeOfOperands,(anonymous namespace)::InferStaticShapeOfOperands}}"
)


def cpu_pipeline(options: object | None = None) -> list[PipelineStep]:
    """From the torch dialect to scheduled kernels for the CPU.

    ``options`` are the backend's options (``kiln.frontend.options.Options``); None means their defaults.
    """
    fast_math = str(bool(getattr(options, "fast_math", False))).lower()
    simplify = f"simplify-algebra{{fast-math={fast_math}}}"
    return [
        PipelineStep("torch-cse", "merge what was traced twice, so that rules see equal values as one"),
        PipelineStep("fold-constants", "sizes and scale factors as numbers: the rules below look for numbers"),
        PipelineStep(simplify, "identities and views that undo each other go before any op is converted"),
        PipelineStep("torch-cse", "what became equal is merged: a pattern's intermediates have no other users"),
        PipelineStep("rewrite-patterns", "what is written out becomes one op, in the normal form made above"),
        PipelineStep(simplify, "the replacements' own views and negations meet those around them", stage="graph"),
        PipelineStep("convert-torch-to-kiln", "ops with their meaning: ours, else torch-mlir's, else a call to ATen"),
        PipelineStep("compose-views", "chains of views become one index map each, so that patterns see through them"),
        PipelineStep("fold-matmul-views", "products over leading dims without reshapes; transposes become flags"),
        PipelineStep("fold-attention-views", "grouped queries read the heads that there are, not copies of them"),
        PipelineStep("narrow-attention", "in 16 bits where those are converted before and after: half the memory"),
        PipelineStep(
            "propagate-layouts", "where channels lie decides who convolves faster, so it is known before that choice"
        ),
        PipelineStep("choose-vendor", "what a library does faster is called, before it is expanded", stage="kiln"),
        PipelineStep("convert-integer-products", "calls that are products: their kernels take what follows"),
        PipelineStep("fold-dequantization", "products read weights of 8 bits as they are, before kernels are cut"),
        PipelineStep(
            _expand("cpu"),
            "norms, softmax, pooling as loops that fusion can take apart",
        ),
        PipelineStep("compose-views", "the expansions bring views of their own"),
        PipelineStep("sink-reshapes", "what follows a group norm in the loops of its reductions: one kernel"),
        PipelineStep(_CANONICALIZE, "constants to the front, trivial arithmetic away"),
        PipelineStep("cse", "equal views, fills and statistics are one value: fusion counts readers"),
        PipelineStep("split-reductions", "long sums with few results get a loop that threads can share"),
        *_fusion("fuse", "every computation into a kernel", _emulates(options)),
        PipelineStep("assign-layouts", "where each tensor lies: schedules depend on strides"),
        PipelineStep("reuse-buffers", "results over operands that die, once it is known where their elements lie"),
        PipelineStep("hoist-slices", "kernels that read other slices are equal, and compiled once"),
        PipelineStep("schedule-cpu", "tiles by the measured rules"),
        *_autotuning(options),
        PipelineStep("pack-constants", "in the order that the schedules chose", stage="sched"),
    ]


def _fusion(text: str, why: str, roundings: bool) -> list[PipelineStep]:
    """Fusion, and what follows from it for roundings, unless eager's are wanted."""
    if roundings:
        drop = PipelineStep(
            "drop-roundings{sums-only=true}", "a bias is added before rounding, as in eager", stage="fused"
        )
    else:
        reason = "what only one kernel sees is f32, once it is known what that is"
        drop = PipelineStep("drop-roundings", reason, stage="fused")
    return [PipelineStep(text, why), drop]


def _emulates(options: object | None) -> bool:
    return bool(getattr(options, "emulate_precision_casts", False))


def _autotuning(options: object | None, target: str = "cpu", given: str = "") -> list[PipelineStep]:
    """The step that ``mode="max-autotune"`` adds."""
    if not _is_tuned(options):
        return []
    text = f"autotune-{target}{{{_timing(options).strip()}{given}}}"
    reason = "; constants are packed as it chose" if target == "cpu" else ""
    return [PipelineStep(text, f"the rules' tiles are where it starts{reason}")]


def _timing(options: object | None, given: str = "") -> str:
    """How long ``mode="max-autotune"`` may try, as options of a pass, and what it tries on; nothing in other modes."""
    if not _is_tuned(options):
        return ""
    seconds = float(getattr(options, "tune_seconds", 0.5))
    return f" seconds={seconds!r} graph-seconds={_GRAPH_SECONDS * seconds!r}{given}"


def _is_tuned(options: object | None) -> bool:
    return str(getattr(options, "mode", "")).startswith("max-autotune")


_GRAPH_SECONDS = 120
"""How many times the time for one kernel a graph may be tuned."""


def gpu_pipeline(options: object | None = None, arch: str = "sm_90", device: str = "") -> list[PipelineStep]:
    """From the torch dialect to scheduled kernels for a GPU: the CPU's pipeline up to the choice of libraries.

    ``options`` as for ``cpu_pipeline``; ``arch`` is the GPU, as in ``schedule-gpu``; ``device`` is one to try schedules
    on, if there is any.
    """
    front = cpu_pipeline(options)
    tf32 = str(bool(getattr(options, "tf32", False))).lower()
    ordered = str(bool(getattr(options, "deterministic", False))).lower()
    allowed = bool(getattr(options, "tensor_maps", True)) and machine(arch).tensor_maps
    descriptors = str(allowed).lower()
    chip = f"arch={arch} tf32={tf32} descriptors={descriptors}"
    roundings = " roundings" if _emulates(options) else ""
    timing = _timing(options, f" device={device} tf32={tf32}{roundings}") if device else ""
    return [
        *front[: next(i for i, step in enumerate(front) if step.name == "propagate-layouts")],
        PipelineStep("propagate-layouts{target=cuda}", "where channels lie decides who convolves, and how"),
        PipelineStep(
            f"convert-scaled-products{{arch={arch}}}", "calls that are products of 8-bit floats, with what follows"
        ),
        PipelineStep("pad-products", "rows that a GPU can move, before it is decided who multiplies them"),
        PipelineStep("space-to-depth", "pixels as channels, where an image has few: whoever convolves them"),
        PipelineStep(
            f"choose-vendor{{target=cuda tensor-maps={descriptors} arch={arch}{timing}}}",
            "what a library does faster is called, before it is expanded",
            stage="kiln",
        ),
        PipelineStep(
            f"split-products{{arch={arch}}}", "few tiles with long sums, where parts were measured to be faster"
        ),
        PipelineStep(
            f"convert-scatters{{deterministic={ordered}}}", "writes with indices have kernels here: a CPU's are ATen's"
        ),
        *_gpu_kernels(chip, _emulates(options)),
        *(_autotuning(options, "gpu", f" device={device} {chip}") if device else []),
    ]


def _gpu_kernels(chip: str, roundings: bool) -> list[PipelineStep]:
    """From named ops to scheduled kernels; the arguments are those of ``gpu_kernels_text``."""
    return [
        PipelineStep(_expand("gpu"), "norms, softmax, pooling as loops that fusion can take apart"),
        PipelineStep("compose-views", "the expansions bring views of their own"),
        PipelineStep(_CANONICALIZE, "constants to the front, trivial arithmetic away"),
        PipelineStep("cse", "equal views, fills and statistics are one value: fusion counts readers"),
        PipelineStep(
            "split-reductions{parts=256 max-results=64 max-columns=8192}",
            "long sums with few results get programs that share them",
        ),
        *_fusion(
            "fuse{row-blocks=false most-accesses=128}",
            "every computation into a kernel; programs never wait for each other",
            roundings,
        ),
        PipelineStep("assign-layouts", "where each tensor lies: schedules depend on strides"),
        PipelineStep("reuse-buffers", "results over operands that die, once it is known where their elements lie"),
        PipelineStep(f"schedule-gpu{{{chip}}}", "tiles and warps by the measured rules", stage="sched"),
    ]


def gpu_kernels_text(chip: str, roundings: bool) -> str:
    """The part of the GPU's pipeline that makes scheduled kernels of named ops, for modules that schedules are tried
    on: what runs there is then what the graph's kernels are. ``chip``: options of ``schedule-gpu``; ``roundings``:
    eager's are kept."""
    return ",".join(step.pass_.spec() for step in _gpu_kernels(chip, roundings))


def _expand(target: str) -> str:
    """Ops without a kernel of their own on a target are taken apart."""
    return f"expand-named-ops{{keep={','.join(kernel_kinds(target))}}}"


# For ``kiln-opt --pipeline=NAME``.
PIPELINES = {"cpu": cpu_pipeline, "gpu": gpu_pipeline}
