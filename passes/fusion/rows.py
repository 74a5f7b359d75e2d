# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Row-wise kernels: what follows a matrix product along its rows, and products that are read together.

A product joins the kernel of its readers not only as what comes before their pointwise ops, but also

* before reductions along its rows and what needs their results (a norm or a softmax behind a linear layer);
* beside another product of the same rows and columns (gate and up of a gated unit).

How threads share such a kernel (lowering/cpu/tile/rows.py) depends on where the values are that its loops read.
Rows in blocks, with the values in scratch memory, need each thread to walk the whole rhs for each block of rows, which
the library packs anew each time: where the rhs is larger than a part of the second-level cache, that costs up to 12 %
of the product's time with blocks of 64 rows, and a norm behind it takes 1 to 3 % (the table is in docs/cpu.md). So
blocks of rows are taken where the rhs is small beside the cache; elsewhere the products are shared as they are by
themselves, the threads wait once, and share the loops' rows: what these read lies where their own result will be, or
becomes a result of the kernel, in the memory where it was before.
"""

import math

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.rounding import is_narrow
from kiln.lowering.cpu.tile.phases import Phases, find_hosts, find_phases, row_count
from kiln.lowering.cpu.tile.rows_schedule import split_of
from kiln.lowering.host.kernels import fusion_key
from kiln.lowering.tile.body import FusionBody
from kiln.passes.fusion.graph import FusionGraph
from kiln.passes.fusion.rules import fusion_rules

__all__ = ["keep_shared_rows", "why_not_joined"]


def why_not_joined(
    graph: FusionGraph, op: ir.Operation, named: list[ir.Operation], reduced: frozenset[int] | None, rank: int
) -> str | None:
    """Why `op` cannot be a product of a kernel with the products `named` and reductions over the loops `reduced`.

    rank: how many loops the kernel has. None: it can.
    """
    if op.name != "kiln.matmul" or any(other.name != "kiln.matmul" for other in named):
        return "the consumer is no pointwise kernel"
    if reduced is not None and reduced != {rank - 1}:
        return "the consumer reduces more than the columns"
    dims = graph.dims(op.results[0])
    if any(graph.dims(other.results[0]) != dims for other in named):
        return "another product with other rows is in the kernel"
    return None


def keep_shared_rows(function: ir.OpView, l2_bytes: int) -> list[tuple[ir.Operation, str]]:
    """Stores what the loops behind products read, where threads share these by more than blocks of rows.

    Such a part of a fusion is listed in `waits`. What its loops read becomes a result, unless one of the loops' own
    results can hold it until it is written. Returns each fusion that has loops behind products, with how its
    threads share them and why. l2_bytes: of the cache that blocks of rows share.
    """
    decisions: list[tuple[ir.Operation, str]] = []
    unchanged: dict[str, list[str]] = {}  # kernels that stay as they are, with the reasons: layers repeat
    for op in list(function.regions[0].blocks[0].operations):
        if not isinstance(op, kiln.FusionOp) or ir.StringAttr(op.operation.attributes["kind"]).value != "matmul":
            continue
        key = fusion_key(op.operation)
        if key in unchanged:
            decisions += [(op.operation, f"threads share {reason}") for reason in unchanged[key]]
            continue
        wanted: list[tuple[ir.Value, int]] = []
        waits: list[int] = []
        reasons: list[str] = []
        for part in FusionBody(op).parts():
            number = part.part or 0  # parts come in the order of their first results
            phases = find_phases(part)
            if phases.loops is None:
                continue
            reason = _why_not_blocks(part, phases, l2_bytes)
            if reason is None and split_of(part, phases) == "rows":
                reasons.append("blocks of rows, each with its loops behind it")
                continue
            reasons.append(f"products, then the rows of the loops behind them: {reason or 'stored anyway'}")
            waits.append(number)
            roots, hosts = [part.roots[i] for i in part.mine], find_hosts(part, phases)
            # A value of 16 bits may become f32 (drop-roundings), which no result of 16 bits can hold meanwhile.
            held = [v for v in hosts if not is_narrow(ir.RankedTensorType(v.type).element_type)]
            wanted += [(v, number) for v in phases.behind if v not in roots and v not in held]
        if not waits:
            unchanged[key] = reasons
        else:
            op.operation.attributes["waits"] = ir.DenseI64ArrayAttr.get(waits)
        fusion = _with_results(op.operation, wanted) if wanted else op.operation
        decisions += [(fusion, f"threads share {reason}") for reason in reasons]
    return decisions


def _why_not_blocks(body: FusionBody, phases: Phases, l2_bytes: int) -> str | None:
    """Why threads do not take blocks of rows."""
    assert phases.loops is not None
    product = next(op for op in body.operations if op.operation.name == "kiln.matmul")
    rows = row_count(body, product.results[0])
    for i in phases.loops.mine:
        dims = body.dims(phases.loops.roots[i])
        counts = [math.prod(d, start=ir.AffineConstantExpr.get(1)) for d in (dims[:-1], dims)]
        if not any(affine.equal(count, rows, {}) for count in counts):
            return "a result that is not made row by row"
    total = 0
    for op in body.operations:
        if op.operation.name == "kiln.matmul":
            type_ = ir.RankedTensorType(op.operands[1].type)
            if not type_.has_static_shape or type_.rank != 2:
                return "a rhs of unknown size, or one for each batch"
            total += math.prod(type_.shape) * max(1, type_.element_type.width // 8)
    limit = l2_bytes // fusion_rules().rhs_parts
    return f"a rhs of {total >> 10} KiB would be walked for each block" if total > limit else None


def _with_results(fusion: ir.Operation, values: list[tuple[ir.Value, int]]) -> ir.Operation:
    """The fusion with more results, each of a part; the old one is erased."""
    attributes = {key: fusion.attributes[key] for key in fusion.attributes}
    if "parts" in attributes:
        parts = [*ir.DenseI64ArrayAttr(attributes["parts"]), *(number for _, number in values)]
        attributes["parts"] = ir.DenseI64ArrayAttr.get(parts)
    block = fusion.regions[0].blocks[0]
    last = list(block.operations)[-1].operation
    yielded = [*last.operands, *(v for v, _ in values)]
    with ir.InsertionPoint(fusion), fusion.location:
        new = kiln.FusionOp.create(list(fusion.operands), [v.type for v in yielded], attributes).operation
    with ir.InsertionPoint(last), last.location:
        kiln.yield_(yielded)
    last.erase()
    block.append_to(new.regions[0])
    for old, replacement in zip(fusion.results, new.results, strict=False):
        old.replace_all_uses_with(replacement)
    fusion.erase()
    return new
