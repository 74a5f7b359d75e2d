# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Embedding bags: sums and means of rows of a table."""

from torch_mlir import ir

from kiln.dialects.walk import defining_op

from .context import LoweringContext
from .index import table_rows
from .reductions import mean_of, sum_of
from .registry import lowers
from .sizes import constant_of, dim

#: PyTorch's numbers for ``mode``; 2 is the maximum.
_SUM, _MEAN = 0, 1


def _bag_length(cx: LoweringContext) -> int:
    """The length of each bag, where all have one: two-dimensional indices come with ``arange(0, N, length)``."""
    offsets = defining_op(cx.torch_operand(2))
    if offsets is None or offsets.name != "torch.aten.arange.start_step":
        cx.unsupported("the lengths of the bags are known at run time only")
    start, stop, step = (constant_of(cx.index_of(offsets.operands[k])) for k in range(3))
    count, bags = constant_of(cx.shape(cx.tensor(1))[0]), constant_of(cx.result_shape()[0])
    if start != 0 or step is None or bags is None or count is None or stop != count or count != bags * step:
        cx.unsupported("the bags are not all of one length, or their number is known at run time only")
    return step


@lowers("torch.aten._embedding_bag", "torch.aten._embedding_bag_forward_only")
def lower_embedding_bag(cx: LoweringContext) -> list[ir.Value | None]:
    """``_embedding_bag(weight [V, E], indices [N], offsets [B], ..)``, bags of one length, modes sum and mean.

    The other three results are for the gradient; where something uses them, the op stays ATen's.
    """
    if any(cx.result_used(k) for k in range(1, cx.num_results)):
        cx.unsupported("its results for the gradient are used")
    mode = cx.const_int(4)
    if mode not in (_SUM, _MEAN):
        cx.unsupported("bags of maxima have no rule")
    if not cx.is_none(6):
        cx.unsupported("weights of samples have no rule")
    if cx.const_bool(7, False) or cx.const_int(8, -1) != -1:
        cx.unsupported("a last offset or a padding index has no rule")
    weight, indices, length = cx.tensor(0), cx.tensor(1), _bag_length(cx)
    bags = cx.view(indices, [dim(0) * length + dim(1)], [cx.result_shape()[0], length])
    rows = table_rows(cx, weight, 0, bags, [dim(0), dim(1)], [None, 2], [*cx.shape(bags), cx.shape(weight)[1]])
    result = (sum_of if mode == _SUM else mean_of)(cx, rows, [1], cx.result_dtype())
    return [result, *[None] * (cx.num_results - 1)]
