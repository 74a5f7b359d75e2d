# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products: in as many dimensions as they were written with, and without what is multiplied by zero."""

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import list_elements, op_name

from .expressions import Match, NoMatch
from .rules import Safety, rule
from .values import size_exprs, sizes_of

T = "products"


@rule("bmm", "bmm(x, y)", "matmul(x, y)", Safety.EXACT, "one spelling for products of batches", T)
def bmm(m: Match) -> ir.Value:
    """`bmm` is `matmul`, for which there are further rules."""
    return m.build("matmul", m["x"], m["y"])


@rule(
    "matmul-of-views",
    "view(matmul(view(x), view(y)))",
    "matmul(x, y)",
    Safety.EXACT,
    "the views merge the leading dimensions before the product, and split them behind it",
    T,
)
def matmul_of_views(m: Match) -> ir.Value:
    """A view of a product of views is a product of tensors of higher rank."""
    product = m.operand(0)
    sizes, flat = sizes_of(m.result), sizes_of(product)
    listed = list_elements(m.root.operands[1])
    if sizes is None or flat is None or listed is None or len(flat) != 3:
        raise NoMatch("")
    kept = _without_units(sizes, flat[-2])
    leading = [sizes[k] for k in kept[:-2]]
    if len(leading) < 2 or tuple(sizes[k] for k in kept[-2:]) != flat[-2:]:
        raise NoMatch("")
    m.need(sum(1 for _ in product.uses) == 1, "the batched product has another user")
    batched, exprs = defining_op(product), size_exprs(m.result)
    if batched is None or exprs is None:
        raise NoMatch("")
    outer = [listed[k] for k in kept[:-2]]
    operands = [_split(m, operand, leading, outer, [exprs[0][k] for k in kept[:-2]]) for operand in batched.operands]
    if len(kept) == len(sizes):
        return m.build("matmul", *operands)
    whole = m.build_shaped("matmul", operands, [exprs[0][k] for k in kept], exprs[1])
    return m.build("view", whole, m.root.operands[1])


def _without_units(sizes: tuple[int | str, ...], rows: int | str) -> list[int]:
    """Positions in ``sizes`` but for the dimensions of size 1 that ``einsum`` puts between rows and columns."""
    kept = list(range(len(sizes)))
    while len(kept) > 3 and rows != 1 and sizes[kept[-2]] == 1:
        del kept[-2]
    return kept


def _split(
    m: Match, operand: ir.Value, leading: list[int | str], sizes: list[ir.Value], outer: list[ir.AffineExpr]
) -> ir.Value:
    """The batch of matrices ``operand`` with its leading dimension split into ``leading``, given as ``sizes``."""
    flat = sizes_of(operand)
    view = defining_op(operand)
    if flat is None or view is None or op_name(view) != "torch.aten.view":
        raise NoMatch("")
    wanted = (*leading, *flat[-2:])
    source: ir.Value = view.operands[0]
    copied = defining_op(source)
    if copied is not None and op_name(copied) == "torch.aten.clone" and sizes_of(source) == wanted:
        source = copied.operands[0]  # made so that the view exists
    if sizes_of(source) == wanted:
        return source
    matrix = list_elements(view.operands[1])
    if matrix is None or len(matrix) != 3:
        raise NoMatch("")
    root, inner = size_exprs(m.result), size_exprs(operand)
    if root is None or inner is None:
        raise NoMatch("")
    return m.view(view.operands[0], [*sizes, *matrix[1:]], [*outer, *inner[0][-2:]], max(root[1], inner[1]))


@rule(
    "baddbmm-beta-zero",
    "baddbmm(x, a, b, 0, c)",
    "mul(bmm(a, b), c)",
    Safety.EXACT,
    "beta = 0 leaves x out, NaN and all",
    T,
)
def baddbmm_beta_zero(m: Match) -> ir.Value:
    """`baddbmm` with `beta=0` is the product alone, times `alpha`."""
    factor = m.const("c")
    if not isinstance(factor, int | float):
        raise NoMatch("")
    product = m.build("bmm", m["a"], m["b"])
    return product if factor == 1 else m.build("mul.Scalar", product, m["c"])
