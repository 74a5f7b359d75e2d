# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Files with each kernel at each of its stages."""

from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.dialects.kiln import KernelOp
from kiln.errors import KilnError
from kiln.passes.instruments.base import Instrument
from kiln.passes.instruments.manifest import record

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes.manager import PipelineStep

__all__ = ["KernelDump"]


class KernelDump(Instrument):
    """Write to ``directory`` the code of each kernel where a step completes a stage of kernels: ``NAME.vector.mlir``,
    ``NAME.llvm.mlir``, ``NAME.ttir``; what Triton made of it (``NAME.ttgir``, ``NAME.llir``, ``NAME.ptx``, and
    ``NAME.sass`` where nvdisasm is there); machine code (``NAME.o`` and its assembly ``NAME.s``, or ``NAME.cubin``);
    and ``plan.mlir``.

    A comment gives the kind of fusion, which decides how LLVM compiles a kernel, and is not part of its code.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        from kiln.lowering.host.kernels import kernels_of
        from kiln.passes.plan_host import PlanHost

        for kernel in kernels_of(module):
            stage = "plan" if isinstance(step.pass_, PlanHost) else step.stage
            for name, text in _texts(kernel, stage):
                record(self._directory / name, text.encode())
            for name, data in _binary(kernel) if stage == "plan" else ():
                record(self._directory / name, data)
        if isinstance(step.pass_, PlanHost) and step.pass_.plan is not None:
            record(self._directory / "plan.mlir", step.pass_.plan.text.encode())


def _texts(kernel: KernelOp, stage: str) -> list[tuple[str, str]]:
    """Names and texts of the files that a stage makes of a kernel."""
    from kiln.lowering.host.gpu_kernels import ttir_of
    from kiln.lowering.host.objects import code_of

    if stage in ("vector", "llvm") and kernel.code is not None:
        return [(f"{kernel.symbol}.{stage}.mlir", f"{_header(kernel)}{kernel.code}\n")]
    if stage == "ttir" and kernel.code is not None:
        return [(f"{kernel.symbol}.ttir", ttir_of(kernel))]
    code = code_of(kernel) if stage == "plan" else None
    try:
        return [(f"{kernel.symbol}.{e}", text) for e, text in code.texts().items() if e != "ttir"] if code else []
    except KilnError:
        return []  # the kernel's mark says why


def _header(kernel: KernelOp) -> str:
    from torch_mlir import ir

    from kiln.lowering.cpu.codegen import level_of

    kind = ir.StringAttr(kernel.fusion.operation.attributes["kind"]).value
    return f"// code of a fusion of kind {kind}, which LLVM compiles at level {level_of(kind)}\n"


def _binary(kernel: KernelOp) -> list[tuple[str, bytes]]:
    from kiln.lowering.host.objects import code_of

    code = code_of(kernel)
    try:
        ending, data = code.binary() if code else ("", b"")
    except KilnError:
        return []
    return [(f"{kernel.symbol}.{ending}", data)] if data else []
