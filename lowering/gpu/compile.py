# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Triton IR text -> machine code, by Triton, for a target that need not be present."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import io
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kiln.errors import CompileError, UnsupportedError
from kiln.lowering.gpu.assembler import assembler_version, newest_assembler
from kiln.lowering.gpu.packed_integers import unpacked
from kiln.lowering.gpu.vector_flags import without_vector_flags

__all__ = ["Artifacts", "assembled_ptx", "compile_ttir", "gpu_target", "triton_problem"]

_ASSEMBLY = ("ptx", "amdgcn")
_BINARY = ("cubin", "hsaco")
_OLDEST, _OLDEST_NAME = (3, 6), "Triton 3.6"
_OLDEST_CHIP = 80
_MODULE = re.compile(r'"builtin\.module"\(|^\s*(?:builtin\.)?module\b', re.M)


@dataclass(frozen=True)
class Artifacts:
    """What Triton made of a kernel.

    `assembly` is PTX or AMD GCN text, `binary` the cubin or code object (None where this machine cannot link one).
    `metadata` has what a launch needs: `name`, `num_warps`, `shared` (bytes of dynamic shared memory),
    `global_scratch_size`, `tensordesc_meta`, ...
    """

    ttir: str
    ttgir: str
    llir: str
    assembly: str
    binary: bytes | None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ptx(self) -> str:
        """The assembly text: PTX on NVIDIA's GPUs."""
        return self.assembly

    @property
    def cubin(self) -> bytes | None:
        """The binary; None if assembling was not asked for."""
        return self.binary


def triton_problem() -> str | None:
    """Why no kernel can be compiled here: Triton is not installed, or is older than what is supported. None: it can."""
    if importlib.util.find_spec("triton") is None:
        return f"Triton is not installed; kernels for GPUs need {_OLDEST_NAME} or later"
    try:
        version = _version()
    except ImportError as error:
        return f"Triton cannot be imported ({error}); kernels for GPUs need {_OLDEST_NAME} or later"
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        return f"Triton {version} is too old; kernels for GPUs need {_OLDEST_NAME} or later"
    return None


def _version() -> str:
    """Triton's version, without the import where its package tells: that takes a while."""
    if "triton" not in sys.modules:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version("triton")
    import triton

    return triton.__version__


def gpu_target(name: str) -> Any:
    """Triton's target for "sm_90" or "gfx942".

    Raises ValueError for any other form, UnsupportedError for a GPU that is too old.
    """
    from triton.backends.compiler import GPUTarget

    if name.startswith("sm_") and name[3:].rstrip("a").isdigit():
        number = int(name[3:].rstrip("a"))
        if number < _OLDEST_CHIP:
            raise UnsupportedError("kiln.fusion", "", f"kernels need a GPU of sm_{_OLDEST_CHIP} or later, found {name}")
        return GPUTarget("cuda", number, 32)
    if re.fullmatch(r"gfx\d{2,3}[0-9a-f]", name):
        # CDNA (gfx9) has waves of 64 lanes, RDNA of 32.
        return GPUTarget("hip", name, 64 if name.startswith("gfx9") else 32)
    raise ValueError(f"GPU target: expected sm_NN or gfxNNN, found {name!r}")


def compile_ttir(text: str, target: str, options: dict[str, Any] | None = None) -> Artifacts:
    """Compile a kernel's Triton IR (`lowering.gpu.ttir.to_ttir`).

    Args:
      text: a module with one public `tt.func`; or TTGIR, which Triton only lowers.
      target: "sm_80", "sm_90", "sm_100", ... or "gfx942", ...; no such device need be there.
      options: Triton's: num_warps (4), num_stages (3), maxnreg, ...; floating-point contraction is on unless
        `enable_fp_fusion` says otherwise.

    Triton caches by text and options, so a second call is cheap.  May be called from several threads at once.
    Raises CompileError with Triton's message, or that there is no Triton; UnsupportedError for a GPU that is too old.
    """
    problem = triton_problem()
    if problem is not None:
        raise CompileError(problem)
    wanted = gpu_target(target)
    wrong = _no_kernel(text)
    if wrong is not None:
        raise CompileError(f"Triton cannot compile for {target}: {wrong}")
    import triton

    chosen = {"enable_fp_fusion": True, **(options or {})}
    with tempfile.TemporaryDirectory() as folder:
        is_scheduled = '"ttg.num-warps"' in text
        path = Path(folder) / ("kernel.ttgir" if is_scheduled else "kernel.ttir")
        path.write_text(text + _mark(wanted))
        try:
            with newest_assembler() if wanted.backend == "cuda" else contextlib.nullcontext():
                compiled: Any = triton.compile(str(path), target=wanted, options=chosen)
            described = _descriptors(path, wanted) if is_scheduled else None
            asm = dict(compiled.asm)
            if wanted.backend == "cuda":
                asm |= _mended(asm, wanted, chosen)
        except Exception as error:
            raise CompileError(f"Triton cannot compile for {target} with {chosen}: {error}") from error
    metadata = compiled.metadata._asdict()
    if described is not None:
        metadata["tensordesc_meta"] = described
    return Artifacts(
        ttir=asm.get("ttir", text),
        ttgir=asm.get("ttgir", text),
        llir=asm["llir"],
        assembly=next((asm[k] for k in _ASSEMBLY if k in asm), ""),
        binary=next((asm[k] for k in _BINARY if k in asm), None),
        metadata=metadata,
    )


def assembled_ptx(made: Artifacts, text: str, target: str) -> Artifacts:
    """A kernel with another text of PTX, which has to be launched in the same way: name, parameters, shared memory.

    Raises CompileError with ptxas' message, or that there is no such kernel in the text.
    """
    name = made.metadata["name"]
    if not re.search(rf"\.entry\s+{re.escape(name)}\b", text):
        raise CompileError(f"the PTX holds no .entry {name}")
    options = {"enable_fp_fusion": True, "num_warps": made.metadata["num_warps"]}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Triton prints all of the text
            asm = _assembled(text, gpu_target(target), options)
    except Exception as error:
        found = re.search(r"line (\d+); error\s*:\s*(.*)", str(error))
        wrong = f"line {found[1]}: {found[2]}" if found is not None else str(error)
        raise CompileError(f"ptxas refuses the PTX for {target}: {wrong}") from error
    return dataclasses.replace(made, assembly=asm["ptx"], binary=asm["cubin"])


def _mark(target: Any) -> str:
    """A comment of a kernel's text: Triton's cache asks for the assembler that it would have taken itself."""
    if target.backend != "cuda":
        return ""
    major, minor = assembler_version(target.arch)
    return f"\n// assembled by ptxas {major}.{minor}\n"


def _no_kernel(text: str) -> str | None:
    """Why Triton would end the process, which it does where it finds no function in the outermost module."""
    if "tt.func" not in text:
        return "the Triton IR holds no tt.func"
    if len(_MODULE.findall(text)) > 1:
        return "the Triton IR holds modules in a module: give to_ttir the tt.func, not the module around it"
    return None


def _mended(asm: dict[str, Any], target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What takes the place of texts of which LLVM or ptxas make wrong code, and of what Triton made of them."""
    llir, ptx = without_vector_flags(asm["llir"]), asm["ptx"]
    if llir != asm["llir"]:
        llvm: Any = importlib.import_module("triton._C.libtriton").llvm
        llvm.init_targets()  # Triton has not, where it found the kernel in its cache
        with newest_assembler():  # which says what version of PTX is written
            ptx = _stages(target, options)["ptx"](llir, {})
    ptx = unpacked(ptx)
    return {"llir": llir} if ptx == asm["ptx"] else {"llir": llir, **_assembled(ptx, target, options)}


def _assembled(ptx: str, target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The text, and the machine code that the last of Triton's stages makes of it."""
    with newest_assembler():
        return {"ptx": ptx, "cubin": _stages(target, options)["cubin"](ptx, {})}


def _stages(target: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Triton's stages by the text that they make; each takes the text before and a dict for metadata."""
    from triton.backends.compiler import Language
    from triton.compiler.compiler import make_backend

    backend: Any = make_backend(target)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options(dict(options)), Language.TRITON)
    return stages


def _descriptors(path: Path, target: Any) -> Any:
    """The metadata of a TTGIR kernel's descriptors, which Triton has only of kernels that it schedules itself."""
    from triton.compiler.compiler import make_backend

    ir: Any = importlib.import_module("triton._C.libtriton").ir
    context = ir.context()
    ir.load_dialects(context)
    make_backend(target).load_dialects(context)
    return ir.parse_mlir_module(str(path), context).get_tensordesc_metadata()
