# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""``kiln-check FOLDER``: compile and run one kernel that checked execution has found to be off, and compare it again.

The folder is what `kiln.errors.CheckError` names: IR, operands, results, and what the kernel was compiled for.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from kiln.errors import CheckError, KilnError

__all__ = ["main", "run_folder"]


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit status: 0 where the kernel is right, 1 where it is off, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="kiln-check", description="Run one kernel again and compare it with its IR.")
    parser.add_argument("folder", type=Path, help="the folder that checked execution left")
    parser.add_argument("--target", choices=("cpu", "tt-cpu", "cuda"), help="another target than the folder's")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write the stages of the kernel there")
    parser.add_argument("--stored", action="store_true", help="compare the results in the folder, run nothing")
    arguments = parser.parse_args(argv)
    try:
        compared = run_folder(arguments.folder, arguments.target, arguments.dump, stored=arguments.stored)
    except CheckError as error:
        print(f"{error.kernel}: off\n  " + "\n  ".join(error.differences))
        return 1
    except KilnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{compared} results: right")
    return 0


def run_folder(folder: Path, target: str | None = None, dump: Path | None = None, *, stored: bool = False) -> int:
    """Compare the kernel of a folder with its IR; returns how many results were compared.

    target: what to compile for; by default the folder's.
    stored: compare the results that the folder holds.

    Raises:
        CheckError: a result is off.
        KilnError: the folder holds no kernel, or the kernel does not compile.
    """
    from kiln.runtime.checked.folder import read_folder

    found = read_folder(folder)
    if stored:
        return _compare(found, found.results, found.operands)
    device = "cpu"
    name = target or found.settings["target"]
    if name == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise KilnError("the kernel is for a GPU, and there is none; --target=tt-cpu runs it on the CPU")
        device = f"cuda:{torch.cuda.current_device()}"
    return _run(found, name, device, dump)


def _compare(found: Any, results: Any, operands: Any) -> int:
    from kiln.runtime.checked.comparison import compare
    from kiln.runtime.checked.reference import Reference

    reference = Reference(found.text, bool(found.settings.get("tf32")))
    expected = reference.evaluate(operands, found.symbols, next((r.device for r in results), None))
    rows = enumerate(zip(results, expected, reference.elements, strict=True))
    differences = [d for i, (x, e, t) in rows if (d := compare(i, x, e, t)) is not None]
    if differences:
        raise CheckError("the kernel", "stored", [str(d) for d in differences], ops=reference.ops())
    return len(results)


def _run(found: Any, name: str, device: str, dump: Path | None) -> int:
    """Compiles the kernel as a graph of its own, and runs that checked."""
    import torch

    from kiln.dialects import create_context, parse
    from kiln.lowering.cpu import isa
    from kiln.lowering.host.references import arranged
    from kiln.lowering.options import KernelsAlone
    from kiln.lowering.target import find_target
    from kiln.passes.instruments import KernelDump
    from kiln.passes.pipelines import pipeline
    from kiln.passes.plan_host import compiled_plan
    from kiln.runtime.checked.checker import LaunchChecker

    settings = found.settings
    arch = ""
    if device != "cpu":
        major, minor = torch.cuda.get_device_capability()
        arch = f"sm_{major}{minor}"
    target = find_target(name).on(device, arch)
    context = create_context(tt=name != "cpu")
    module = parse(found.text, context)
    arranged(
        module,
        [(list(x.shape), list(x.stride())) for x in found.operands],
        [(list(x.shape), list(x.stride())) for x in found.results],
    )

    with isa.compiling_for(isa.named(settings.get("cpu", ""), settings.get("float_parts", False))):
        if dump is not None:
            dump.mkdir(parents=True, exist_ok=True)
        instruments = [] if dump is None else [KernelDump(dump)]
        kernels = pipeline(target, KernelsAlone(check="error"), first="emit", last="lower")
        plan = compiled_plan(module, kernels, device, name="kernel", instruments=instruments)
    checker = LaunchChecker(plan, "error", bool(settings.get("tf32")), settings, tempfile.mkdtemp(prefix="kiln-check-"))
    if name == "tt-cpu":
        from kiln.lowering.ttcpu.ttgir.shipped import shipped_results

        checker.shipped = shipped_results
    constants, inputs = _arguments(module, found, device)
    executor: Any
    if device == "cpu":
        from kiln.runtime.executor import Executor

        executor = Executor(plan, constants, checker=checker)
    else:
        from kiln.runtime.cuda.executor import CudaExecutor

        executor = CudaExecutor(plan, constants, checker=checker)
    executor(inputs)
    return len(found.results)


def _arguments(module: Any, found: Any, device: str) -> tuple[dict[str, Any], list[Any]]:
    """The constants by name, and the other arguments in order."""
    from torch_mlir import ir

    from kiln.lowering.host.references import argument_marks

    constants: dict[str, Any] = {}
    inputs: list[Any] = []
    marks = argument_marks(module.body.operations[0].operation)
    values = [*(x.to(device) for x in found.operands), *found.symbols]
    for own, value in zip(marks, values, strict=True):
        if "kiln.constant" in own:
            constants[ir.StringAttr(own["kiln.constant"]).value] = value
        else:
            inputs.append(value)
    return constants, inputs


if __name__ == "__main__":
    sys.exit(main())
