# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions with a product, attention or convolution: their schedules, and the sections of a kernel that compute them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine, kiln, tt
from kiln.dialects.schedules.gpu import (
    AttentionSchedule,
    ConvSchedule,
    DepthwiseConvSchedule,
    FlashSchedule,
    GemmSchedule,
    GemvSchedule,
    Precision,
    SlidingConvSchedule,
    TileSchedule,
    TmaConvSchedule,
    TmaSchedule,
    WarpSpecializedSchedule,
)
from kiln.errors import UnsupportedError
from kiln.lowering.emitters import emits
from kiln.lowering.gpu.builder import Index
from kiln.lowering.gpu.dot.attention import AttentionProblem, ScoreMask, emit_attention
from kiln.lowering.gpu.dot.attention_schedule import choose_attention
from kiln.lowering.gpu.dot.conv import ConvProblem, emit_conv
from kiln.lowering.gpu.dot.conv_product import describable_product, emit_conv_product
from kiln.lowering.gpu.dot.conv_schedule import choose_conv
from kiln.lowering.gpu.dot.described import describe_argument, describe_operands, find_places, product_places
from kiln.lowering.gpu.dot.epilogue import ConvolutionEpilogue, FusedEpilogue
from kiln.lowering.gpu.dot.gemv import emit_gemv
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, machine
from kiln.lowering.gpu.dot.operands import Described, Matrix
from kiln.lowering.gpu.dot.problem import Operand, Product, find_products
from kiln.lowering.gpu.dot.reached import ATTENTION, CONV, PRODUCT, mark_attention, mark_conv, mark_product
from kiln.lowering.gpu.dot.schedule import FLOAT8, ProductShape, choose_product, pow2
from kiln.lowering.gpu.dot.sliding import emit_sliding
from kiln.lowering.gpu.dot.specialized_fusion import emit_specialized_fusion, plan_specialized
from kiln.lowering.gpu.dot.tensor_map import DescribedOperand, DescribedProblem, emit_tensor_map
from kiln.lowering.gpu.dot.tile import DotProblem, emit_tile
from kiln.lowering.gpu.dot.windows import Attention, find_attention, find_conv
from kiln.lowering.gpu.rules import ProductRules, rules_for
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.tile.body import FusionBody

if TYPE_CHECKING:
    from kiln.lowering.gpu.emit import GpuKernel


@dataclass(frozen=True)
class DotOptions:
    """arch: the GPU ("sm_90", "gfx942"). tf32: whether tensor cores may round f32 operands to 10 bits of mantissa, as
    `torch.backends.cuda.matmul.allow_tf32` says. descriptors: whether operands may be loaded through tensor maps, which
    the launcher has to encode. roundings: whether kernels keep eager's roundings to 16 bits between their ops.
    """

    arch: str = DEFAULT_ARCH
    tf32: bool = False
    descriptors: bool = False
    roundings: bool = False


DEFAULTS = DotOptions()


def plan_matmul(body: FusionBody, layouts: Sequence[ir.AffineMap], options: DotOptions = DEFAULTS) -> GemmSchedule:
    """The schedule of a product.

    Parts of one kernel that multiply the same rows are planned as one product with all their columns.
    """
    shape, descriptors = product_shape(body, layouts, options)
    schedule = choose_product(shape, machine(options.arch), descriptors)
    schedule = replace(schedule, precision="tf32" if shape.dtype == "tf32" else _precision(body))
    if not _is_long(body):
        return schedule
    rules = rules_for(ProductRules)
    sums = schedule.block_n * (schedule.block_m if isinstance(schedule, TileSchedule) else 1)
    if schedule.num_warps == 4 and sums >= rules.many_sums:
        schedule = replace(schedule, num_warps=8)
    if isinstance(schedule, TmaSchedule) and schedule.persistent and sums >= 128 * 256:
        schedule = replace(schedule, epilogue_pieces=max(schedule.epilogue_pieces, rules.long_pieces))
    return schedule


def _precision(body: FusionBody) -> Precision:
    """How tensor cores sum; see `Builder.dot`."""
    products = [op.operation for op in body.operations if op.operation.name == "kiln.matmul"]
    return "fast" if all("fast_sums" in op.attributes for op in products) else "ieee"


def _is_long(body: FusionBody) -> bool:
    """Whether what follows a product takes functions, which nothing hides where a program has one tile."""
    generics = [op for op in body.operations if op.operation.name == "linalg.generic"]
    return any(inner.operation.name.startswith("math.") for op in generics for inner in op.regions[0].blocks[0])


def product_shape(body: FusionBody, layouts: Sequence[ir.AffineMap], options: DotOptions) -> tuple[ProductShape, bool]:
    """What the schedule of a fusion's product is chosen by, and whether descriptors can describe its operands."""
    products = find_products(body, layouts)
    product = products[0]
    if product.element in FLOAT8 and not machine(options.arch).float8:
        reason = f"{options.arch} has no tensor cores for {product.element}"
        raise UnsupportedError("kiln.matmul", str(product.op.location), reason)
    tf32 = options.tf32 and product.element == "f32"
    shape = replace(_with_siblings(body, layouts, product.shape(tf32, body.shapes.hint)), products=len(products))
    return shape, options.descriptors and body.part is None and _describable(body, products)


def _with_siblings(body: FusionBody, layouts: Sequence[ir.AffineMap], shape: ProductShape) -> ProductShape:
    if body.part is None or shape.n is None:
        return shape
    total = 0
    for part in FusionBody(body.fusion, outer=body.outer).parts():
        if any(op.operation.name == "kiln.matmul" for op in part.operations):
            other = find_products(part, layouts)[0].shape(shape.dtype == "tf32", part.shapes.hint)
            if (other.batch, other.m, other.k, other.dtype) == (shape.batch, shape.m, shape.k, shape.dtype):
                total += other.n or 0
    return replace(shape, n=max(total, shape.n))


def _describable(body: FusionBody, products: Sequence[Product]) -> bool:
    """Whether nothing else in the fusion reads the operands, and tensor maps describe them."""
    operands = [products[0].lhs, *(x.rhs for x in products)]
    positions = {x.position for x in operands}
    users = [use.owner for i in positions for use in body.tensors[i].uses]
    alone = len(positions) == len(operands) and all(user.operation.name == "kiln.matmul" for user in users)
    return alone and None not in product_places(products)


@emits(kiln.MatmulOp, target="gpu", plan=plan_matmul, schedules=GemmSchedule)
def emit_matmul_fusion(kernel: "GpuKernel", schedule: GemmSchedule | None) -> None:
    """Add the section of a product, or of several products of one lhs whose results meet in the epilogue."""
    body, layouts = kernel.body, kernel.layouts
    products = find_products(body, layouts)
    product = products[0]
    s = schedule or plan_matmul(body, layouts)
    if isinstance(s, TmaSchedule) and not _aligned(body, product.lhs, *(x.rhs for x in products)):
        PRODUCT("unaligned operands")
        s = plan_matmul(body, layouts, DotOptions(tf32=s.precision == "tf32"))
    mark_product(products, s)
    if isinstance(s, GemvSchedule):
        tiles = _count(product.batch) * _ceil(product.m if s.transposed else product.n, s.block_n)
    else:
        tiles = _count(product.batch) * _ceil(product.m, s.block_m) * _ceil(product.n, s.block_n)
    described: tuple[DescribedOperand, tuple[DescribedOperand, ...]] | None = None
    if isinstance(s, TmaSchedule):
        described = describe_operands(kernel, products, s)
        if s.persistent:
            # With fewer tiles than programs, at run time, some programs have none.
            count = affine.constant_of(affine.simplify(tiles))
            tiles = ir.AffineConstantExpr.get(s.programs if count is None else min(count, s.programs))

    def emit(program: Index) -> None:
        e = _evaluator(kernel, body)
        results = [x.op.results[0] for x in products]
        epilogue = FusedEpilogue(e, results, product.batch, product.m, product.n)
        if isinstance(s, TmaSchedule) and described is not None:
            m, n, k = (e.index(x) for x in (product.m, product.n, product.k))
            problem = DescribedProblem(m, n, k, *described, s.precision, _indices(e, product.batch))
            emit_tensor_map(kernel.b, problem, s, program, epilogue)
            return
        problem = _problem(kernel, e, products, s.precision)
        if isinstance(s, GemvSchedule):
            emit_gemv(kernel.b, problem, s, program, epilogue)
        else:
            emit_tile(kernel.b, problem, s, program, epilogue)

    kernel.section(affine.simplify(tiles), emit, s.num_warps, s.num_stages)


def _problem(kernel: "GpuKernel", e: Evaluator, products: Sequence[Product], precision: str) -> DotProblem:
    product = products[0]
    return DotProblem(
        batch=_indices(e, product.batch),
        m=e.index(product.m),
        n=e.index(product.n),
        k=e.index(product.k),
        lhs=_matrix(kernel, e, product.lhs),
        rhs=tuple(_matrix(kernel, e, x.rhs) for x in products),
        lhs_batch=_indices(e, product.lhs.strides[:-2]),
        rhs_batch=tuple(_indices(e, x.rhs.strides[:-2]) for x in products),
        sums=ir.Type.parse(product.sum_element),
        precision=precision,
    )


def plan_attention(
    body: FusionBody, layouts: Sequence[ir.AffineMap], options: DotOptions = DEFAULTS
) -> AttentionSchedule:
    """The schedule of attention."""
    attention = find_attention(body, layouts)
    tf32 = options.tf32 and attention.element == "f32"
    described = options.descriptors and machine(options.arch).tensor_maps and body.part is None
    described = described and _describable_rows(body, attention)
    special = plan_specialized(body, layouts, attention, options.arch) if described else None
    if special is not None:
        return special
    schedule = choose_attention(attention.shape(tf32), machine(options.arch), described)
    return replace(schedule, precision="tf32" if tf32 else "ieee")


def _describable_rows(body: FusionBody, attention: Attention) -> bool:
    """Whether keys and values are what tensor maps describe, and nothing else in the fusion reads them."""
    sizes = (attention.key_sizes, attention.value_sizes)
    positions = [x.position for x in attention.operands]
    return (
        attention.element != "f32"
        and all(positions.count(i) == 1 for i in positions[1:3])
        and all(len(list(body.tensors[i].uses)) == 1 for i in positions[1:3])
        and all(_lie_in_rows(x, n, attention.element) for x, n in zip(attention.operands[1:3], sizes, strict=True))
    )


def _lie_in_rows(operand: Operand, sizes: Sequence[ir.AffineExpr], element: str) -> bool:
    places = find_places(operand, sizes, element)
    return places is not None and not places.turned


def _described_rows(kernel: "GpuKernel", attention: Attention, block: int) -> list[Described]:
    """Keys and values, as descriptors."""
    found: list[Described] = []
    for operand, sizes in zip(attention.operands[1:3], (attention.key_sizes, attention.value_sizes), strict=True):
        places = find_places(operand, sizes, attention.element)
        assert places is not None, "the schedule asks for descriptors of what can be described"
        width = max(16, pow2(affine.constant_of(sizes[-1]) or 0))
        found.append(describe_argument(kernel, attention.op, operand.position, (block, width), places))
    return found


@emits(kiln.AttentionOp, target="gpu", plan=plan_attention, schedules=AttentionSchedule)
def emit_attention_fusion(kernel: "GpuKernel", schedule: AttentionSchedule | None) -> None:
    """Add the section of attention."""
    body, layouts = kernel.body, kernel.layouts
    attention = find_attention(body, layouts)
    s = schedule or plan_attention(body, layouts)
    if isinstance(s, WarpSpecializedSchedule):
        if emit_specialized_fusion(kernel, attention, s):
            ATTENTION("warp_specialized")
            return
        s = plan_attention(body, layouts)
    assert isinstance(s, FlashSchedule), "without descriptors there are no warps with different jobs"
    *heads, queries, _ = attention.query_sizes
    programs = _count(heads) * _ceil(queries, s.block_m)
    described: list[Described] | None = None
    if s.tma and _aligned(body, *attention.operands[1:3]):
        described = _described_rows(kernel, attention, s.block_n)
    elif s.tma:
        ATTENTION("unaligned operands")
    mark_attention(attention, s, described is not None)

    def emit(program: Index) -> None:
        e = _evaluator(kernel, body)
        query, key, value, *mask = attention.operands
        rows = described or [_matrix(kernel, e, x) for x in (key, value)]
        scores = None
        if mask:
            boolean = attention.mask_element == "i1"
            scores = ScoreMask(_matrix(kernel, e, mask[0]), _indices(e, mask[0].strides[:-2]), boolean)
        problem = AttentionProblem(
            batch=_indices(e, heads[:-1]),
            heads=e.index(heads[-1]),
            kv_heads=e.index(attention.key_sizes[-3]),
            queries=e.index(queries),
            keys=e.index(attention.key_sizes[-2]),
            qk_size=attention.qk_size,
            v_size=attention.v_size,
            query=_matrix(kernel, e, query),
            key=rows[0],
            value=rows[1],
            query_strides=_indices(e, query.strides[:-2]),
            key_strides=_indices(e, key.strides[:-2]),
            value_strides=_indices(e, value.strides[:-2]),
            scale=attention.scale,
            causal=attention.causal,
            mask=scores,
            fill=attention.fill,
            precision=s.precision,
        )
        columns = ir.AffineConstantExpr.get(attention.v_size)
        epilogue = FusedEpilogue(e, [attention.op.results[0]], heads, queries, columns)
        emit_attention(kernel.b, problem, s, program, epilogue)

    kernel.section(affine.simplify(programs), emit, s.num_warps, s.num_stages)


def plan_conv(body: FusionBody, layouts: Sequence[ir.AffineMap], options: DotOptions = DEFAULTS) -> ConvSchedule:
    """The schedule of a convolution."""
    conv = find_conv(body, layouts)
    tf32 = options.tf32 and conv.element == "f32"
    through_maps = options.descriptors and describable_product(body, conv)
    schedule = choose_conv(conv.shape(tf32, body.shapes.hint), machine(options.arch), through_maps)
    return replace(schedule, precision="tf32" if tf32 else "ieee")


@emits(kiln.ConvOp, target="gpu", plan=plan_conv, schedules=ConvSchedule)
def emit_conv_fusion(kernel: "GpuKernel", schedule: ConvSchedule | None) -> None:
    """Add the section of a convolution."""
    body, layouts = kernel.body, kernel.layouts
    conv = find_conv(body, layouts)
    s = schedule or plan_conv(body, layouts)
    if isinstance(s, TmaConvSchedule):
        if _aligned(body, conv.x, conv.weight):
            CONV("tma")
            emit_conv_product(kernel, conv, s)
            return
        CONV("unaligned operands")
        s = plan_conv(body, layouts, DotOptions(tf32=s.precision == "tf32"))
    assert not isinstance(s, TmaConvSchedule), "the rule takes tensor maps where it may only"
    mark_conv(conv, s)
    depthwise = isinstance(s, DepthwiseConvSchedule)
    width, groups = (conv.groups * conv.out, 1) if depthwise else (conv.out, conv.groups)
    tile = (s.rows, s.columns) if isinstance(s, SlidingConvSchedule) else (1,) * len(conv.kernel)
    tiles = [_ceil(size, step) for size, step in zip(conv.result_sizes[2:], tile, strict=True)]
    programs = _ceil(_count([conv.result_sizes[0], *tiles]), s.block_m) * (groups * -(-width // s.block_n))

    def emit(program: Index) -> None:
        e = _evaluator(kernel, body)
        x, weight = (_matrix(kernel, e, operand).pointer for operand in (conv.x, conv.weight))
        problem = ConvProblem(
            batch=e.index(conv.result_sizes[0]),
            groups=conv.groups,
            channels=conv.channels,
            out=conv.out,
            size=_indices(e, conv.sizes[2:]),
            kernel=conv.kernel,
            result_size=_indices(e, conv.result_sizes[2:]),
            stride=conv.stride,
            padding=conv.padding,
            dilation=conv.dilation,
            x=x,
            weight=weight,
            x_strides=_indices(e, conv.x.strides),
            weight_strides=_indices(e, conv.weight.strides),
            sums=ir.Type.parse("f64" if conv.element == "f64" else "f32"),
            precision=s.precision,
        )
        epilogue = ConvolutionEpilogue(e, conv.op.results[0])
        if isinstance(s, SlidingConvSchedule):
            emit_sliding(kernel.b, problem, s, program, epilogue)
        else:
            emit_conv(kernel.b, problem, s, program, epilogue)

    kernel.section(affine.simplify(programs), emit, s.num_warps, s.num_stages)


def _aligned(body: FusionBody, *operands: Operand) -> bool:
    """Whether the tensors start at multiples of 16 bytes: `unaligned` of the fusion lists those that may not."""
    attributes = body.fusion.operation.attributes
    unaligned = list(ir.DenseI64ArrayAttr(attributes["unaligned"])) if "unaligned" in attributes else []
    return not any(x.position in unaligned for x in operands)


def _evaluator(kernel: "GpuKernel", body: FusionBody) -> Evaluator:
    return Evaluator(kernel.b, body, kernel.pointers, kernel.layouts, kernel.symbols, kernel.backend)


def _matrix(kernel: "GpuKernel", e: Evaluator, operand: Operand) -> Matrix:
    pointer = kernel.pointers[operand.position]
    assert tt.is_ptr(pointer.type)
    rows, columns = _indices(e, operand.strides[-2:])
    return Matrix(pointer, rows, columns).moved(kernel.b, e.index(operand.offset))


def _indices(e: Evaluator, exprs: Sequence[ir.AffineExpr]) -> tuple[Index, ...]:
    return tuple(e.index(x) for x in exprs)


def _count(sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    total: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for size in sizes:
        total = total * size
    return total


def _ceil(size: ir.AffineExpr, block: int) -> ir.AffineExpr:
    return ir.AffineExpr.get_ceil_div(size, block)
