# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which attention a library does faster on an NVIDIA GPU, and why: rows of `lowering/gpu/choices/attention.toml`."""

from dataclasses import dataclass
from itertools import combinations
from math import prod

from torch_mlir import ir

from kiln.lowering import paths
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_specialized
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, machine
from kiln.lowering.gpu.dot.measured import decide, table
from kiln.lowering.gpu.dot.readers import generic_readers, source
from kiln.lowering.gpu.rules import AttentionRules, rules_for

__all__ = ["AttentionCase", "attention_alone", "attention_reason"]


@dataclass(frozen=True)
class AttentionCase:
    """Attention as choices see it.

    plain: of 16 bits, by batch and head, without a mask, with a result of known sizes. size: elements of a head, 0
    where those of values are others. queries, keys: of one head. known: there is the size of all values. work:
    nanoseconds of the multiply-adds at the peak of the machine's tensor cores. maps: operands may come through tensor
    maps. hopper: `dot/specialized.py` can do it; specialized: and is the faster one of Kiln's kernels.
    """

    plain: bool
    size: int = 0
    queries: int | None = None
    keys: int | None = None
    known: bool = False
    work: float | None = None
    maps: bool = False
    hopper: bool = False
    specialized: bool = False


TABLE = table("attention", AttentionCase)
_LIBRARY = paths.group("cuda cuDNN attention", *TABLE.names("library"))
_OWN = paths.group("cuda no cuDNN attention", *TABLE.names("own"), "a kernel behind it")

_NARROW = (ir.BF16Type, ir.F16Type)
_GRAIN = 8
"""Elements of 16 bits in 16 bytes, which hardware moves at once."""


def attention_reason(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> str | None:
    """Why to call cuDNN for attention at the kiln stage; None to keep the op for a kernel of its own."""
    case = _case(op, tensor_maps, arch)
    row = TABLE.find(case)
    return None if row is None else decide(row, case, _OWN, _LIBRARY)


def _case(op: ir.Operation, tensor_maps: bool, arch: str) -> AttentionCase:
    query, value = (ir.RankedTensorType(op.operands[i].type) for i in (0, 2))
    if len(op.operands) > 3 or query.rank != 4 or not isinstance(query.element_type, _NARROW):
        return AttentionCase(plain=False)
    # cuDNN scales what it has masked: a scale below zero makes -inf of a key that is left out inf, and the result NaN.
    if not ir.RankedTensorType(op.results[0].type).has_static_shape or ir.FloatAttr(op.attributes["scale"]).value <= 0:
        return AttentionCase(plain=False)
    is_causal, is_known = bool(ir.BoolAttr(op.attributes["causal"]).value), value.has_static_shape
    work = 2 * prod(query.shape) * value.shape[-2] // (2 if is_causal else 1) if is_known else None
    shape = _large_heads(op, arch)
    return AttentionCase(
        plain=True,
        size=query.shape[-1] if query.shape[-1] == value.shape[-1] else 0,
        queries=query.shape[-2],
        keys=None if shape is None else shape.keys,
        known=is_known,
        work=None if work is None else machine(arch).peak_time(work),
        maps=tensor_maps,
        hopper=shape is not None,
        specialized=shape is not None and choose_specialized(shape, machine(arch)) is not None,
    )


def attention_alone(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> bool:
    """Whether what is behind an attention of our own is better a kernel behind it: Hopper's kernel, which takes nothing
    behind it, gains more than the pass over its result costs.
    """
    if not tensor_maps or next(generic_readers(op.results[0]), None) is None:
        return False
    shape = _large_heads(op, arch)
    if shape is None or shape.keys is None or choose_specialized(shape, machine(arch)) is None:
        return False
    least = rules_for(AttentionRules).many_keys * (2 if shape.causal else 1)
    is_alone = shape.keys >= (least // 2 if _loads_as_much(op.results[0]) else least)
    if is_alone:
        _OWN("a kernel behind it")
    return is_alone


def _loads_as_much(value: ir.Value) -> bool:
    """Whether what reads a value reads another tensor of its size: an epilogue that attention's programs wait for."""
    size = prod(ir.RankedTensorType(value.type).shape)
    others = [x for reader in generic_readers(value) for x in list(reader.operands)[: -len(reader.results)]]
    return any(
        isinstance(x.type, ir.RankedTensorType)
        and prod(ir.RankedTensorType(x.type).shape) >= size
        and source(x) != value
        for x in others
    )


def _large_heads(op: ir.Operation, arch: str) -> AttentionShape | None:
    """The attention that Hopper's kernel could do: without a mask, of tensors that are no two of its operands."""
    query, key, value = (ir.RankedTensorType(op.operands[i].type) for i in range(3))
    distinct = all(a != b for a, b in combinations(list(op.operands), 2))
    if not (query.has_static_shape and key.has_static_shape and distinct) or query.shape[-1] % _GRAIN:
        return None
    if len(op.operands) > 3 or value.shape[-1] != query.shape[-1] or not isinstance(query.element_type, _NARROW):
        return None
    if not machine(arch).warpgroups or ir.FloatAttr(op.attributes["scale"]).value <= 0:
        return None
    keys, causal, size = key.shape[-2], bool(ir.BoolAttr(op.attributes["causal"]).value), query.shape[-1]
    return AttentionShape(prod(query.shape[:-2]), query.shape[-2], keys, size, size, "bf16", causal=causal)
