# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products: in as many dimensions as they were written with, and without what is multiplied by zero."""

from torch_mlir import ir

from kiln.passes.torch_to_kiln.registry import op_name
from kiln.passes.torch_to_kiln.torch_values import list_elements

from .expressions import Match, NoMatch
from .rules import Safety, rule
from .values import owner, size_exprs, sizes_of

T = "products"


@rule("bmm", "bmm(x, y)", "matmul(x, y)", Safety.EXACT, "one spelling for products of batches", T)
def bmm(m: Match) -> ir.Value:
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
    product = m.operand(0)
    leading, flat = sizes_of(m.result), sizes_of(product)
    if leading is None or flat is None or len(flat) != 3 or len(leading) <= 3 or leading[-2:] != flat[-2:]:
        raise NoMatch("")
    m.need(sum(1 for _ in product.uses) == 1, "the batched product has another user")
    batched = owner(product)
    sizes = list_elements(m.root.operands[1])
    if batched is None or sizes is None or len(sizes) != len(leading):
        raise NoMatch("")
    operands = [_split(m, operand, [*leading[:-2]], sizes[:-2]) for operand in batched.operands]
    return m.build("matmul", *operands)


def _split(m: Match, operand: ir.Value, leading: list[int | str], sizes: list[ir.Value]) -> ir.Value:
    """The batch of matrices ``operand`` with its leading dimension split into ``leading``, given as ``sizes``."""
    flat = sizes_of(operand)
    view = owner(operand)
    if flat is None or view is None or op_name(view) != "torch.aten.view":
        raise NoMatch("")
    wanted = (*leading, *flat[-2:])
    source: ir.Value = view.operands[0]
    copied = owner(source)
    if copied is not None and op_name(copied) == "torch.aten.clone" and sizes_of(source) == wanted:
        source = copied.operands[0]  # made so that the view exists
    if sizes_of(source) == wanted:
        return source
    matrix = list_elements(view.operands[1])
    if matrix is None or len(matrix) != 3:
        raise NoMatch("")
    outer, inner = size_exprs(m.result), size_exprs(operand)
    if outer is None or inner is None:
        raise NoMatch("")
    exprs = [*outer[0][:-2], *inner[0][-2:]]
    return m.view(view.operands[0], [*sizes, *matrix[1:]], exprs, max(outer[1], inner[1]))


@rule(
    "baddbmm-beta-zero",
    "baddbmm(x, a, b, 0, c)",
    "mul(bmm(a, b), c)",
    Safety.EXACT,
    "beta = 0 leaves x out, NaN and all",
    T,
)
def baddbmm_beta_zero(m: Match) -> ir.Value:
    factor = m.const("c")
    if not isinstance(factor, int | float):
        raise NoMatch("")
    product = m.build("bmm", m["a"], m["b"])
    return product if factor == 1 else m.build("mul.Scalar", product, m["c"])
