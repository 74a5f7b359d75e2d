# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One product by cuBLASLt, with each of the algorithms that it ranks, called as a launch table calls it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kiln.lowering.host.cuda_launcher import cuda_launcher_object
from kiln.lowering.host.library_calls import LIBRARY_KERNEL
from kiln.lowering.tune.operands import is_close
from kiln.runtime.cuda.cublaslt import LibraryError, Matrix, Problem, cublaslt
from kiln.runtime.cuda.executor import CudaExecutor
from kiln.runtime.plan import Buffer, Kernel, Launch, Plan, Pointer, Product

__all__ = ["LibraryCall", "library_calls"]

_MOST = 6
"""Algorithms that are tried: the ranking is good, and each further one takes its share of the time."""


@dataclass(frozen=True)
class LibraryCall:
    """A call of a product: `candidate`, the algorithm's place in the library's ranking; run(tensors) for lhs [m, k],
    rhs, the bias if there is one, and the result [m, n].
    """

    candidate: int
    run: Callable[[Sequence[torch.Tensor]], object]


def library_calls(
    tensors: Sequence[torch.Tensor], sizes: tuple[int, int, int], turned: bool, activation: str, device: str
) -> list[LibraryCall]:
    """The product of row-major matrices with the library's algorithms, the one that it ranks first at the front.

    Args:
        tensors: as for `LibraryCall.run`: what all are tried on; those that compute something else are left out.
        sizes: (m, n, k). turned: whether rhs is [n, k]. activation: as in `runtime.plan.Product`.
    """
    m, n, k = sizes
    lhs, rhs, result = (0, k, 1), (0, 1, k) if turned else (0, n, 1), (0, n, 1)
    name = _dtype_name(tensors[0])
    left, right, out = (Matrix(*strides) for strides in (lhs, rhs, result))
    problem = Problem(name, (1, m, n, k), left, right, out, 16 if len(tensors) > 3 else 0, activation)
    try:
        with torch.cuda.device(torch.device(device)):
            count = cublaslt().candidates(torch.device(device).index or 0, problem, _MOST)
    except LibraryError:
        count = 1  # the call is one of ATen
    found: list[LibraryCall] = []
    expected: torch.Tensor | None = None
    for candidate in range(max(1, count)):
        product = Product(name, (1, m, n, k), lhs, rhs, result, candidate=candidate, activation=activation)
        run = CudaExecutor(_plan(tensors, product, device)).run
        try:
            tensors[-1].zero_()
            run(list(tensors))
        except (LibraryError, RuntimeError):
            if not found:
                raise
            continue
        if expected is None:
            expected = tensors[-1].clone()
        elif not is_close(tensors[-1], expected):
            continue
        found.append(LibraryCall(candidate, run))
    return found


def _dtype_name(tensor: torch.Tensor) -> str:
    """The name of a tensor's dtype, as "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")


def _plan(tensors: Sequence[torch.Tensor], product: Product, device: str) -> Plan:
    name = product.dtype
    counts = [t.numel() for t in tensors]
    buffers = [
        Buffer("input", name, (n,), (1,), n * t.itemsize, index=i, first=0, last=0)
        for i, (n, t) in enumerate(zip(counts, tensors, strict=True))
    ]
    pointers = tuple(Pointer(i) for i in range(len(tensors)))
    return Plan(
        "library",
        len(tensors),
        device,
        buffers=buffers,
        kernels=[Kernel(LIBRARY_KERNEL, "", 0, "library", len(tensors), 0)],
        steps=[Launch(0, pointers, (), name="library", product=product)],
        offsets={},
        launcher=cuda_launcher_object(),
        objects=[b""],
    )
