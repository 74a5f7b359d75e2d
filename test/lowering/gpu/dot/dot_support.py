# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of single products, attentions and convolutions, as functions of tensors: emitted, run on the CPU or compiled for a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import create_context, tt
from kiln.dialects.schedules import Schedule
from kiln.dialects.schedules.gpu import DepthwiseConvSchedule, GemvSchedule, TmaSchedule
from kiln.lowering.gpu.builder import Builder, is_float, kernel
from kiln.lowering.gpu.dot.attention import AttentionProblem, ScoreMask, emit_attention
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_attention
from kiln.lowering.gpu.dot.conv import ConvProblem, emit_conv
from kiln.lowering.gpu.dot.conv_schedule import ConvShape, choose_conv
from kiln.lowering.gpu.dot.gemv import emit_gemv
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.dot.operands import Described, Matrix, dot_offset, split_batch
from kiln.lowering.gpu.dot.schedule import ProductShape, choose_product
from kiln.lowering.gpu.dot.tensor_map import DescribedOperand, DescribedProblem, emit_tensor_map
from kiln.lowering.gpu.dot.tile import DotProblem, emit_tile
from kiln.lowering.ttcpu.run import run_kernel

H200 = machine("sm_90")
NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "i8",
}


@dataclass
class PlainStore:
    """Stores the sums in a row-major tensor."""

    pointer: ir.Value
    strides: Sequence[Any]

    def apply(self, b: Builder, batch: Any, rows: Any, columns: Any, sums: Any) -> None:
        element = tt.pointee(self.pointer.type)
        value = b.cast_float(sums[0], element) if is_float(element) else b.cast_int(sums[0], element)
        offset = b.addi(dot_offset(b, batch, self.strides[:-2]), b.muli(rows.index, self.strides[-2]))
        b.store(b.addptr(self.pointer, b.addi(offset, columns.index)), value, b.andc(rows.mask, columns.mask))


@dataclass
class Emitted:
    """A kernel as a module, its schedule and arguments."""

    module: ir.Module
    schedule: Schedule
    tensors: list[torch.Tensor]
    symbols: list[int]

    def run(self) -> None:
        """All programs, on the CPU."""
        run_kernel(list(self.module.body)[0].operation, self.tensors, self.symbols)


def emit(
    types: Callable[[], list[ir.Type]],
    body: Callable[..., Any],
    programs: int,
    schedule: Schedule,
    tensors: list[torch.Tensor],
    symbols: list[int],
    attributes: dict[str, str] | None = None,
) -> Emitted:
    context = create_context()
    with context, ir.Location.unknown():
        module = ir.Module.create()
        given = {
            "kiln.grid": f"affine_map<()[{', '.join(f's{i}' for i in range(len(symbols)))}] -> ({programs}, 1, 1)>"
        }
        with ir.InsertionPoint(module.body):
            found = types()
            pointers = ["{tt.divisibility = 16 : i32}" if tt.is_ptr(t) else "{}" for t in found]
            parsed = {k: ir.Attribute.parse(v) for k, v in {**given, **(attributes or {})}.items()}
            kernel("kernel", found, body, pointers, parsed)
        assert module.operation.verify()
    return Emitted(module, schedule, tensors, symbols)


def element(dtype: torch.dtype) -> ir.Type:
    return ir.Type.parse(NAMES[dtype])


def sum_type(dtype: torch.dtype) -> str:
    return {"i8": "i32", "bf16": "f32", "f16": "f32"}.get(NAMES[dtype], NAMES[dtype])


def product(
    x: torch.Tensor,
    w: torch.Tensor,
    out: torch.Tensor,
    dynamic: str = "",
    tf32: bool = False,
    schedule: Any = None,
) -> Emitted:
    """out = x @ w for x [*batch, m, k] and w [*batch, k, n] of any strides; `dynamic` names sizes that the kernel gets
    as symbols."""
    (m, k), n, batch = x.shape[-2:], w.shape[-1], x.shape[:-2]
    sizes = {"m": m, "n": n, "k": k}
    known = {c: None if c in dynamic else v for c, v in sizes.items()}
    w = w.expand(*batch, k, n)
    shape = ProductShape(
        batch.numel(), **known, lhs_strides=x.stride()[-2:], rhs_strides=w.stride()[-2:],
        dtype="tf32" if tf32 else NAMES[x.dtype],
    )  # fmt: skip
    s = schedule or choose_product(shape, H200)

    def types() -> list[ir.Type]:
        p = tt.ptr(element(x.dtype))
        return [p, p, tt.ptr(element(out.dtype)), *[ir.IntegerType.get_signless(32)] * len(dynamic)]

    def body(b: Builder, lhs: ir.Value, rhs: ir.Value, result: ir.Value, *symbols: ir.Value) -> None:
        given = {**sizes, **dict(zip(dynamic, symbols, strict=True))}
        problem = DotProblem(
            tuple(batch), given["m"], given["n"], given["k"],
            Matrix(lhs, *x.stride()[-2:]), (Matrix(rhs, *w.stride()[-2:]),), x.stride()[:-2], (w.stride()[:-2],),
            ir.Type.parse(sum_type(x.dtype)), "tf32" if tf32 else "ieee",
        )  # fmt: skip
        emitter = emit_gemv if isinstance(s, GemvSchedule) else emit_tile
        emitter(b, problem, s, b.program_id(0), PlainStore(result, out.stride()))

    tiles = -(-n // s.block_n) * -(-m // getattr(s, "block_m", 1)) * batch.numel()
    if isinstance(s, GemvSchedule):
        tiles = -(-(m if s.transposed else n) // s.block_n) * batch.numel()
    return emit(types, body, tiles, s, [x, w, out], [sizes[c] for c in dynamic])


def described_product(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, schedule: Any = None) -> Emitted:
    """out = x @ w through descriptors, for matrices with a unit stride each."""
    (m, k), n = x.shape, w.shape[1]
    dtype = "tf32" if x.dtype == torch.float32 else NAMES[x.dtype]
    s = schedule or choose_product(ProductShape(1, m, n, k, x.stride(), w.stride(), dtype), H200, descriptors=True)
    assert isinstance(s, TmaSchedule)
    lhs_last, rhs_last = x.stride(1) == 1, w.stride(0) == 1

    def described(rows: int, columns: int) -> ir.Type:
        return tt.tensordesc(ir.RankedTensorType.get([rows, columns], element(x.dtype)))

    def types() -> list[ir.Type]:
        block_m, block_n, block_k = s.block_m, s.block_n, s.block_k
        return [
            described(block_m, block_k) if lhs_last else described(block_k, block_m),
            described(block_n, block_k) if rhs_last else described(block_k, block_n),
            tt.ptr(element(out.dtype)),
        ]

    def body(b: Builder, lhs: ir.Value, rhs: ir.Value, result: ir.Value) -> None:
        operands = [DescribedOperand(Described(*x), last) for *x, last in ((lhs, lhs_last), (rhs, rhs_last))]
        p = DescribedProblem(m, n, k, operands[0], (operands[1],), "tf32")
        emit_tensor_map(b, p, s, b.program_id(0), PlainStore(result, out.stride()))

    def entry(number: int, t: torch.Tensor) -> str:
        rows, columns = (t.shape[0], t.shape[1]) if t.stride(1) == 1 else (t.shape[1], t.shape[0])
        stride = max(t.stride())
        return (
            f"{{arg = {number} : i64, shape = affine_map<() -> ({rows}, {columns})>, "
            f"strides = affine_map<() -> ({stride}, 1)>}}"
        )

    tiles = -(-n // s.block_n) * -(-m // s.block_m)
    programs = min(tiles, s.programs) if s.persistent else tiles
    attributes = {"kiln.descriptors": f"[{entry(0, x)}, {entry(1, w)}]"}
    return emit(types, body, programs, s, [x, w, out], [], attributes)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    scale: float,
    causal: bool = False,
    mask: torch.Tensor | None = None,
    dynamic: str = "",
    schedule: Any = None,
    fill: float | None = None,
) -> Emitted:
    """Attention of [B, H, S, E], [B, G, T, E], [B, G, T, V] (any strides); `dynamic` among "s" and "t"."""
    batch, heads, queries, qk_size = q.shape
    groups, keys, v_size = k.shape[1], k.shape[2], v.shape[3]
    sizes = {"s": queries, "t": keys}
    known = {c: None if c in dynamic else x for c, x in sizes.items()}
    dtype = NAMES[q.dtype]
    s = schedule or choose_attention(
        AttentionShape(batch * heads, known["s"], known["t"], qk_size, v_size, dtype), H200
    )
    if mask is not None:
        mask = mask.expand(batch, heads, queries, keys)
    tensors = [q, k, v, *([] if mask is None else [mask]), out]

    def types() -> list[ir.Type]:
        return [*(tt.ptr(element(t.dtype)) for t in tensors), *[ir.IntegerType.get_signless(32)] * len(dynamic)]

    def body(b: Builder, *arguments: ir.Value) -> None:
        pointers, symbols = arguments[: len(tensors)], arguments[len(tensors) :]
        given = {**sizes, **dict(zip(dynamic, symbols, strict=True))}
        matrices = [Matrix(p, *t.stride()[-2:]) for p, t in zip(pointers, tensors, strict=True)]
        scores = None if mask is None else ScoreMask(matrices[3], mask.stride()[:2], mask.dtype == torch.bool)
        problem = AttentionProblem(
            (batch,), heads, groups, given["s"], given["t"], qk_size, v_size, *matrices[:3],
            q.stride()[:2], k.stride()[:2], v.stride()[:2], scale, causal, scores, fill,
        )  # fmt: skip
        emit_attention(b, problem, s, b.program_id(0), PlainStore(pointers[-1], out.stride()))

    programs = -(-queries // s.block_m) * batch * heads
    return emit(types, body, programs, s, tensors, [sizes[c] for c in dynamic])


@dataclass
class StoreChannels:
    """Stores the sums of a convolution in [N, C, *spatial] of any strides."""

    pointer: ir.Value
    sizes: Sequence[Any]
    strides: Sequence[int]

    def apply(self, b: Builder, batch: Any, rows: Any, columns: Any, sums: Any) -> None:
        image, *position = split_batch(b, rows.index, self.sizes)
        strides = [self.strides[0], *self.strides[2:]]
        offset = b.addi(dot_offset(b, [image, *position], strides), b.muli(columns.index, self.strides[1]))
        value = b.cast_float(sums[0], tt.pointee(self.pointer.type))
        b.store(b.addptr(self.pointer, offset), value, b.andc(rows.mask, columns.mask))


def conv(
    x: torch.Tensor,
    w: torch.Tensor,
    out: torch.Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dynamic: bool = False,
) -> Emitted:
    """out = the convolution of x [N, C, *spatial] and w [O, C / groups, *kernel]; with `dynamic`, the number of images
    and all spatial sizes are symbols."""
    taps = w[0, 0].numel()
    rows = out.shape[0] * out[0, 0].numel()
    shape = ConvShape(None if dynamic else rows, groups, w.shape[1], w.shape[0] // groups, taps, NAMES[x.dtype])
    s = choose_conv(shape, H200)
    spatial = [*x.shape[2:], *out.shape[2:]]
    symbols = [x.shape[0], *spatial] if dynamic else []

    def types() -> list[ir.Type]:
        p = tt.ptr(element(x.dtype))
        return [p, p, p, *[ir.IntegerType.get_signless(32)] * len(symbols)]

    def body(b: Builder, source: ir.Value, weight: ir.Value, result: ir.Value, *given: ir.Value) -> None:
        images, *sizes = given or [x.shape[0], *spatial]
        half = len(sizes) // 2
        p = ConvProblem(
            images, groups, w.shape[1], w.shape[0] // groups, tuple(sizes[:half]), tuple(w.shape[2:]),
            tuple(sizes[half:]), tuple(stride), tuple(padding), tuple(dilation), source, weight,
            x.stride(), w.stride(), ir.Type.parse(sum_type(x.dtype)),
        )  # fmt: skip
        emit_conv(b, p, s, b.program_id(0), StoreChannels(result, [images, *sizes[half:]], out.stride()))

    one = isinstance(s, DepthwiseConvSchedule)
    width, count = (w.shape[0], 1) if one else (w.shape[0] // groups, groups)
    programs = count * -(-rows // s.block_m) * -(-width // s.block_n)
    return emit(types, body, programs, s, [x, w, out], symbols)
