# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running the kernels of a module that is scheduled, as a compiled model would, against the module itself.

What comes out is compared with what the module means (``evaluate``). One fusion can be taken out of its module and
tried alone: the operands have the strides that they have there.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from kiln.dialects import affine, parse, to_text
from kiln.dialects.kiln import name_of
from kiln.errors import CheckError, KilnError, NumericsError
from kiln.passes.numerics.compare import compare
from kiln.passes.numerics.evaluate import evaluate, longest_sum
from kiln.passes.numerics.sample import KINDS, Sample, random_samples
from kiln.passes.numerics.signature import entry_function, signature_of

if TYPE_CHECKING:
    from kiln.passes.manager import PipelineStep
    from kiln.runtime.plan import Plan

__all__ = ["fusions_alone", "plan_call", "run_compiled", "usable_samples", "verify_kernels"]


Steps = Callable[[], "list[PipelineStep]"]
"""Makes the passes from scheduled fusions to machine code."""


def verify_kernels(
    module: ir.Module,
    target: str,
    given: Sequence[Sample] = (),
    *,
    steps: Steps | None = None,
    source: ir.Module | None = None,
) -> None:
    """Compiles the kernels of a module behind the stage ``sched``, runs them, and compares results.

    Args:
        target: "cpu", "tt-cpu" or "cuda", whose pipeline the module has passed.
        given: inputs to compare on beside random ones.
        steps: makes the passes that make the kernels; by default the target's.
        source: what the module was made of, as in `usable_samples`.

    Raises:
        NumericsError: a result is wrong.
        KilnError: the module cannot be run or compiled.
    """
    with module.context, ir.Location.unknown():
        terms = longest_sum(module)
        # Negative numbers alone show what a maximum starts with, wide ones how functions reduce their argument.
        for sample in usable_samples(module, given, (*KINDS, "negative", "wide"), source):
            exact, declared = evaluate(module, sample, exact=True), evaluate(module, sample)
            found = run_compiled(module, sample, target, steps=steps)
            # Kernels keep more digits between ops than their types say, and approximate functions.
            wrong = compare(exact, declared, found, terms=terms, roundings=False)
            if wrong is not None:
                raise NumericsError(f"the kernels compute other numbers ({sample.kind} inputs): {wrong}")
            if target == "tt-cpu" and _has_specialized(module):
                _verify_shipped(module, sample)


def _has_specialized(module: ir.Module) -> bool:
    from kiln.lowering.ttcpu.ttgir.shipped import is_specialized

    fusions = (op.operation for op in entry_function(module).regions[0].blocks[0].operations)
    return any(name_of(op) == "kiln.fusion" and is_specialized(op) for op in fusions)


def _verify_shipped(module: ir.Module, sample: Sample) -> None:
    """Each kernel checked as it runs, and with it what a GPU would run in place of its Triton IR."""
    try:
        run_compiled(module, sample, "tt-cpu", is_checked=True)
    except CheckError as error:
        raise NumericsError("; ".join(error.differences)) from error


def usable_samples(
    module: ir.Module, given: Sequence[Sample] = (), kinds: Sequence[str] = KINDS, source: ir.Module | None = None
) -> list[Sample]:
    """``given``, and a random sample of each kind, that the module runs on by its meaning.

    source: what the module was made of, which has to run on them as well: ATen's ops look at their indices, of which
    kernels ask as well, and the module in between does not.

    Raises KilnError where there is none: each has an index out of bounds, or sizes that do not fit.
    """
    reason: Exception | None = None
    for drawn in random_samples(signature_of(entry_function(module)), kinds):
        try:
            chosen = [*given, *drawn]
            for sample in chosen:
                if source is not None:
                    evaluate(source, sample)
                evaluate(module, sample)
            return chosen
        except Exception as error:
            reason = error
    raise KilnError(f"there are no inputs that the module runs on: {reason}")


def run_compiled(
    module: ir.Module, sample: Sample, target: str, *, is_checked: bool = False, steps: Steps | None = None
) -> list[torch.Tensor]:
    """Results of the module's kernels on ``sample``. The module stays as it is.

    is_checked: raise CheckError where a kernel computes something else than its IR says. steps: as in `verify_kernels`.
    """
    from kiln.frontend.options import Options
    from kiln.lowering.cpu import isa
    from kiln.lowering.options import KernelsAlone
    from kiln.lowering.target import find_target
    from kiln.passes.pipelines import pipeline
    from kiln.passes.plan_host import compiled_plan

    device = "cuda:0" if target == "cuda" else "cpu"
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(0)) if target == "cuda" else ""
    options = Options.build(None, {"target": target, "cache": False, "check": is_checked})
    work = parse(to_text(module))
    _name_main(entry_function(work))
    with isa.compiling_for(isa.named(options.cpu, options.float_parts)):
        alone = KernelsAlone(check="error" if is_checked else "")
        own = pipeline(find_target(target).on(device, arch), alone, first="emit", last="lower")
        kernels = own if steps is None else steps()
        plan = compiled_plan(work, kernels, device)
        call = plan_call(plan, work, sample, target, is_checked=is_checked)
    return [value.cpu() if isinstance(value, torch.Tensor) else torch.tensor(value) for value in call()]


def plan_call(
    plan: "Plan", module: ir.Module, sample: Sample, target: str, *, is_checked: bool = False
) -> Callable[[], list[Any]]:
    """Loads a plan that was made of a module; calls run it on one copy of ``sample`` and return the results.

    Raises KilnError where the code cannot be loaded.
    """
    from kiln.frontend.options import Options
    from kiln.frontend.runners import make_runner

    options = Options.build(None, {"target": target, "cache": False, "check": is_checked})
    run = make_runner(plan, _constants(module, sample, plan.device), options)
    signature = signature_of(entry_function(module))
    tensors = iter(sample.tensors)
    arguments = [
        sample.symbols[a.symbol] if a.symbol else _copied(next(tensors), plan.device) for a in signature.arguments
    ]
    given = [value for value, name in zip(arguments, _constant_names(module), strict=True) if not name]
    return lambda: run(given)


def _copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy with the same strides, gaps and repeated elements among them, for which kernels are compiled."""
    size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    memory = tensor.as_strided((size if tensor.numel() else 0,), (1,)).clone().to(device)
    return memory.as_strided(tensor.shape, tensor.stride())


def _name_main(function: ir.Operation) -> None:
    function.attributes["sym_name"] = ir.StringAttr.get("main")


def _constant_names(module: ir.Module) -> list[str]:
    """For each argument the name of the constant that it is, or nothing."""
    function = entry_function(module)
    count = len(function.regions[0].blocks[0].arguments)
    if "arg_attrs" not in function.attributes:
        return [""] * count
    entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return [ir.StringAttr(e["kiln.constant"]).value if "kiln.constant" in e else "" for e in entries]


def _constants(module: ir.Module, sample: Sample, device: str) -> dict[str, torch.Tensor]:
    signature = signature_of(entry_function(module))
    names = [n for n, a in zip(_constant_names(module), signature.arguments, strict=True) if not a.symbol]
    return {name: tensor.to(device) for name, tensor in zip(names, sample.tensors, strict=True) if name}


# ---------------------------------------------------------------------------------------------------- one fusion alone


def fusions_alone(module: ir.Module) -> list[tuple[str, str]]:
    """Each fusion of a module that has layouts, as name and text of a module of its own at the stage ``fused``.

    Its operands and results have the strides that they have in the module; layouts and schedules are left to the passes
    that choose them.
    """
    found: list[tuple[str, str]] = []
    with module.context, ir.Location.unknown():
        for op in entry_function(module).regions[0].blocks[0].operations:
            if name_of(op) == "kiln.fusion":
                found.append((ir.StringAttr(op.operation.attributes["name"]).value, _alone(op.operation)))
    return found


_CHOSEN = ("layouts", "schedule", "in_place", "offsets", "unaligned", "writes")
"""What passes behind ``fuse`` say of a fusion."""


def _alone(fusion: ir.Operation) -> str:
    layouts = list(ir.ArrayAttr(fusion.attributes["layouts"])) if "layouts" in fusion.attributes else []
    shapes = list(ir.ArrayAttr(fusion.attributes["shapes"])) if "shapes" in fusion.attributes else []
    tensors = [v for v in fusion.operands if isinstance(v.type, ir.RankedTensorType)]
    symbols = len(fusion.operands) - len(tensors)
    module = ir.Module.create()
    arguments, results = [v.type for v in fusion.operands], [v.type for v in fusion.results]
    entries = [_described(k, layouts, shapes, symbols) for k in range(len(tensors))]
    entries += [ir.DictAttr.get({"kiln.symbol": ir.StringAttr.get(f"s{k}")}) for k in range(symbols)]
    ends = [_described(len(tensors) + k, layouts, [], symbols) for k in range(len(results))]
    with ir.InsertionPoint(module.body):
        function = ir.Operation.create(
            "func.func",
            attributes={
                "sym_name": ir.StringAttr.get("main"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(arguments, results)),
                "arg_attrs": ir.ArrayAttr.get(entries),
                "res_attrs": ir.ArrayAttr.get(ends),
                "kiln.symbols": ir.ArrayAttr.get([ir.StringAttr.get(f"s{k}") for k in range(symbols)]),
            },
            regions=1,
        )
    block = ir.Block.create_at_start(function.regions[0], arguments, [ir.Location.unknown()] * len(arguments))
    with ir.InsertionPoint(block):
        copy = fusion.clone().operation
        for k, argument in enumerate(block.arguments):
            copy.operands[k] = argument
        for key in _CHOSEN:
            if key in copy.attributes:
                del copy.attributes[key]
        ir.Operation.create("func.return", operands=list(copy.results))
    return to_text(module)


def _described(number: int, layouts: list[ir.Attribute], shapes: list[ir.Attribute], symbols: int) -> ir.DictAttr:
    """``kiln.shape`` and ``kiln.strides`` of a fusion's operand or result, by its layout."""
    found: dict[str, ir.Attribute] = {}
    if number < len(shapes) and isinstance(shapes[number], ir.AffineMapAttr):
        shape = ir.AffineMapAttr(shapes[number]).value
        found["kiln.shape"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, list(shape.results)))
    if number < len(layouts) and isinstance(layouts[number], ir.AffineMapAttr):
        strides = _strides(ir.AffineMapAttr(layouts[number]).value)
        if strides is not None:
            found["kiln.strides"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, strides))
    return ir.DictAttr.get(found)


def _strides(layout: ir.AffineMap) -> list[ir.AffineExpr] | None:
    """How far each dim steps in a layout that is linear in its dims; None for any other."""
    if len(layout.results) != 1:
        return None
    zeros = [ir.AffineExpr.get_constant(0)] * layout.n_dims
    start = affine.simplify(affine.substitute(layout.results[0], zeros))
    strides: list[ir.AffineExpr] = []
    for d in range(layout.n_dims):
        point = [ir.AffineExpr.get_constant(int(k == d)) for k in range(layout.n_dims)]
        step = affine.substitute(layout.results[0], point)
        strides.append(affine.simplify(step - start))
    return strides
