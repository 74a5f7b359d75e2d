# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions of kind "matmul": the bridge from a fusion to `emit_matmul`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules.cpu import (
    GemmSchedule,
    PanelSchedule,
)
from kiln.errors import UnsupportedError
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import (
    Buffers,
    MatmulProblem,
    choose_packed_schedule,
    choose_schedule,
    emit_matmul,
    packed_strides,
    scratch_bytes,
)
from kiln.lowering.cpu.problem import Size
from kiln.lowering.cpu.tile.epilogue import FusedEpilogue
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.host.constants import constant_name
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import offset_of, strides_of

_DTYPES = {"f32": "f32", "f64": "f64", "bf16": "bf16", "f16": "f16", "i8": "i8"}


@dataclass(frozen=True)
class Product:
    """A fusion's kiln.matmul as sizes and strides over its symbols.

    m is the product of the batch sizes and the rows where the batch is no more than that (a shared rhs and a lhs
    that walks through them evenly); `batch` holds what is left.
    """

    op: ir.OpView
    batch: tuple[ir.AffineExpr, ...]
    m: ir.AffineExpr
    n: ir.AffineExpr
    k: ir.AffineExpr
    lhs: int
    rhs: int
    lhs_strides: tuple[ir.AffineExpr, ...]
    rhs_strides: tuple[ir.AffineExpr, ...]

    def problem(self, size: Callable[[ir.AffineExpr], Size]) -> MatmulProblem:
        """The problem, with `size(expr)` turning sizes and strides into ints, Values or None."""
        dtype = str(ir.RankedTensorType(self.op.operands[0].type).element_type)
        if dtype not in _DTYPES:
            raise UnsupportedError("kiln.matmul", str(self.op.location), f"element type {dtype} on the CPU")
        rhs_dtype = str(ir.RankedTensorType(self.op.operands[1].type).element_type)
        return MatmulProblem(
            batch=tuple(size(x) for x in self.batch),
            m=size(self.m),
            n=size(self.n),
            k=size(self.k),
            lhs_strides=tuple(size(x) for x in self.lhs_strides),
            rhs_strides=tuple(size(x) for x in self.rhs_strides),
            dtype=dtype,
            rhs_dtype=rhs_dtype if rhs_dtype != dtype else None,
        )


def find_product(body: FusionBody, layouts: Sequence[ir.AffineMap], merge: bool = True) -> Product:
    """The one kiln.matmul of a fusion and the strides of its operands.

    merge: rows of consecutive batches that follow each other count as rows of one tall product.
    """
    op = next(op for op in body.operations if op.operation.name == "kiln.matmul")
    positions: list[int] = []
    for name, v in zip(("lhs", "rhs"), op.operands, strict=False):
        position = body.argument_position(v)
        if position is None:
            raise UnsupportedError("kiln.matmul", str(op.location), f"{name} is computed inside of the kernel")
        positions.append(position)
    dims = body.dims(op.results[0])
    batch, (m, n) = list(dims[:-2]), dims[-2:]
    lhs = _strides(layouts[positions[0]], _flag(op, "transpose_lhs"), len(batch))
    rhs = _strides(layouts[positions[1]], _flag(op, "transpose_rhs"), len(batch))
    lhs_dims = body.dims(op.operands[0])
    k = lhs_dims[-2] if _flag(op, "transpose_lhs") else lhs_dims[-1]
    zero = ir.AffineConstantExpr.get(0)
    one = ir.AffineConstantExpr.get(1)
    while (
        merge
        and batch
        and (
            # Along a size of 1 nothing moves, and layouts have no stride.
            batch[-1] == one or rhs[len(batch) - 1] == zero and _is_zero(lhs[len(batch) - 1] - lhs[-2] * m)
        )
    ):
        # Rows of consecutive batches follow each other: one tall product.
        position = len(batch) - 1
        m = (m * batch.pop()).maybe_downcast()
        del lhs[position], rhs[position]
    return Product(op, tuple(batch), m, n, k, positions[0], positions[1], tuple(lhs), tuple(rhs))


def _is_zero(expr: ir.AffineExpr) -> bool:
    return affine.simplify(expr, {}) == ir.AffineConstantExpr.get(0)


def _flag(op: ir.OpView, name: str) -> bool:
    value = op.operation.attributes[name]
    return bool(value.value)


def _strides(layout: ir.AffineMap, transposed: bool, batch: int) -> list[ir.AffineExpr]:
    """Strides of [*batch, rows, columns]; of a packed rhs those of its panels (`packed_strides`)."""
    if not affine.is_linear(layout.results[0]):
        return [ir.AffineConstantExpr.get(x) for x in (*[0] * batch, *_panel_strides(layout, transposed))]
    strides = strides_of(layout, batch + 2)
    if transposed:
        strides[-2], strides[-1] = strides[-1], strides[-2]
    return strides


def _panel_strides(layout: ir.AffineMap, transposed: bool) -> tuple[int, int]:
    """The strides along k and n of a rhs in the layout of `packed_rhs_layout`."""

    def at(k: int, n: int) -> int:
        index = [ir.AffineConstantExpr.get(x) for x in ((n, k) if transposed else (k, n))]
        offset = affine.constant_of(affine.simplify(affine.substitute(layout.results[0], index)))
        if offset is None:
            raise UnsupportedError("kiln.matmul", "", f"an operand that is not strided: {layout}")
        return offset

    lanes = at(4, 0) // 4  # pairs or fours of k may be neighbours: then the stride holds between them
    return lanes, at(0, lanes) // lanes


def packed_rhs_layout(product: Product, schedule: PanelSchedule) -> tuple[ir.AffineMap, int]:
    """The layout, and its number of elements, of the rhs in panels of whole registers: [n / lanes][k][lanes],
    or for kernels of groups of k (2 of bf16, 2 or 4 of integers) [n / lanes][k / group][lanes][group].
    """
    k, n = static_size(product.k), static_size(product.n)
    assert k is not None and n is not None, "choose_packed_schedule asks for them"
    dims = [ir.AffineDimExpr.get(i) for i in range(2)]
    at_k, at_n = reversed(dims) if _flag(product.op, "transpose_rhs") else dims
    lanes, rows, group = packed_strides(schedule, k)
    floor, mod = ir.AffineExpr.get_floor_div, ir.AffineExpr.get_mod
    block = floor(at_n, lanes) * (rows // group) + floor(at_k, group)
    address = (block * lanes + mod(at_n, lanes)) * group + mod(at_k, group)
    return ir.AffineMap.get(2, 0, [address]), -(-n // lanes) * rows * lanes


def schedule_product(
    body: FusionBody, product: Product, problem: MatmulProblem, *, blocks: bool = False
) -> GemmSchedule:
    """The schedule of one product: for a packed rhs if that is a constant and pays.

    blocks: it is computed for blocks of rows, whose height is not known, but seldom below a register tile's.
    """
    if is_frozen(body, product):
        packed = choose_packed_schedule(replace(problem, m=256) if blocks else problem, isa.target())
        if packed is not None:
            return packed
    return choose_schedule(problem, isa.target())


def is_frozen(body: FusionBody, product: Product) -> bool:
    """Whether the rhs is a constant matrix (``kiln.constant``) that nothing else in the kernel reads."""
    value = body.fusion.operation.operands[product.rhs]
    type_ = ir.RankedTensorType(value.type)
    argument = product.op.operands[1]
    if type_.element_type != ir.RankedTensorType(product.op.operands[0].type).element_type:
        return False  # i8 that is widened on its way
    if type_.rank != 2 or not type_.has_static_shape or len(list(argument.uses)) != 1:
        return False
    return constant_name(value) is not None


def plan_matmul(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> GemmSchedule:
    """The schedule of a matmul fusion."""
    product = find_product(body, layouts)
    return schedule_product(body, product, product.problem(static_size))


def static_size(expr: ir.AffineExpr) -> int | None:
    """The number that a size is; None for one with symbols."""
    return expr.value if isinstance(expr, ir.AffineConstantExpr) else None


def emit_matmul_fusion(kernel: Kernel, given: GemmSchedule | None) -> None:
    """Write the kernel of a fusion of kind "matmul"."""
    e = kernel.evaluator()
    product = find_product(kernel.body, kernel.layouts)
    schedule = given or plan_matmul(kernel.body, kernel.layouts)
    operands = Buffers(
        kernel.buffers[product.lhs],
        kernel.buffers[product.rhs],
        e.index(offset_of(kernel.layouts[product.lhs])),
        e.index(offset_of(kernel.layouts[product.rhs])),
    )
    problem = product.problem(e.index)
    need = scratch_bytes(product.problem(static_size), schedule)
    epilogue = FusedEpilogue(e, product.op.results[0], product.batch, product.m, product.n)
    context = kernel.context
    emit_matmul(kernel.b, problem, schedule, operands, epilogue, context)
    kernel.scratch.bytes = ir.AffineConstantExpr.get(need)
    total = product.m * product.n * product.k
    for x in product.batch:
        total = total * x
    kernel.work = total
