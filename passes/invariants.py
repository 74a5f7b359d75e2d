# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the IR may hold at each stage boundary, and the checker.

A stage is a row of ``STAGES``: the ops allowed directly in functions, the ops allowed in nested regions, and a few
structural rules. ``torch`` and ``graph`` differ in meaning, not in ops. From ``kernels`` on there are kernels beside
the functions, and a row says what their code may hold.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.kiln import (
    AtenOp,
    FusionOp,
    KernelOp,
    LaunchOp,
    OpDef,
    PackOp,
    RecurrenceOp,
    Role,
    YieldOp,
    name_of,
    op_names,
    opdef,
)
from kiln.dialects.walk import ops_inside
from kiln.errors import InvalidIRError, KilnError, did_you_mean

__all__ = ["STAGES", "Stage", "check_stage"]

Allowed = tuple[str | Callable[[OpDef], bool], ...]
"""Names of ops, of whole dialects (``torch.*``), and what tells of an op by its row in the table of ops."""


def _is_free(entry: OpDef) -> bool:
    return entry.is_free


def _is_generated(entry: OpDef) -> bool:
    """Whether code generation takes an op, as data movement or as a kind of kernel."""
    return entry.role is Role.MOVEMENT or entry.has_kernel


# What a linalg body and the scalar parts of a fusion consist of.
_SCALAR: Allowed = ("arith.*", "math.*", "linalg.index", "linalg.yield", "tensor.extract")
# What a fusion's body may hold at its top level: the code generation language.
_CODEGEN: Allowed = ("linalg.generic", "arith.*", _is_generated, YieldOp.OPERATION_NAME)

_FUSED_TOP: Allowed = (
    FusionOp.OPERATION_NAME,
    AtenOp.OPERATION_NAME,
    _is_free,
    "arith.constant",
    "func.return",
)
_SCHED_TOP: Allowed = (*_FUSED_TOP, PackOp.OPERATION_NAME)

_LAUNCHED_TOP: Allowed = (
    LaunchOp.OPERATION_NAME,
    PackOp.OPERATION_NAME,
    AtenOp.OPERATION_NAME,
    _is_free,
    "arith.constant",
    "func.return",
)
# Loops of a kernel for the CPU. Some instructions are LLVM's, and address memory or functions by pointers.
_LOOPS: Allowed = (
    *("func.func", "func.call", "func.constant", "func.return", "scf.*", "vector.*", "arith.*", "math.*", "memref.*"),
    *("llvm.*", "cf.*", "ub.*", "x86.*", "x86vector.*", "amx.*", "builtin.unrealized_conversion_cast"),
)

Rule = Callable[[ir.Operation], str | None]


@dataclass(frozen=True)
class Stage:
    """What functions may hold directly (``top``), and regions, keyed by the op that owns the region.

    ``rules`` see every op and return what is wrong with it, or None.
    """

    name: str
    top: Allowed
    regions: dict[str, Allowed]
    rules: tuple[Rule, ...] = ()
    code: Allowed | None = None
    """Of stages with kernels beside the functions: what the kernels' code may hold, at any depth."""


def _builtin_types(op: ir.Operation) -> str | None:
    """From the kiln stage on every value is a ranked builtin tensor or a builtin scalar."""
    for value in [*op.operands, *op.results]:
        text = str(value.type)
        if text.startswith("!"):
            return f"has a value of type {text}; expected builtin tensors and scalars"
        if text.startswith("tensor<*"):
            return "has an unranked tensor"
    return None


def _scheduled(op: ir.Operation) -> str | None:
    """Kernels that have a choice carry it; the emitter of the others needs none."""
    if name_of(op) != "kiln.fusion" or "schedule" in op.attributes:
        return None
    bodies = (inner for block in op.regions[0].blocks for inner in block.operations)
    needs = next((name_of(inner) for inner in bodies if opdef(inner).role is Role.CONTRACTION), None)
    return f"holds {needs} and lacks attribute 'schedule'" if needs else None


def _isolated(op: ir.Operation) -> str | None:
    """Each fusion is used as a value or is dropped: its results come from one yield that ends the body."""
    if name_of(op) != "kiln.fusion":
        return None
    blocks = list(op.regions[0].blocks)
    if len(blocks) != 1:
        return f"has {len(blocks)} blocks; expected 1"
    last = list(blocks[0].operations)[-1:]
    if not last or name_of(last[0]) != "kiln.yield":
        return "does not end in kiln.yield"
    return None


def _counts(op: ir.Operation) -> str | None:
    """What a fusion computes beside its loops comes from sizes: a norm divides by the length of a row, known or not."""
    if not op.name.startswith("arith.") or op.name == "arith.constant":
        return None
    has_tensor = any(isinstance(value.type, ir.RankedTensorType) for value in op.results)
    return "computes tensors outside of linalg.generic" if has_tensor else None


_BODIES: dict[str, Allowed] = {
    "linalg.generic": _SCALAR,
    RecurrenceOp.OPERATION_NAME: (*_SCALAR, YieldOp.OPERATION_NAME),
}
_FUSED_REGIONS: dict[str, Allowed] = {"kiln.fusion": _CODEGEN, **_BODIES}

_BLOCKS: Allowed = ("tt.*", "arith.*", "math.*", "scf.*", "ub.*")
"""What a GPU's kernels are made of."""

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        Stage("torch", ("torch.*", "func.return"), {}),
        Stage("graph", ("torch.*", "func.return"), {}),
        Stage(
            "kiln",
            ("kiln.*", "linalg.generic", "arith.constant", "func.return"),
            _BODIES,
            (_builtin_types,),
        ),
        Stage(
            "fused",
            _FUSED_TOP,
            _FUSED_REGIONS,
            (_builtin_types, _isolated, _counts),
        ),
        Stage(
            "sched",
            _SCHED_TOP,
            _FUSED_REGIONS,
            (_builtin_types, _isolated, _counts, _scheduled),
        ),
        Stage("kernels", _LAUNCHED_TOP, _FUSED_REGIONS, (_builtin_types,), ()),
        Stage("vector", _LAUNCHED_TOP, _FUSED_REGIONS, (), _LOOPS),
        Stage("ttir", _LAUNCHED_TOP, _FUSED_REGIONS, (), _BLOCKS),
        Stage("llvm", _LAUNCHED_TOP, _FUSED_REGIONS, (), ("llvm.*",)),
        Stage("object", _LAUNCHED_TOP, _FUSED_REGIONS, (), ("llvm.*",)),
        Stage("ptx", _LAUNCHED_TOP, _FUSED_REGIONS, (), _BLOCKS),
        Stage("plan", ("kiln.*", "arith.constant", "func.return"), _FUSED_REGIONS, (), ("llvm.*", *_BLOCKS)),
    )
}


def check_stage(module: ir.Module, stage: str) -> None:
    """Raise :class:`InvalidIRError` for the first op that the stage does not allow, naming the op and its place.

    Raises :class:`KilnError` for a stage that does not exist.
    """
    spec = STAGES.get(stage)
    if spec is None:
        raise KilnError(f"unknown stage {stage!r}{did_you_mean(stage, STAGES) or '; stages: ' + ', '.join(STAGES)}")
    for op in module.body.operations:
        if spec.code is not None and isinstance(op, KernelOp):
            _check_kernel(op, spec)
            continue
        if op.operation.name != "func.func":
            raise _violation(op.operation, spec, "stands at module level; expected func.func only")
        for inner in _regions(op.operation):
            _check(inner, spec, "func.func", spec.top)


def _check_kernel(kernel: KernelOp, spec: Stage) -> None:
    """What a kernel computes is as fusion left it; its code is that of the stage, if it has any."""
    _check(kernel.fusion.operation, spec, "kiln.kernel", (FusionOp.OPERATION_NAME,))
    if kernel.code is None or not spec.code:
        return
    for op in ops_inside(kernel.code.operation):
        if op != kernel.code.operation and not _matches(op, spec.code):
            raise _violation(op, spec, f"is not allowed in a kernel; allowed: {', '.join(_names(spec.code))}")


def _check(op: ir.Operation, spec: Stage, owner: str, allowed: Allowed) -> None:
    name = name_of(op)
    if not _matches(op, allowed):
        place = "in a function" if owner == "func.func" else f"in the body of {owner}"
        raise _violation(op, spec, f"is not allowed {place}; allowed: {', '.join(_names(allowed))}")
    for rule in spec.rules:
        complaint = rule(op)
        if complaint is not None:
            raise _violation(op, spec, complaint)
    if len(op.regions):
        # An op without an entry (torch.prim.Loop) keeps the rules of the region it stands in.
        inside = spec.regions.get(name, allowed)
        for inner in _regions(op):
            _check(inner, spec, name, inside)


def _regions(op: ir.Operation) -> Iterator[ir.Operation]:
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation


def _matches(op: ir.Operation, allowed: Allowed) -> bool:
    name = name_of(op)
    if name in allowed or f"{name.split('.', 1)[0]}.*" in allowed:
        return True
    entry = opdef(op)
    return any(not isinstance(given, str) and given(entry) for given in allowed)


def _names(allowed: Allowed) -> list[str]:
    return [name for given in allowed for name in ([given] if isinstance(given, str) else op_names(given))]


def _violation(op: ir.Operation, spec: Stage, complaint: str) -> InvalidIRError:
    return InvalidIRError(f"stage {spec.name!r}: {name_of(op)} {complaint}", op.location)
