# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A vector-stage kernel -> a relocatable object with one entry point.

The pass pipeline is the shortest one that lowers what a kernel holds (the ops present decide), with the verifier
off: on kernels of this size both cost more than the lowering itself.
"""

import dataclasses
import json
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from kiln.dialects.kiln import Role, opdef_of_kind
from kiln.dialects.walk import ops_inside
from kiln.errors import CompileError, InvalidIRError
from kiln.lowering.cpu import abi, isa, jit
from kiln.lowering.cpu.bits import bf16_as_bits
from kiln.lowering.cpu.half import expand_bf16, expand_half, lacks_half
from kiln.lowering.cpu.kernel_object import KernelObject, PendingKernel
from kiln.runtime.plan import Site

if TYPE_CHECKING:
    from kiln.passes.expand_vector_math import ExpandVectorMath

__all__ = [
    "compile_kernel",
    "expand_math",
    "level_of",
    "lower_kernel",
    "lower_to_llvm",
    "lowering_pipeline",
    "mark_loops",
    "not_lowered",
    "start_kernel",
    "verify_kernel",
]

# Hand-tiled kernels leave LLVM nothing to unroll or vectorise: -O1 gives the same code in half the time.
_OPT_LEVEL, _DEFAULT_OPT_LEVEL = 1, 2

_NOT_UNROLLED = "#llvm.loop_annotation<unroll = <disable = true>>"
"""For all loops of hand-tiled kernels: LLVM would unroll their loops over k once more, and those that copy or finish,
which is a fifth of its time for code that is not faster (docs/cpu.md)."""

_LOWERED_AS_THEY_ARE = {
    "vector.bitcast", "vector.broadcast", "vector.extract", "vector.fma", "vector.load", "vector.maskedload",
    "vector.maskedstore", "vector.shuffle", "vector.store",
}  # fmt: skip
"""What `convert-to-llvm` lowers of the vectors of one dimension that kernels have. Other ops need patterns that come
before it, which `convert-vector-to-llvm` looks for all over a kernel."""

_FOR_THE_ENTRY = ("kiln.shared", "kiln.barriers")
"""Attributes that `abi.wrap_kernel` reads."""


def start_kernel(
    module: Any,
    described: KernelObject,
    *,
    kind: str = "",
    opt_level: int | None = None,
    keep: MutableMapping[str, KernelObject] | None = None,
) -> PendingKernel:
    """Has LLVM compile what `lower_kernel` lowered for the host CPU, in the background.

    Args:
      module: in the LLVM dialect; it may be changed when this returns.
      described: what `lower_kernel` returned.
      kind: the fusion's kind, which selects LLVM's optimisation level unless `opt_level` is given.
      keep: see `PendingKernel`.
    """
    level = level_of(kind) if opt_level is None else opt_level
    return PendingKernel(described, jit.start(module, described.entry, level), keep)


def level_of(kind: str) -> int:
    """LLVM's optimisation level for kernels of a kind of fusion."""
    return _OPT_LEVEL if _is_tiled(kind) else _DEFAULT_OPT_LEVEL


def compile_kernel(
    module: ir.Module,
    name: str,
    *,
    kind: str = "",
    opt_level: int | None = None,
    dump: Callable[[str, ir.Module], None] | None = None,
) -> KernelObject:
    """The steps of a pipeline behind `emit-kernels` on one kernel, for trials and tests; `module` is not changed.

    Args:
      module: one func.func per kernel on 1-D memrefs (scf, vector, arith, math, memref).
      name: the kernel to export; other functions in the module become internal.
      kind: the fusion's kind: how loops are marked, and LLVM's optimisation level unless `opt_level` is given.
      dump: called as dump("llvm", module) with the lowered module.

    Raises InvalidIRError for invalid IR or a wrong signature, CompileError where the lowering or LLVM fails.
    """
    with module.context, ir.Location.unknown():
        verify_kernel(module, name)
        clone = _clone(module)
        mark_loops(clone, kind)
        expand_math(clone)
        described = lower_kernel(clone, name)
        if dump is not None:
            dump("llvm", clone)
        code = start_kernel(clone, described, kind=kind, opt_level=opt_level)
        try:
            return code.result()
        except CompileError as error:
            raise not_lowered(clone, name) or error from None


def mark_loops(module: Any, kind: str) -> None:
    """Has LLVM leave the loops of a kernel as they are, if kernels of its kind are tiled by hand."""
    if _is_tiled(kind):
        _keep_loops(module, sums=kind != "conv")


def _is_tiled(kind: str) -> bool:
    return opdef_of_kind(kind).role is Role.CONTRACTION


def lower_kernel(module: Any, name: str) -> KernelObject:
    """Lowers kernel @name to the LLVM dialect in place: the entry point, the pipeline, linkage.

    Returns what the kernel will be, without the object. Raises InvalidIRError for a wrong signature, CompileError from
    the lowering.
    """
    checks, sites = _checks(module, name), _sites(module, name)
    scratch, work = _func_maps(module, name)
    signature = abi.wrap_kernel(module, name)
    lower_to_llvm(module, name)
    _internalise(module, keep=f"{name}_entry")
    _for_target(module)
    return KernelObject(name, b"", signature.pointers, signature.symbols, scratch, work, checks, sites)


def lower_to_llvm(module: Any, name: str = "module") -> None:
    """Runs the lowering pipeline in place. An op that no pass lowers stays (see `not_lowered`)."""
    pipeline = lowering_pipeline(_op_names(module))
    manager = PassManager.parse(pipeline)
    manager.enable_verifier(False)
    try:
        manager.run(module.operation)
    except ir.MLIRError as error:
        raise CompileError(f"lowering of @{name}: {error}", pass_name=pipeline) from error


def lowering_pipeline(ops: set[str]) -> str:
    """The pass pipeline that lowers the given op names, in order:

    * affine and strided memref ops to arithmetic, only where present;
    * scf to branches (before vectors: masked tails sit inside scf.if);
    * vector to LLVM, where ops are to be taken apart for that;
    * everything else through the dialects' own LLVM interfaces in one pass.
    """
    dialects = {name.partition(".")[0] for name in ops}
    steps: list[str] = []
    if ops & {"memref.subview", "memref.reinterpret_cast", "memref.collapse_shape", "memref.expand_shape"}:
        steps.append("expand-strided-metadata")
    if "affine" in dialects or "expand-strided-metadata" in steps:
        steps.append("lower-affine")
    if ops & {"vector.transfer_read", "vector.transfer_write"}:
        steps.append("convert-vector-to-scf")
    if "scf" in dialects or "convert-vector-to-scf" in steps:
        steps.append("convert-scf-to-cf")
    if ops & {"arith.ceildivsi", "arith.floordivsi", "arith.ceildivui"} or "memref.realloc" in ops:
        steps.append("arith-expand")
    if any(op.startswith("vector.") and op not in _LOWERED_AS_THEY_ARE for op in ops):
        steps.append("convert-vector-to-llvm")
    steps += ["convert-to-llvm", "reconcile-unrealized-casts"]
    return f"builtin.module({','.join(steps)})"


def verify_kernel(module: Any, name: str) -> None:
    """The one time that a kernel is verified: on invalid IR the passes that lower it corrupt memory."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidIRError(f"the code generator made an invalid kernel @{name}: {error}") from error


def _clone(module: ir.Module) -> ir.Module:
    clone = ir.Module.create()
    for op in module.body:
        clone.body.append(op.operation.clone())
    return clone


def _keep_loops(module: Any, sums: bool) -> None:
    """Has LLVM leave the loops of a module as they are; those that carry sums only with `sums`."""
    annotation = ir.Attribute.parse(_NOT_UNROLLED)

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name == "scf.for" and (sums or not len(op.operation.results)):
            op.operation.attributes["loop_annotation"] = annotation
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _defined(module: Any) -> list[ir.Operation]:
    """The functions that a module in the LLVM dialect defines."""
    operations = [op.operation for op in module.body]
    return [op for op in operations if op.name == "llvm.func" and len(op.regions[0].blocks)]


def _op_names(module: Any) -> set[str]:
    found: set[str] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        found.add(op.operation.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)  # MLIR's walk: half the time of one through the blocks' iterators
    return found


def _func_maps(module: Any, name: str) -> tuple[str | None, str | None]:
    """The kiln.scratch_bytes and kiln.work maps of func @name, as text; they are removed."""
    for op in module.body:
        if "sym_name" not in op.attributes or ir.StringAttr(op.attributes["sym_name"]).value != name:
            continue
        found: list[str | None] = []
        for key in ("kiln.scratch_bytes", "kiln.work"):
            found.append(str(op.attributes[key]) if key in op.attributes else None)
        for key in [key for key in op.attributes if key.startswith("kiln.") and key not in _FOR_THE_ENTRY]:
            del op.attributes[key]
        return found[0], found[1]
    return None, None


def _checks(module: Any, name: str) -> tuple[str, ...]:
    """The names in kiln.checks of func @name."""
    for op in module.body:
        if "kiln.checks" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return tuple(ir.StringAttr(n).value for n in ir.ArrayAttr(op.attributes["kiln.checks"]))
    return ()


def _sites(module: Any, name: str) -> tuple[Site, ...]:
    """What kiln.sites of func @name lists."""
    for op in module.body:
        if "kiln.sites" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == name:
            found = [ir.ArrayAttr(site) for site in ir.ArrayAttr(op.attributes["kiln.sites"])]
            return tuple(Site(*(ir.StringAttr(text).value for text in site)) for site in found)
    return ()


def not_lowered(module: Any, name: str) -> CompileError | None:
    """An error that names the first op outside of the LLVM dialect: why LLVM rejected the module, if there is one."""
    for op in ops_inside(module.operation):
        if not op.name.startswith("llvm."):
            return CompileError(f"{op.name} at {op.location} in @{name} has no lowering to LLVM")
    return None


def expand_math(module: Any) -> None:
    """Runs `expand-vector-math`: math functions on vectors become polynomials (never scalar libm calls).

    What is left of bf16 is then moved as bits, and f16 taken apart where the CPU cannot convert it.
    """
    names = _op_names(module)
    has_bf16 = bool(names & _MAKES_FLOATS) or "bf16" in _signatures(module)
    if any(name.startswith("math.") or name in _EXPANDED_ARITH for name in names):
        _vector_math_pass().expand(module)
    if has_bf16:
        expand_bf16(module)
        bf16_as_bits(module)
    if lacks_half(isa.target()):
        expand_half(module)


def _signatures(module: Any) -> str:
    """The types of all functions, as text."""
    return " ".join(str(op.attributes["function_type"]) for op in module.body if "function_type" in op.attributes)


_MAKES_FLOATS = {
    "arith.bitcast", "arith.extf", "arith.sitofp", "arith.truncf", "arith.uitofp", "llvm.bitcast",
    "llvm.call_intrinsic", "vector.bitcast",
}  # fmt: skip
"""What makes a value of one type of float from another type, and so bf16 where no argument has it."""

_EXPANDED_ARITH = {
    "arith.remf", "arith.extf", "arith.truncf", "arith.maximumf", "arith.minimumf", "arith.sitofp", "arith.uitofp",
}  # fmt: skip


def _vector_math_pass() -> "ExpandVectorMath":
    from kiln.passes.expand_vector_math import ExpandVectorMath

    return ExpandVectorMath()


def _for_target(module: Any) -> None:
    """Have LLVM use the instructions of the CPU that code is made for, where that is not the host."""
    cpu = isa.target()
    if dataclasses.replace(cpu, float_parts=False) == isa.host():
        return
    # The features are named as well: those of the host would be added otherwise.
    features = ir.Attribute.parse(f"#llvm.target_features<[{', '.join(json.dumps(f'+{f}') for f in cpu.features)}]>")
    for op in _defined(module):
        op.attributes["target_cpu"] = ir.StringAttr.get(cpu.name)
        op.attributes["target_features"] = features


def _internalise(module: Any, keep: str) -> None:
    """Makes every defined function but the entry internal, and none of them inlined.

    Inlined into the entry (and that into the wrapper that the engine adds to each external function), the kernel would
    be compiled up to three times and its pointers would lose `noalias`.
    """
    internal = ir.Attribute.parse("#llvm.linkage<internal>")
    for op in _defined(module):
        op.attributes["no_inline"] = ir.UnitAttr.get()
        if ir.StringAttr(op.attributes["sym_name"]).value != keep:
            op.attributes["linkage"] = internal
