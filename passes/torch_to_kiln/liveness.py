# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which torch ops must be converted: those that something needs, and those that do something besides computing."""

from torch_mlir import ir

from .torch_values import ELSEWHERE, op_name

__all__ = ["is_pure", "is_used", "live_ops"]

# Ops that draw from PyTorch's generator: dropping one would shift the numbers that all later ones draw.
_RANDOM = frozenset(
    """
    bernoulli binomial cauchy dropout exponential feature_dropout geometric log_normal multinomial native_dropout
    normal normal_functional poisson rand rand_like randint randint_like randn randn_like random randperm rrelu
    rrelu_with_noise rrelu_with_noise_functional uniform _fused_dropout _sample_dirichlet _standard_gamma alpha_dropout
    """.split()
)


def is_pure(op: ir.Operation) -> bool:
    """Whether an op that nothing uses may be dropped. Ops of custom libraries are taken to have effects."""
    if not op.results:
        return False
    name = op_name(op)
    parts = (f"torch.{name.removeprefix(ELSEWHERE)}" if name.startswith(ELSEWHERE) else name).split(".")
    if op.name == "torch.operator" and (len(parts) < 3 or parts[1] not in ("aten", "prims", "kiln")):
        return False
    if len(parts) < 3:
        return True  # torch.constant.*, torch.derefine
    base = parts[2]
    in_place = base.endswith("_") and not base.endswith("__")
    return base not in _RANDOM and not in_place


def is_used(op: ir.Operation) -> bool:
    """Whether anything reads a result of an op."""
    return any(True for result in op.results for _ in result.uses)


def live_ops(block: ir.Block) -> list[ir.Operation]:
    """The ops of ``block`` to convert, in order: impure ones and all that they and the terminator need."""
    needed: set[ir.Value] = set()
    live: list[ir.Operation] = []
    for op in reversed([op.operation for op in block.operations]):
        if is_pure(op) and not any(result in needed for result in op.results):
            continue
        live.append(op)
        needed.update(op.operands)
    return live[::-1]
