# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products with the fused pointwise ops behind them: the bridge from a fusion to `emit_matmul`."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.isa import host
from kiln.lowering.cpu.matmul import Buffers, Destination, KernelContext, MatmulProblem
from kiln.lowering.cpu.matmul import choose_schedule, emit_matmul, scratch_bytes
from kiln.lowering.cpu.tile.access import Indices, compose_one
from kiln.lowering.cpu.tile.body import FusionBody
from kiln.lowering.cpu.tile.evaluator import Evaluator, Lane, Scope, linear_offset

_DTYPES = {"f32": "f32", "f64": "f64", "bf16": "bf16", "f16": "f16"}


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

    def problem(self, size) -> MatmulProblem:
        """The problem, with `size(expr)` turning sizes and strides into ints, Values or None."""
        dtype = str(ir.RankedTensorType(self.op.operands[0].type).element_type)
        if dtype not in _DTYPES:
            raise UnsupportedError("kiln.matmul", str(self.op.location), f"element type {dtype} on the CPU")
        return MatmulProblem(
            batch=tuple(size(x) for x in self.batch),
            m=size(self.m),
            n=size(self.n),
            k=size(self.k),
            lhs_strides=tuple(size(x) for x in self.lhs_strides),
            rhs_strides=tuple(size(x) for x in self.rhs_strides),
            dtype=dtype,
        )


def find_product(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> Product:
    """The one kiln.matmul of a fusion and the strides of its operands."""
    op = next(op for op in body.operations if op.operation.name == "kiln.matmul")
    positions = []
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
    while batch and rhs[len(batch) - 1] == zero and _is_zero(lhs[len(batch) - 1] - lhs[-2] * m):
        # Rows of consecutive batches follow each other: one tall product.
        position = len(batch) - 1
        m = m * batch.pop()
        del lhs[position], rhs[position]
    return Product(op, tuple(batch), m, n, k, *positions, tuple(lhs), tuple(rhs))


def _is_zero(expr: ir.AffineExpr) -> bool:
    return affine.simplify(expr, {}) == ir.AffineConstantExpr.get(0)


def _flag(op: ir.OpView, name: str) -> bool:
    value = op.operation.attributes[name]
    return bool(value.value)


def _strides(layout: ir.AffineMap, transposed: bool, batch: int) -> list[ir.AffineExpr]:
    """Strides of [*batch, rows, columns]; batch dims that the operand lacks have stride 0."""
    linear = affine.linear_coefficients(layout.results[0])
    if linear is None:
        raise UnsupportedError("kiln.matmul", "", f"an operand that is not strided: {layout}")
    zero = ir.AffineConstantExpr.get(0)
    strides = [linear[1].get(i, zero) for i in range(layout.n_dims)]
    strides = [zero] * (batch + 2 - len(strides)) + strides
    if transposed:
        strides[-2], strides[-1] = strides[-1], strides[-2]
    return strides


class FusedEpilogue:
    """Evaluates the fusion's roots for one row vector of sums (the `Epilogue` protocol of the matmul leaves)."""

    def __init__(self, e: Evaluator, product: Product):
        self.e, self.product = e, product
        self.batch = [e.loops.new(x) for x in product.batch]
        self.row = e.loops.new(product.m)
        self.column = e.loops.new(product.n)
        self.dims = {d.position for d in (*self.batch, self.row, self.column)}
        self.result = product.op.results[0]
        self.position = linear_offset([*self.batch, self.row], [*product.batch, product.m])
        self.indices = self.at(self.result)

    def at(self, value: ir.Value) -> Indices:
        """The index of `value`, which has the product's elements in their order, for the current row and column."""
        rest = self.position
        index: list[ir.AffineExpr] = []
        sizes = self.e.body.dims(value)[:-1]
        for size in reversed(sizes[1:]):
            index.insert(0, ir.AffineExpr.get_mod(rest, size))
            rest = ir.AffineExpr.get_floor_div(rest, size)
        if sizes:
            index.insert(0, rest)
        return (*(self.e.loops.simplify(x) for x in index), self.column)

    def begin_tile(self, b: Builder, batch: Sequence[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        """Nothing is shared between rows beyond what LLVM hoists by itself."""

    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        """Store every root for columns [column, column + width) of a row."""
        e = self.e
        saved = e.scopes
        e.scopes = [Scope(set(self.dims), b.entry.owner.operation)]
        e.values.update({d.position: v for d, v in zip((*self.batch, self.row), index, strict=True)})
        e.values[self.column.position] = column
        element = ir.RankedTensorType(self.result.type).element_type
        e.bound = {(self.result, self.indices): b.cast_float(acc, element)}
        with e.lanes(Lane(self.column.position, width, mask, aligned=False)):
            for i, root in enumerate(e.body.roots):
                index = self.at(root)
                e.store(len(e.body.tensors) + i, index, e.eval(root, index))
        e.scopes = saved

    def destination(self, b: Builder, batch: Sequence[Index]) -> Destination | None:
        """A result with unit column stride that can hold the sums until `apply` overwrites them."""
        e = self.e
        element = ir.RankedTensorType(self.result.type).element_type
        if not isinstance(element, (ir.F32Type, ir.F64Type)):
            return None
        one = ir.AffineConstantExpr.get(1)
        for i, root in enumerate(e.body.roots):
            if ir.RankedTensorType(root.type).element_type != element:
                continue
            offset = compose_one(e.layouts[len(e.body.tensors) + i], self.at(root), e.loops)
            linear = affine.linear_coefficients(offset)
            if linear is None or linear[1].get(self.column.position) != one:
                continue
            coefficients = linear[1]
            saved, e.scopes = e.scopes, [Scope(set(self.dims), b.entry.owner.operation)]
            start = e.index(linear[0])
            for d, value in zip(self.batch, batch, strict=True):
                stride = coefficients.get(d.position)
                if stride is not None:
                    start = b.addi(start, b.muli(value, e.index(stride)))
            row = e.index(coefficients.get(self.row.position, ir.AffineConstantExpr.get(0)))
            e.scopes = saved
            return Destination(e.buffers[len(e.body.tensors) + i], start, row)
        return None

    @property
    def is_plain_store(self) -> bool:
        """Whether the product itself is the only root."""
        return list(self.e.body.roots) == [self.result]


def plan_matmul(body: FusionBody, layouts: Sequence[ir.AffineMap]) -> dict:
    """The schedule of a matmul fusion: a dictionary of ints, bools, strings and such dictionaries."""
    return choose_schedule(find_product(body, layouts).problem(_static), host())


def _static(expr: ir.AffineExpr) -> int | None:
    return expr.value if isinstance(expr, ir.AffineConstantExpr) else None


def emit_matmul_fusion(kernel) -> None:
    """Write the kernel of a fusion of kind "matmul"."""
    e = kernel.evaluator()
    product = find_product(kernel.body, kernel.layouts)
    schedule = kernel.schedule or plan_matmul(kernel.body, kernel.layouts)
    operands = Buffers(
        kernel.buffers[product.lhs],
        kernel.buffers[product.rhs],
        e.index(_offset(kernel.layouts[product.lhs])),
        e.index(_offset(kernel.layouts[product.rhs])),
    )
    problem = product.problem(e.index)
    need = scratch_bytes(product.problem(_static), schedule)
    emit_matmul(kernel.b, problem, schedule, operands, FusedEpilogue(e, product), KernelContext(kernel.tid, kernel.nt, kernel.scratch.memory))
    kernel.scratch.bytes = ir.AffineConstantExpr.get(need)
    total = product.m * product.n * product.k
    for x in product.batch:
        total = total * x
    kernel.work = total


def _offset(layout: ir.AffineMap) -> ir.AffineExpr:
    linear = affine.linear_coefficients(layout.results[0])
    assert linear is not None, "strides were taken from it"
    return linear[0]
