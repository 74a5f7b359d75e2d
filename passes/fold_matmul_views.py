# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products on the shapes the model has, without the views that ATen needs around them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.passes.compose_views import compose_views
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.passes.views.function_views import FunctionViews, View
    from kiln.passes.views.split import Split

__all__ = ["FoldMatmulViews"]


@register_pass
@dataclass
class FoldMatmulViews(Pass):
    """Fold views into matmuls: leading dims instead of flattened ones, shared operands, transposes as flags.

    The flat dim is split through the elementwise ops after the product too, up to a view that splits it anyway.

    Before::

        func.func @main(%x: tensor<2x16x64xf32>, %w: tensor<8x64xf32>) -> tensor<2x16x8xf32> {
          %0 = "kiln.view"(%x) {map = affine_map<(d0, d1) -> (d0 floordiv 16, d0 mod 16, d1)>,
            shape = affine_map<() -> (32, 64)>} : (tensor<2x16x64xf32>) -> tensor<32x64xf32>
          %1 = "kiln.view"(%w) {map = affine_map<(d0, d1) -> (d1, d0)>, shape = affine_map<() -> (64, 8)>}
            : (tensor<8x64xf32>) -> tensor<64x8xf32>
          %2 = "kiln.matmul"(%0, %1) {transpose_lhs = false, transpose_rhs = false}
            : (tensor<32x64xf32>, tensor<64x8xf32>) -> tensor<32x8xf32>
          %3 = "kiln.view"(%2) {map = affine_map<(d0, d1, d2) -> (d0 * 16 + d1, d2)>,
            shape = affine_map<() -> (2, 16, 8)>} : (tensor<32x8xf32>) -> tensor<2x16x8xf32>
          return %3 : tensor<2x16x8xf32>
        }

    After::

        func.func @main(%arg0: tensor<2x16x64xf32>, %arg1: tensor<8x64xf32>) -> tensor<2x16x8xf32> {
          %0 = "kiln.matmul"(%arg0, %arg1) {transpose_lhs = false, transpose_rhs = true}
              : (tensor<2x16x64xf32>, tensor<8x64xf32>) -> tensor<2x16x8xf32>
          return %0 : tensor<2x16x8xf32>
        }
    """

    name = "fold-matmul-views"

    def run(self, module: ir.Module) -> None:
        """Rewrite every function."""
        for op in module.body.operations:
            if op.operation.name == "func.func" and op.operation.regions[0].blocks:
                self._run_on_function(op.operation)

    def _run_on_function(self, function: ir.Operation) -> None:
        from kiln.passes.views.function_views import FunctionViews

        block = function.regions[0].blocks[0]
        views = FunctionViews(function)
        splits: dict[ir.Value, Split] = {}  # flat value -> how its source is split
        for op in [op.operation for op in block.operations]:
            if op.name == "kiln.matmul":
                self._split_matmul(op, views, splits)
            elif op.name == "linalg.generic":
                self._split_elementwise(op, views, splits)
        compose_views(function)
        views = FunctionViews(function)
        for op in [op.operation for op in block.operations]:
            if op.name == "kiln.matmul":
                self._fold_transposes(op, views)
        compose_views(function)
        self._order_rows(function)
        compose_views(function)
        erase_dead(block)

    # -- leading dims

    def _split_matmul(self, op: ir.Operation, views: "FunctionViews", splits: "dict[ir.Value, Split]") -> None:
        """Give a product the leading dims that its left operand was flattened from."""
        from kiln.dialects import kiln
        from kiln.passes.views.elementwise import expanding_view
        from kiln.passes.views.function_views import is_view
        from kiln.passes.views.split import find_split, split_of_user, split_view

        lhs, rhs = op.operands
        flags = [ir.BoolAttr(op.attributes[key]).value for key in ("transpose_lhs", "transpose_rhs")]
        rank = len(views.sizes(lhs))
        # In a batched product dim 0 is the batch and both operands have it; transposing the left swaps other dims.
        batched = rank == 3 and len(views.sizes(rhs)) == 3
        if not is_view(lhs) or not (batched or (rank == 2 and not flags[0])):
            return
        view = views.read(lhs)
        user = expanding_view(op.results[0])
        if user is None:
            return
        rows = views.sizes(op.results[0])[0]
        candidates = [find_split(views, view), split_of_user(views.read_one(user), rows)]
        for split in [candidate for candidate in candidates if candidate is not None]:
            new_lhs = split_view(view, split)
            new_rhs = split_view(views.read(rhs), split) if batched else None
            if new_lhs is not None and (new_rhs is not None or not batched):
                break
        else:
            self.note(op, "the operands' views keep index arithmetic when split")
            return
        if not may_rewrite(op, "leading dims"):
            return
        result = op.results[0]
        sizes = views.sizes(result)
        element = ir.RankedTensorType(result.type).element_type
        with ir.InsertionPoint(op), op.location:
            left = views.emit(new_lhs)
            right = rhs if new_rhs is None else views.emit(new_rhs)
            type_ = _tensor_type([*split.sizes, *sizes[1:]], element)
            product = kiln.matmul(left, right, type_, *flags)
            self._replace(result, product, split, sizes, views, splits)
        self.count("matched")

    def _replace(
        self,
        old: ir.Value,
        new: ir.Value,
        split: "Split",
        sizes: "tuple[ir.AffineExpr, ...]",
        views: "FunctionViews",
        splits: "dict[ir.Value, Split]",
    ) -> None:
        """Let all uses of ``old`` read ``new`` flattened, and drop the op of ``old``."""
        from kiln.passes.views.split import merged

        flat = views.emit(merged(new, split, sizes))
        splits[flat] = split
        owner = old.owner
        old.replace_all_uses_with(flat)
        views.shapes.forget(old)
        owner.operation.erase()

    def _split_elementwise(self, op: ir.Operation, views: "FunctionViews", splits: "dict[ir.Value, Split]") -> None:
        """Split the flat dim of an elementwise op that reads a product (or the like) that was split."""
        from kiln.dialects import affine, kiln
        from kiln.passes.views.elementwise import (
            expanding_view,
            is_elementwise,
            rebuild_elementwise,
            shifted,
        )
        from kiln.passes.views.function_views import View
        from kiln.passes.views.split import split_view

        if not any(v in splits for v in op.operands) or not is_elementwise(op):
            return
        result = op.results[0]
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
        # What is broadcast along other leading dims has its split dim further behind.
        split = next((splits[v] for v, m in zip(op.operands, maps, strict=True) if v in splits and _leads(m)), None)
        if split is None or expanding_view(result) is None:
            return
        sizes = views.sizes(result)
        new_sizes = (*split.sizes, *sizes[1:])
        loops: list[ir.AffineExpr] = [ir.AffineExpr.get_dim(k) for k in range(len(new_sizes))]
        reads: list[tuple[View, bool]] = []  # what is read, and whether by a map of its own
        for operand, map_ in zip(list(op.operands)[:-1], maps[:-1], strict=True):
            read = views.read(operand)
            flat = View(read.source, tuple(affine.substitute(e, list(map_.results)) for e in read.indices), sizes)
            if not any(0 in affine.dims_in(e) for e in map_.results):  # a bias and the like: only its dims move
                moved = View(operand, tuple(shifted(e, split.count - 1) for e in map_.results), new_sizes)
                reads.append((moved, True))
                continue
            view = split_view(flat, split)
            if view is None:
                self.note(op, "an operand keeps index arithmetic when the flat dim is split")
                return
            whole = zip(view.indices, views.sizes(view.source), strict=True)
            reads.append((view, all(_reads_whole(e, size, new_sizes) for e, size in whole)))
        element = ir.RankedTensorType(result.type).element_type
        if not may_rewrite(op, "elementwise behind a product"):
            return
        with ir.InsertionPoint(op), op.location:
            used: set[int] = set()
            for size in new_sizes:
                used |= affine.symbols_in(size)
            out = kiln.empty(element, list(new_sizes), views.shapes.values(used))
            operands = [view.source if own else views.emit(view) for view, own in reads]
            exprs: list[list[ir.AffineExpr]] = [*(list(view.indices) if own else loops for view, own in reads), loops]
            new = rebuild_elementwise(op, [*operands, out], exprs, len(loops))
            self._replace(result, new, split, sizes, views, splits)

    # -- transposes

    def _fold_transposes(self, op: ir.Operation, views: "FunctionViews") -> None:
        """Read an operand as its memory lies: its last dim first in the source means a transpose flag.

        A right operand that is the same for the whole batch loses its batch dims.
        """
        from kiln.dialects import affine, kiln
        from kiln.passes.views.function_views import divisions

        flags: list[bool] = []
        kinds: list[str] = []
        operands = list(op.operands)
        with ir.InsertionPoint(op), op.location:
            for k, key in enumerate(("transpose_lhs", "transpose_rhs")):
                flag = ir.BoolAttr(op.attributes[key]).value
                view = views.read(operands[k])
                if view.source != operands[k] and len(view.sizes) >= 2 and view.indices:
                    shared = _without_batch(view) if k == 1 else None
                    if shared is not None:
                        view = shared
                        kinds.append("shared")
                    fastest, rank = affine.dims_in(view.indices[-1]), len(view.sizes)
                    if rank - 2 in fastest and rank - 1 not in fastest and divisions(view.indices) == 0:
                        view, flag = _swapped(view), not flag
                        kinds.append("transposes")
                    operands[k] = views.emit(view) if kinds else operands[k]
                flags.append(flag)
            if kinds and not may_rewrite(op, ", ".join(kinds)):
                return
            if kinds:
                new = kiln.matmul(operands[0], operands[1], op.results[0].type, flags[0], flags[1])
                op.results[0].replace_all_uses_with(new)
                views.shapes.forget(op.results[0])
                op.erase()
        for kind in kinds:
            self.count(kind)

    # -- order of rows

    def _order_rows(self, function: ir.Operation) -> None:
        """Let products of reordered rows take the rows as they lie."""
        from kiln.passes.views.function_views import FunctionViews
        from kiln.passes.views.row_order import follow_row_order, row_order

        views = FunctionViews(function)
        ops = [op.operation for op in function.regions[0].blocks[0].operations]
        for op in [op for op in ops if op.name == "kiln.matmul"]:  # a rewrite erases other ops
            order = row_order(op, views)
            if order is not None and may_rewrite(op, "order of rows"):
                self.count("order of rows", follow_row_order(op, order, views))


def _leads(map_: ir.AffineMap) -> bool:
    """Whether the first dim of an operand is the first of the loops."""
    return map_.n_dims > 0 and map_.results[0] == ir.AffineExpr.get_dim(0)


def _reads_whole(index: ir.AffineExpr, size: ir.AffineExpr, loops: "tuple[ir.AffineExpr, ...]") -> bool:
    """Whether an index is a loop that runs over all of a dim of ``size``, as maps of ``linalg.generic`` want it."""
    from kiln.dialects import affine

    index = index.maybe_downcast()
    if isinstance(index, ir.AffineDimExpr):
        return affine.equal(size, loops[index.position])
    return affine.constant_of(index) == 0 and affine.constant_of(size) == 1


def _without_batch(view: "View") -> "View | None":
    """A view of a matrix that was repeated over batch dims as that matrix; None if the batch matters."""
    from kiln.dialects import affine
    from kiln.passes.views.elementwise import shifted
    from kiln.passes.views.function_views import View

    batch = len(view.sizes) - 2
    if not batch or any(d < batch for e in view.indices for d in affine.dims_in(e)):
        return None
    return View(view.source, tuple(shifted(e, -batch) for e in view.indices), view.sizes[batch:])


def _swapped(view: "View") -> "View":
    """The view with its last two dims exchanged."""
    from kiln.dialects import affine
    from kiln.passes.views.function_views import View

    rank = len(view.sizes)
    dims = [ir.AffineExpr.get_dim(k) for k in range(rank)]
    dims[-1], dims[-2] = dims[-2], dims[-1]
    sizes = [*view.sizes[:-2], view.sizes[-1], view.sizes[-2]]
    return View(view.source, tuple(affine.substitute(e, dims) for e in view.indices), tuple(sizes))


def _tensor_type(sizes: "list[ir.AffineExpr]", element: ir.Type) -> ir.RankedTensorType:
    from kiln.dialects import affine

    dynamic = ir.ShapedType.get_dynamic_size()
    constants = [affine.constant_of(size) for size in sizes]
    return ir.RankedTensorType.get([dynamic if c is None else c for c in constants], element)
