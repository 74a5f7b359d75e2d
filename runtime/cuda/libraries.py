# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a plan asks of cuBLASLt and cuDNN: problems with PyTorch's settings as they are now, and asking ahead."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from kiln.runtime.cuda.cublaslt import LibraryError, Matrix, Problem
from kiln.runtime.cuda.cudnn import ConvolutionProblem, Cudnn, cudnn
from kiln.runtime.plan import Convolution, Expr, Launch, Plan, Product

__all__ = ["LibrarySettings", "alignment", "convolution_problem", "prepare_ahead", "product_problem"]

log = logging.getLogger("kiln")

_BASE = 16
"""Bytes of which the start of a buffer is a multiple."""


@dataclass(frozen=True)
class LibrarySettings:
    """tf32, convolution_tf32: whether tensor cores may round f32 operands. wide_sums: element types whose partial sums
    may only be added up in the type of the sums. deterministic: whether convolutions must be.
    """

    tf32: bool = False
    wide_sums: frozenset[str] = frozenset()
    convolution_tf32: bool = False
    deterministic: bool = False

    @classmethod
    def now(cls) -> "LibrarySettings":
        """As PyTorch is set."""
        products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
        wide = {
            "bfloat16": products.allow_bf16_reduced_precision_reduction,
            "float16": products.allow_fp16_reduced_precision_reduction,
        }
        return cls(
            bool(products.allow_tf32),
            frozenset(name for name, is_allowed in wide.items() if not is_allowed),
            bool(convolutions.allow_tf32),
            bool(convolutions.deterministic or torch.are_deterministic_algorithms_enabled()),
        )


def alignment(offset: int) -> int:
    """Bytes of which an address is a multiple, that many past the start of a buffer."""
    return min(_BASE, offset & -offset or _BASE)


def product_problem(
    product: Product, values: Mapping[Expr, int], alignments: Sequence[int], settings: LibrarySettings
) -> Problem:
    """The problem of a product: alignments of lhs, rhs, the bias if there is one, and the result."""
    batch, m, n, k = (values[e] for e in product.sizes)
    lhs, rhs, *bias, result = alignments

    def matrix(strides: Sequence[Expr], multiple: int) -> Matrix:
        steps = [values[e] for e in strides]
        return Matrix(steps[0], steps[1], steps[2], multiple)

    return Problem(
        product.dtype,
        (batch, m, n, k),
        matrix(product.lhs, lhs),
        matrix(product.rhs, rhs),
        matrix(product.result, result),
        bias[0] if bias else 0,
        product.activation,
        settings.tf32,
        product.dtype in settings.wide_sums,
    )


def convolution_problem(
    convolution: Convolution, values: Mapping[Expr, int], alignments: Sequence[int], settings: LibrarySettings
) -> ConvolutionProblem:
    """The problem of a convolution: alignments of image, weight and result.

    Raises LibraryError where image or weight are empty, and the result is not.
    """
    image, weight, result = (
        tuple(values[e] for e in shape) for shape in (convolution.image, convolution.weight, convolution.result)
    )
    if 0 in image or 0 in weight:
        raise LibraryError("cuDNN: a convolution of nothing")
    x, w, y = alignments
    return ConvolutionProblem(
        convolution.dtype,
        image,
        weight,
        result,
        convolution.stride,
        convolution.padding,
        convolution.dilation,
        convolution.channels_last,
        (x, w, y),
        settings.convolution_tf32 and convolution.dtype == "float32",
        settings.deterministic,
    )


def prepare_ahead(plan: Plan, library: Callable[[], Cudnn] = cudnn) -> int:
    """Has cuDNN prepare the plan's convolutions whose sizes are known; how many it did.

    For the time in which kernels compile in other threads. What the library refuses, the executor finds out.
    """
    settings = LibrarySettings.now()
    done = 0
    for step in plan.steps:
        if not isinstance(step, Launch) or step.convolution is None:
            continue
        c = step.convolution
        values: dict[Expr, int] = {e: e for e in (*c.image, *c.weight, *c.result) if isinstance(e, int)}
        starts = [p.bytes for p in step.pointers if isinstance(p.bytes, int)]
        if len(starts) != len(step.pointers) or any(e not in values for e in (*c.image, *c.weight, *c.result)):
            continue
        try:
            found = library()
            made = found.prepare(
                torch.device(plan.device).index or 0,
                convolution_problem(c, values, [alignment(start) for start in starts], settings),
            )
            found.recent.append(made)
            done += 1
        except LibraryError as error:
            log.debug("graph %s: %s", plan.name, error)
            break
    return done
