# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Running a module of any stage on a sample, in the element types of its IR or in float64.

This is the one place that knows which engine runs Kiln IR: the interpreter on torch tensors.
"""

from collections.abc import Sequence

import torch
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.interpret import evaluate as interpret
from kiln.dialects.memo import type_text
from kiln.errors import InvalidIRError
from kiln.passes.numerics.memory import kernel_of, kernel_signature, run_memory_kernel
from kiln.passes.numerics.sample import Sample
from kiln.passes.numerics.signature import Signature, entry_function, signature_of
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type

__all__ = ["evaluate", "longest_sum", "module_signature"]


def evaluate(module: ir.Module, sample: Sample, *, exact: bool = False) -> list[torch.Tensor]:
    """Results of the module's function on ``sample``, which stays as it is; so does the module.

    Args:
        exact: compute in float64, without the roundings in between.

    Raises:
        UnsupportedError: an op that cannot be run here.
        InvalidIRError: a module without a function, or one that the sample does not fit.
    """
    with module.context, ir.Location.unknown():
        kernel = kernel_of(module)
        if kernel is not None:
            return run_memory_kernel(kernel, sample)  # no other precision than that of its code
        function = entry_function(module)
        signature = signature_of(function)
        arguments = _arguments(signature, sample)
        with torch.no_grad():
            results = interpret(function, arguments, precision="float64" if exact else "declared")
        return [value if isinstance(value, torch.Tensor) else torch.tensor(value) for value in results]


def module_signature(module: ir.Module) -> Signature:
    """What ``evaluate`` takes samples of: the signature of the module's function or kernel.

    Raises InvalidIRError for a module without one, UnsupportedError for a kernel that it does not know how to call.
    """
    kernel = kernel_of(module)
    return signature_of(entry_function(module)) if kernel is None else kernel_signature(kernel)


def longest_sum(module: ir.Module) -> int:
    """An upper bound of the terms that one result of the module's ops adds up: how far sums in another order are apart.

    Dynamic sizes count 64.
    """
    most = 1
    for op in _all_ops(module.operation):
        name = op.name.rpartition(".")[2]
        if _has_no_sums(op) or name.startswith(("view", "pad", "slice", "select", "index", "gather")):
            continue
        sizes = [_elements(v.type) for v in op.operands]
        results = [_elements(v.type) for v in op.results]
        if any(sizes) and any(results):
            most = max(most, max(sizes) // max(results), _contracted(op))
    return most


_NO_SUMS = ("func.", "torch.prim.", "torch.constant.")


def _has_no_sums(op: ir.Operation) -> bool:
    is_structure = isinstance(op.opview, kiln.FusionOp | kiln.YieldOp)
    return op.name.startswith(_NO_SUMS) or is_structure or kiln.opdef(op).role is kiln.Role.MOVEMENT


def _all_ops(op: ir.Operation) -> "list[ir.Operation]":
    from kiln.dialects.walk import ops_inside

    return list(ops_inside(op))


def _contracted(op: ir.Operation) -> int:
    """The terms of a product or convolution: elements of its second operand per column of it."""
    name = op.name.rpartition(".")[2]
    products = ("matmul", "conv", "attention", "mm", "bmm", "addmm", "baddbmm", "convolution", "linear")
    if not name.startswith(products) or len(op.operands) < 2:
        return 1
    shapes = [_shape(v.type) for v in op.operands]
    dims = [n for shape in shapes if shape for n in shape]
    return (
        max(dims, default=1) if not name.startswith("conv") else max((_product(s[1:]) for s in shapes if s), default=1)
    )


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _shape(type_: ir.Type) -> list[int]:
    if isinstance(type_, ir.RankedTensorType):
        return [64 if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank)]
    parsed = parse_tensor_type(type_text(type_))
    return [] if parsed is None else [64 if n is None else n for n in parsed[0]]


def _elements(type_: ir.Type) -> int:
    tensor = isinstance(type_, ir.RankedTensorType) or parse_tensor_type(type_text(type_)) is not None
    return _product(_shape(type_)) if tensor else 0


def _arguments(signature: Signature, sample: Sample) -> list[torch.Tensor | int]:
    tensors = iter(sample.tensors)
    given: list[torch.Tensor | int] = []
    try:
        for argument in signature.arguments:
            given.append(sample.symbols[argument.symbol] if argument.symbol else next(tensors))
    except (StopIteration, KeyError) as error:
        found = f"{len(sample.tensors)} tensors and the sizes {', '.join(sample.symbols) or 'none'}"
        raise InvalidIRError(f"the inputs do not fit the function: there are {found}") from error
    if next(tensors, None) is not None:
        raise InvalidIRError(f"the inputs do not fit the function, which takes {len(signature.tensors)} tensors")
    return given
