# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a job gave, as one line of JSON."""

from typing import Any

__all__ = ["STATUSES", "Row"]

STATUSES = {
    "right": "as exact as eager, at every call",
    "wrong": "an error above the limit, NaN, other results from call to call, or an input that was written to",
    "failed": "the compiled model raises, eager does not",
    "crashed": "the process ended, or CUDA reported an error that ends it",
    "hung": "no result within the time limit",
    "not run": "the model cannot be made here, or eager fails",
}


Row = dict[str, Any]
"""`job`, `entry`, `family`, `kind`, `dtype`, `batch`; `status` and, unless right, `reason`; `seconds`.

`where`, `error`, `eager_error`, `share` are those of the tensor nearest to its limit (`judge.Finding`), `reference`
what the error is against; `perturbed`: what perturbed parameters do counted as well. `repeats`: two calls gave the
same bits; `difference`: how far they were apart. `graphs`, `kernels`; `fallbacks`: reasons of graphs that ran with
ATen as a whole; `aten`: calls by op; `breaks`: Dynamo's graph breaks; `recompiles`: graphs compiled behind the
first call. `times`: seconds of its parts, and of the processor.
"""
