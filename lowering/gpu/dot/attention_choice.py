# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which attention a library does faster on an NVIDIA GPU, and why.

Measured on an H200 (docs/gpu.md).
"""

from itertools import combinations
from math import prod

from torch_mlir import ir

from kiln.lowering import paths
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_specialized
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, machine
from kiln.lowering.gpu.dot.readers import generic_readers, source

__all__ = ["attention_alone", "attention_reason"]

_LIBRARY = paths.group("cuda cuDNN attention", "large heads")
_OWN = paths.group("cuda no cuDNN attention", "small attention", "attention through tensor maps", "a kernel behind it")

_NARROW = (ir.BF16Type, ir.F16Type)
_GRAIN = 8
"""Elements of 16 bits in 16 bytes, which hardware moves at once."""
_SMALL_ATTENTION = 1 << 33
"""Floating-point operations that take an H200 some 15 us, as long as a call through ATen takes the CPU."""
_FEW_KEYS = 2048
"""Up to which programs of 64 queries with heads of 128, a multiprocessor for each, are 1.2 to 1.6 times as fast as
cuDNN."""
_MANY_KEYS = 1024
"""From which on, without a causal mask, a quarter of the attention's time is more than a pass over its result."""


def attention_reason(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> str | None:
    """Plain 16-bit attention with heads of 64 to 128 elements. With 128 elements Hopper's kernel of warps with
    different jobs is 0.98 to 1.23 of cuDNN's, with 72 to 120 it is 1.00 to 1.28; the one for all GPUs 0.78, causal 0.83
    (0.75 to 0.89), and with few tokens 1.2 to 1.6.
    With 64 and keys and values through `tensor_maps` it is 0.99 to 1.05 of it, with few tokens twice as fast (0.74 to
    1.1 through pointers). Masks and f32 are ours, and heads of 64 elements with little work: 0.86 of cuDNN is less time
    than the call takes.
    """
    query, value = (ir.RankedTensorType(op.operands[i].type) for i in (0, 2))
    if len(op.operands) > 3 or query.rank != 4 or not isinstance(query.element_type, _NARROW):
        return None
    if not ir.RankedTensorType(op.results[0].type).has_static_shape:
        return None
    rows, size = query.shape[-2:]
    is_causal = bool(ir.BoolAttr(op.attributes["causal"]).value)
    work = 4 * prod(query.shape) * value.shape[-2] // (2 if is_causal else 1)
    if size == value.shape[-1] == 64 and value.has_static_shape and work <= machine(arch).scaled(_SMALL_ATTENTION):
        return _OWN("small attention")
    if not 64 <= size <= 128 or size != value.shape[-1] or rows < (1024 if size == 64 else 128):
        return None
    if tensor_maps and (size == 64 or _is_own(op, arch)):
        return _OWN("attention through tensor maps")
    return _LIBRARY("large heads", f"cuDNN: attention with heads of {size} elements is faster there")


def attention_alone(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> bool:
    """Whether what is behind an attention of our own is better a kernel behind it: Hopper's kernel, which takes nothing
    behind it, gains more than the pass over its result costs (4 x 16 heads of 128, 2048 tokens: the kernel for all GPUs
    with one pointwise op 306 us, cuDNN's with a kernel behind it 251)."""
    if not tensor_maps or next(generic_readers(op.results[0]), None) is None:
        return False
    shape = _large_heads(op, arch)
    if shape is None or shape.keys is None or choose_specialized(shape, machine(arch), arch) is None:
        return False
    least = _MANY_KEYS * (2 if shape.causal else 1)
    is_alone = shape.keys >= (least // 2 if _loads_as_much(op.results[0]) else least)
    if is_alone:
        _OWN("a kernel behind it")
    return is_alone


def _loads_as_much(value: ir.Value) -> bool:
    """Whether what reads a value reads another tensor of its size: an epilogue that keeps attention's programs waiting
    (8 x 16 heads of 128, 512 tokens, divided by a function of a tensor: 54.8 us in one kernel, 49.7 in two; causal,
    1024: 117.8, 110.7; without a tensor 48.2, 47.5 and 99.1, 103.5)."""
    size = prod(ir.RankedTensorType(value.type).shape)
    others = [x for reader in generic_readers(value) for x in list(reader.operands)[: -len(reader.results)]]
    return any(
        isinstance(x.type, ir.RankedTensorType)
        and prod(ir.RankedTensorType(x.type).shape) >= size
        and source(x) != value
        for x in others
    )


def _is_own(op: ir.Operation, arch: str) -> bool:
    """Whether Hopper's kernel, or one for few tokens or what follows, does this attention with heads of more than 64
    elements."""
    shape = _large_heads(op, arch)
    if shape is None or shape.keys is None:
        return False
    return choose_specialized(shape, machine(arch), arch) is not None or 0 < shape.keys <= _FEW_KEYS


def _large_heads(op: ir.Operation, arch: str) -> AttentionShape | None:
    """The attention that Hopper's kernel could do: without a mask, of tensors that are no two of its operands."""
    query, key, value = (ir.RankedTensorType(op.operands[i].type) for i in range(3))
    distinct = all(a != b for a, b in combinations(list(op.operands), 2))
    if not (query.has_static_shape and key.has_static_shape and distinct) or query.shape[-1] % _GRAIN:
        return None
    if len(op.operands) > 3 or value.shape[-1] != query.shape[-1] or not isinstance(query.element_type, _NARROW):
        return None
    if not arch.startswith("sm_90") or ir.FloatAttr(op.attributes["scale"]).value <= 0:
        return None
    keys, causal, size = key.shape[-2], bool(ir.BoolAttr(op.attributes["causal"]).value), query.shape[-1]
    return AttentionShape(prod(query.shape[:-2]), query.shape[-2], keys, size, size, "bf16", causal=causal)
