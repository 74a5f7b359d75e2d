# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proofs about each kernel of a graph while the graph is compiled: what checked execution adds to a compilation."""

import warnings
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.errors import ProofError, location_text
from kiln.lowering.gpu.validate.validate import SECONDS, validate_kernel

__all__ = ["Proofs"]


@dataclass
class Proofs:
    """Proves what `validate_kernel` does of each kernel that it is shown, and counts.

    policy: "error": a kernel of which a property is refuted raises ProofError; "warn": it warns. seconds: for one
    kernel. kernels: how many were looked at. proved, refuted: properties. unknown: one line for each property that is
    neither, with the kernel's name.
    """

    policy: str = "error"
    seconds: float = SECONDS
    kernels: int = 0
    proved: int = 0
    refuted: int = 0
    unknown: list[str] = field(default_factory=list[str])

    def prove(self, fusion: ir.OpView, function: ir.Operation) -> None:
        """Looks at a fusion's kernel, a `tt.func` as `emit_kernel` gives it. Raises ProofError by the policy."""
        kernel = ir.StringAttr(function.attributes["sym_name"]).value
        self.kernels += 1
        try:
            findings = validate_kernel(function, fusion, self.seconds)
        except Exception as error:  # noqa: BLE001 - a defect of the prover is none of the model
            self.unknown.append(f"@{kernel}: no proof: {type(error).__name__}: {error}")
            return
        for finding in findings:
            if finding.status == "proved":
                self.proved += 1
                continue
            if finding.status == "unknown":
                self.unknown.append(f"@{kernel}: {finding}")
                continue
            self.refuted += 1
            place = location_text(finding.location) or location_text(fusion.operation.location)
            error = ProofError(kernel, str(finding), place)
            if self.policy != "warn":
                raise error
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
