# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The kernels of a plan for a GPU: Triton IR that Triton compiles in the background while the plan is made."""

import functools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import KernelOp, opdef, static_flops
from kiln.dialects.walk import ops_inside
from kiln.errors import CompileError, InvalidIRError, UnsupportedError
from kiln.lowering.compiler_threads import compiler_threads
from kiln.lowering.gpu.compile import Artifacts, assembled_ptx, compile_ttir
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.sass import sass
from kiln.lowering.gpu.ttir import to_ttir
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.runtime.cuda.libraries import prepare_ahead
from kiln.runtime.plan import Descriptor, Expr, Kernel, Plan, TensorMap

__all__ = [
    "GpuCode",
    "LaunchForm",
    "cleared_results",
    "compile_fitting",
    "kernel_function",
    "meanwhile",
    "start_compiler",
    "start_gpu_kernel",
    "ttir_of",
]

_WARP = 32
_NOTHING = """"builtin.module"() ({
  "tt.func"() ({ "tt.return"() : () -> () }) {sym_name = "nothing", sym_visibility = "public", function_type = () -> (),
    arg_attrs = [], noinline = false} : () -> ()
}) : () -> ()"""
_LOOP_STAGES = re.compile(r"tt\.num_stages = (\d+) : i32")
# Triton's element types of descriptors -> CUtensorMapDataType, where they differ.
_MAP_TYPES = {8: 10, 9: 8, 10: 9}


def kernel_function(module: Any) -> ir.Operation:
    """The kernel of a module: its public `tt.func`."""
    for op in module.body:
        visibility = op.operation.attributes["sym_visibility"] if "sym_visibility" in op.operation.attributes else None
        if op.operation.name == "tt.func" and (visibility is None or ir.StringAttr(visibility).value == "public"):
            return op.operation
    raise InvalidIRError("the module holds no public tt.func")


def ttir_of(kernel: KernelOp, *, debug_info: bool = False) -> str:
    """What Triton is given of a kernel; empty where its code is no Triton IR, or none."""
    if kernel.code is None or not any(op.operation.name == "tt.func" for op in kernel.code.body):
        return ""
    return to_ttir(kernel_function(kernel.code).opview, debug_info=debug_info)


def cleared_results(fusion: ir.OpView, function: ir.Operation) -> list[tuple[int, ir.AffineExpr]]:
    """(pointer number, bytes) of the results that are to be zero before the launch: those of `kiln.zero`."""
    if "kiln.zero" not in function.attributes:
        return []
    body = FusionBody(fusion)
    layouts = fusion_layouts(fusion, body)
    found: list[tuple[int, ir.AffineExpr]] = []
    for result in ir.DenseI64ArrayAttr(function.attributes["kiln.zero"]):
        number = len(body.tensors) + result
        last = [n + ir.AffineConstantExpr.get(-1) for n in body.dims(body.roots[result])]
        offset = affine.apply(layouts[number], last)[0]
        size = (offset + 1) * item_bytes(body.roots[result].type)
        found.append((number, size.maybe_downcast()))
    return found


def _multiply_adds(fusion: ir.OpView) -> int:
    """Of the products in a fusion, if all sizes are known; else -1."""
    products = [op for op in ops_inside(fusion.operation) if opdef(op).flops is not None]
    types = [ir.RankedTensorType(value.type) for op in products for value in (*op.operands, *op.results)]
    if not products or not all(type_.has_static_shape for type_ in types):
        return -1
    return sum(map(static_flops, products)) // 2


@dataclass(frozen=True)
class LaunchForm:
    """How a kernel is launched: texts of affine maps over its symbols, numbers of pointers.

    work: multiplications with an addition of its products, for reports; -1 where it has none, or not of known sizes.
    """

    grid: tuple[str, ...]
    scratch: str | None = None
    clear: tuple[tuple[int, str], ...] = ()
    descriptors: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = ()  # (pointer, sizes, strides)
    work: int = -1

    @classmethod
    def of(cls, fusion: ir.OpView, function: ir.Operation, symbols: int) -> "LaunchForm":
        """The launch that a kernel's function describes: grid, warps, descriptors, over the fusion's symbols."""

        def text(expr: ir.AffineExpr) -> str:
            return str(ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [expr])))

        attributes = function.attributes
        grid = [text(e) for e in ir.AffineMapAttr(attributes["kiln.grid"]).value.results]
        grid += [text(ir.AffineConstantExpr.get(1))] * (3 - len(grid))
        found = list(ir.ArrayAttr(attributes["kiln.descriptors"])) if "kiln.descriptors" in attributes else []

        def texts(attribute: ir.Attribute) -> tuple[str, ...]:
            return tuple(text(e) for e in ir.AffineMapAttr(attribute).value.results)

        described = [
            (ir.IntegerAttr(d["arg"]).value, texts(d["shape"]), texts(d["strides"]))
            for d in (ir.DictAttr(entry) for entry in found)
        ]
        return cls(
            tuple(grid),
            str(attributes["kiln.scratch_bytes"]) if "kiln.scratch_bytes" in attributes else None,
            tuple((number, text(size)) for number, size in cleared_results(fusion, function)),
            tuple(sorted(described)),  # in the order of the arguments, as Triton's metadata has them
            _multiply_adds(fusion),
        )


@dataclass(frozen=True)
class GpuCode:
    """A kernel that Triton compiles in another thread."""

    name: str
    arch: str
    pointers: int
    symbols: int
    form: LaunchForm
    result: "Future[Artifacts]"

    def launch_fields(self, over_plan: Callable[[str, int], Expr]) -> dict[str, Any]:
        """Fields of `Launch`; `over_plan(map, result)` puts a launch's symbols in a map."""
        form = self.form
        fields: dict[str, Any] = {
            "grid": tuple(over_plan(e, 0) for e in form.grid),
            "clear": tuple((number, over_plan(size, 0)) for number, size in form.clear),
            "has_scratch": form.scratch is not None,
            "work": form.work,
        }
        if form.scratch is not None:
            fields["scratch"] = over_plan(form.scratch, 0)
        fields["descriptors"] = tuple(
            Descriptor(number, tuple(over_plan(e, 0) for e in sizes), tuple(over_plan(e, 0) for e in strides))
            for number, sizes, strides in form.descriptors
        )
        return fields

    def finish(self, number: int, kind: str) -> tuple[Kernel, bytes]:
        """The kernel of a plan, and its object, both by `number`; waits for Triton.

        Raises CompileError or UnsupportedError where Triton rejects the kernel.
        """
        made = self.result.result()
        if made.binary is None:
            raise CompileError(f"Triton made no machine code of {self.name} for {self.arch}")
        data = made.metadata
        kernel = Kernel(
            self.name,
            data["name"],
            number,
            kind,
            self.pointers,
            self.symbols,
            threads=_WARP * data["num_warps"],
            shared=data["shared"],
            program_scratch=data.get("global_scratch_size") or 0,
            tensor_maps=tuple(_tensor_map(m) for m in data.get("tensordesc_meta") or ()),
        )
        return kernel, made.binary

    def with_ptx(self, text: str) -> "GpuCode":
        """The kernel with another text of PTX; waits for Triton and ptxas. Raises CompileError."""
        made: Future[Artifacts] = Future()
        made.set_result(assembled_ptx(self.result.result(), text, self.arch))
        return replace(self, result=made)

    def texts(self) -> dict[str, str]:
        """Triton's stages and, where nvdisasm is there, SASS, as text; waits for Triton."""
        made = self.result.result()
        texts = {"ttir": made.ttir, "ttgir": made.ttgir, "llir": made.llir, "ptx": made.assembly}
        instructions = sass(made.binary) if made.binary is not None and self.arch.startswith("sm_") else None
        return texts if instructions is None else {**texts, "sass": instructions}

    def binary(self) -> tuple[str, bytes]:
        """The cubin, empty where there is none; waits for Triton."""
        return "cubin", self.result.result().binary or b""


def start_gpu_kernel(fusion: ir.OpView, module: Any, name: str, arch: str) -> GpuCode:
    """Has Triton compile a kernel in another thread; several at once.

    Args:
      fusion: what the kernel computes.
      module: with the kernel as a public `tt.func` (lowering/gpu/emit.py).
      name: the kernel's.
      arch: "sm_90": what to compile for.
    """
    function = kernel_function(module)
    body = FusionBody(fusion)
    options = {
        key: ir.IntegerAttr(function.attributes[key]).value
        for key in ("num_warps", "num_stages")
        if key in function.attributes
    }
    text = to_ttir(function.opview)
    return GpuCode(
        name,
        arch,
        len(body.tensors) + len(body.roots),
        len(body.symbols),
        LaunchForm.of(fusion, function, len(body.symbols)),
        _threads().submit(compile_fitting, text, arch, options),
    )


def meanwhile(plan: Plan) -> None:
    """What can be done for a plan on a GPU while its kernels compile in other threads: cuDNN takes its time to choose
    engines, and to load them.
    """
    if torch.device(plan.device).type == "cuda" and torch.cuda.is_initialized():
        with torch.cuda.device(plan.device):
            prepare_ahead(plan)


def compile_fitting(text: str, arch: str, options: dict[str, int]) -> Artifacts:
    """`compile_ttir`, with fewer pipeline stages where the kernel wants more shared memory than a program may have.

    Raises UnsupportedError if it does not fit even without a pipeline, CompileError if Triton fails.
    """
    room = machine(arch).shared_bytes
    while True:
        made = compile_ttir(text, arch, options)
        wanted = made.metadata["shared"]
        if wanted <= room:
            return made
        stages = [options.get("num_stages", 3), *(int(n) for n in _LOOP_STAGES.findall(text))]
        if max(stages) <= 1:
            reason = f"a kernel for {arch} wants {wanted} bytes of shared memory, and may have {room}"
            raise UnsupportedError("kiln.fusion", "", reason)
        fewer = max(stages) - 1
        options = {**options, "num_stages": min(options.get("num_stages", 3), fewer)}
        text = _LOOP_STAGES.sub(lambda found, most=fewer: f"tt.num_stages = {min(int(found[1]), most)} : i32", text)


def _tensor_map(meta: Any) -> TensorMap:
    found: dict[str, Any] = cast(dict[str, Any], meta) if isinstance(meta, dict) else meta._asdict()
    block: Sequence[int] = found["block_size"]
    type_: int = _MAP_TYPES.get(found["elem_type"]) or found["elem_type"]
    return TensorMap(tuple(block), type_, found["elem_size"], found["swizzle"])


@functools.cache
def start_compiler(arch: str) -> None:
    """Has Triton imported and made ready in another thread, by a kernel that does nothing: its first compilation in a
    process costs half a second more than the others.
    """
    _threads().submit(compile_ttir, _NOTHING, arch, {"num_warps": 1})


def _threads() -> ThreadPoolExecutor:
    """A tenth of a compilation is Python's, so that more threads than these would wait for each other."""
    return compiler_threads("kiln-triton", 16)
