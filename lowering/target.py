# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Targets: what graphs are compiled for. One frozen object says what the machine is, what it has kernels for, and which
passes lead to them.

A pipeline is phases in a row (`PHASES`), each a method that gives its steps. A target overrides phases. Its class is in
its own folder, `lowering/NAME/target.py`, and has one line in `_BUILT_IN`; one from outside calls `register_target`, or
its package has an entry point (docs/first-target.md).
"""

import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from kiln.errors import KilnError, did_you_mean
from kiln.lowering.options import PipelineOptions
from kiln.schedules import names_of_rules

if TYPE_CHECKING:  # a graph that is loaded from the cache needs no MLIR
    from torch_mlir import ir

    from kiln.lowering.tune.trials import Judge, Trials

__all__ = [
    "ALONE",
    "ENTRY_POINTS",
    "PHASES",
    "Library",
    "Step",
    "Steps",
    "Target",
    "braced",
    "find_target",
    "is_built_in",
    "register_target",
    "strict",
    "target_names",
]

PHASES = ("simplify", "convert", "choose_library", "fuse", "place", "schedule", "emit", "lower", "plan")
"""The phases of a pipeline: scheduled kernels are complete after `schedule`, machine code after `lower`."""

_CANONICALIZE = (
    "canonicalize{disable-patterns="
    "{{anonymous}::InferStaticShapeOfOperands,(anonymous namespace)::InferStaticShapeOfOperands}}"
)
"""One pattern stays off: where a size is dynamic in one operand and static in another it puts tensor.cast around the
op, which ends fusion there and says nothing about how sizes depend on symbols. MLIR names it as its compiler did."""


@dataclass(frozen=True)
class Step:
    """A pass as pipeline text; why it stands where it stands; the stage that is complete after it, or empty."""

    text: str
    why: str
    stage: str = ""


Steps = Sequence[Step]

_APPLY = "apply-schedules"

ALONE = "alone"
"""Attribute of a named op whose kernel takes nothing behind it."""


@dataclass(frozen=True)
class Library:
    """Who computes a named op. reason: why a library is faster; None: a kernel of its own is as fast, for the reason
    `kept`, which is then noted on the op by the attributes `marks`.
    """

    reason: str | None
    kept: str = "a kernel of its own is as fast"
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """What is the same for all targets: how graphs are simplified, and converted to ops with a meaning.

    name: as in ``options={"target": ...}``. uses_triton: kernels are Triton IR on the way. library_adds_bias: a bias
    behind a convolution costs its library nothing. finds_positions: kernels find where the maxima of pooling windows
    are; else ATen does. emitters: the folder of `lowering` whose `emit.py` writes its kernels; empty: one from outside.
    """

    name: ClassVar[str]
    uses_triton: ClassVar[bool] = False
    library_adds_bias: ClassVar[bool] = True
    finds_positions: ClassVar[bool] = True
    emitters: ClassVar[str] = ""

    @classmethod
    def on(cls, device: str, arch: str) -> Self:
        """The target for a device ("cuda:0"), which is such a GPU ("sm_90"); one for the CPU depends on neither."""
        return cls()

    @property
    def runs_on(self) -> str:
        """Where plans run and tensors are, as PyTorch says."""
        return "cpu"

    def supports(self, op: "ir.Operation") -> str | None:
        """Why there is no kernel for a named op of a kind that has kernels; None if there is one, or for other ops."""
        raise NotImplementedError(f"{type(self).__name__}.supports")

    def library(self, op: "ir.Operation", *, tensor_maps: bool) -> "Library | None":
        """Who computes a named op; None for an op that no library has. tensor_maps: kernels may use them."""
        return None

    def judges(self, trials: "Trials") -> "Mapping[str, Judge]":
        """What runs named ops with a kernel and with a library, by the ops' names; empty where nothing can be run."""
        return {}

    def wants_channels_last(self, op: "ir.Operation") -> bool:
        """Whether the kernel of a convolution needs an image with neighbouring channels, for which a copy pays."""
        return False

    def wants_rows(self, op: "ir.Operation") -> bool:
        """Whether the kernel of a convolution is much slower on an image with neighbouring channels."""
        return False

    def pipeline(self, options: PipelineOptions, first: str = PHASES[0], last: str = PHASES[-1]) -> list[Step]:
        """Phases in a row, from one to another: by default all."""
        phases = PHASES[PHASES.index(first) : PHASES.index(last) + 1]
        return [step for phase in phases for step in self.phase(phase, options)]

    def phase(self, name: str, options: PipelineOptions) -> Steps:
        """The steps of a phase."""
        steps: Steps = getattr(self, name)(options)
        if name == "schedule" and not any(step.text.startswith(_APPLY) for step in steps):
            done = next((step.stage for step in reversed(steps) if step.stage), "")
            return [*steps, *self.apply_schedules(options, done)]
        return steps

    def simplify(self, options: PipelineOptions) -> Steps:
        """The torch dialect, by rules of algebra."""
        algebra = f"simplify-algebra{{fast-math={str(options.fast_math).lower()}}}"
        return [
            Step("torch-cse", "merge what was traced twice, so that rules see equal values as one"),
            Step("fold-constants", "sizes and scale factors as numbers: the rules below look for numbers"),
            Step(algebra, "identities and views that undo each other go before any op is converted"),
            Step("torch-cse", "what became equal is merged: a pattern's intermediates have no other users"),
            Step("rewrite-patterns", "what is written out becomes one op, in the normal form made above"),
            Step(algebra, "the replacements' own views and negations meet those around them", stage="graph"),
        ]

    def convert(self, options: PipelineOptions) -> Steps:
        """From the torch dialect to named ops and loops, with views folded into what reads them."""
        positions = "" if self.finds_positions else "positions=false"
        return [
            Step(
                f"convert-torch-to-kiln{braced(positions)}",
                "ops with their meaning: ours, else torch-mlir's, else a call to ATen",
            ),
            Step("recognize-scans", "while views are those of the model's lines: scans in log steps become one op"),
            Step("compose-views", "chains of views become one index map each, so that patterns see through them"),
            Step("fold-matmul-views", "products over leading dims without reshapes; transposes become flags"),
            Step("fold-attention-views", "grouped queries read the heads that there are, not copies of them"),
            Step("narrow-attention", "in 16 bits where those are converted before and after: half the memory"),
        ]

    def choose_library(self, options: PipelineOptions) -> Steps:
        """What a library does faster, and what decides that."""
        raise NotImplementedError(f"{type(self).__name__}.choose_library")

    def fuse(self, options: PipelineOptions) -> Steps:
        """Every computation into a kernel."""
        raise NotImplementedError(f"{type(self).__name__}.fuse")

    def place(self, options: PipelineOptions) -> Steps:
        """Where each tensor lies."""
        return [
            Step("assign-layouts", "where each tensor lies: schedules depend on strides"),
            Step("reuse-buffers", "results over operands that die, once it is known where their elements lie"),
        ]

    def schedule(self, options: PipelineOptions) -> Steps:
        """How each kernel walks its loops."""
        raise NotImplementedError(f"{type(self).__name__}.schedule")

    def apply_schedules(self, options: PipelineOptions, stage: str = "") -> list[Step]:
        """Rules from outside, if there are any. They are the end of `schedule` where that does not name them itself,
        as what makes use of schedules has to.
        """
        rules = options.schedule_rules
        if not rules:
            return []
        arch = getattr(self, "arch", "")
        given = braced(f"target={self.name}", f"arch={arch}" if arch else "", f"rules={names_of_rules(rules)}")
        return [Step(f"{_APPLY}{given}", "rules from outside have the last word", stage)]

    def emit(self, options: PipelineOptions) -> Steps:
        """From scheduled fusions to loops of each kernel."""
        raise NotImplementedError(f"{type(self).__name__}.emit")

    def lower(self, options: PipelineOptions) -> Steps:
        """From there to machine code."""
        raise NotImplementedError(f"{type(self).__name__}.lower")

    def plan(self, options: PipelineOptions) -> Steps:
        """The host's program."""
        device = "" if self.runs_on == "cpu" else f"device={self.runs_on}"
        return [
            Step(
                f"call-unsupported-kernels{braced(device, strict(options))}",
                "once it is known of which kernels there is no code",
            ),
            Step(f"plan-host{braced(device)}", "launch order and buffers, while kernels are compiled", "plan"),
        ]

    def expand(self, kinds: Sequence[str]) -> list[Step]:
        """Named ops without a kernel as loops; ``kinds``: the ops that stay, where `supports` agrees."""
        keep = f" keep={','.join(kinds)}" if kinds else ""
        return [
            Step(
                f"expand-named-ops{{target={self.name}{keep}}}",
                "norms, softmax, pooling as loops that fusion can take apart",
            ),
            Step("compose-views", "the expansions bring views of their own"),
            Step("hoist-gathers", "what is gathered from is in memory whole: of a cast, better what was cast"),
            Step("bound-positions", "wraps and clamps of positions that are in bounds cost ten instructions for each"),
        ]

    @staticmethod
    def clean() -> list[Step]:
        """What makes equal computations one."""
        return [
            Step(_CANONICALIZE, "constants to the front, trivial arithmetic away"),
            Step("cse", "equal views, fills and statistics are one value: fusion counts readers"),
        ]

    @staticmethod
    def round(options: PipelineOptions) -> Step:
        """What follows from fusion for roundings, unless eager's are wanted."""
        if options.emulate_precision_casts:
            return Step("drop-roundings{sums-only=true}", "a bias is added before rounding, as in eager", "fused")
        return Step("drop-roundings", "what only one kernel sees is f32, once it is known what that is", "fused")

    @staticmethod
    def outline(options: PipelineOptions, given: str = "") -> list[Step]:
        """Kernels as symbols; ``given``: options of `outline-kernels`."""
        keep = Step("keep-references", "what each step computes, before equal kernels are one")
        outline = Step(f"outline-kernels{braced(given)}", "equal fusions are emitted once", stage="kernels")
        return [*([keep] if options.check else []), outline]

    @staticmethod
    def assemble(given: str = "") -> list[Step]:
        """From loops to objects of the CPU; ``given``: options of `assemble`."""
        return [
            Step("optimize-loops", "while loops are loops"),
            Step("expand-vector-math", "functions as arithmetic, which the lowering takes op by op"),
            Step("lower-to-llvm", "with the entry that the launcher calls", stage="llvm"),
            Step(f"assemble{braced(given)}", "in other threads, while further kernels are emitted", stage="object"),
        ]


def braced(*options: str) -> str:
    """Options of a pass as text; nothing where there are none."""
    given = " ".join(filter(None, options))
    return f"{{{given}}}" if given else ""


def strict(options: PipelineOptions) -> str:
    """The option of passes that may find a defect of an emitter."""
    return "strict" if options.is_strict else ""


_BUILT_IN = {
    "cpu": "kiln.lowering.cpu.target:CpuTarget",
    "cuda": "kiln.lowering.gpu.target:GpuTarget",
    "tt-cpu": "kiln.lowering.ttcpu.target:TtCpuTarget",
}
_REGISTERED: dict[str, type[Target]] = {}
ENTRY_POINTS = "kiln.targets"
"""The group of entry points that name classes of targets."""

T = TypeVar("T", bound=type[Target])


def register_target(cls: T) -> T:
    """Class decorator: make a target from outside known by its name.

    Raises KilnError for a name that another target has.
    """
    other = _REGISTERED.get(cls.name)
    if cls.name in _BUILT_IN or other is not None and other.__qualname__ != cls.__qualname__:
        raise KilnError(f"there is a target {cls.name!r} already")
    _REGISTERED[cls.name] = cls
    return cls


def target_names() -> tuple[str, ...]:
    """The names of all targets, the built-in ones first."""
    return tuple(dict.fromkeys((*_BUILT_IN, *_REGISTERED, *_installed())))


def is_built_in(name: str) -> bool:
    """Whether a target is part of Kiln."""
    return name in _BUILT_IN


def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    """Targets of installed packages, by name."""
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def find_target(name: str) -> type[Target]:
    """The class of a target. Raises KilnError, naming the near ones, if there is none of that name."""
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        found: type[Target] = getattr(importlib.import_module(module), attribute)
        return found
    if name not in _REGISTERED and name in _installed():
        register_target(_installed()[name].load())
    if name not in _REGISTERED:
        near = did_you_mean(name, target_names()) or f"; there are {', '.join(target_names())}"
        raise KilnError(f"unknown target {name!r}{near}")
    return _REGISTERED[name]
