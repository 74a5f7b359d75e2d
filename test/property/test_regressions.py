# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs that once failed, as random testing found them (shortened)."""

import pytest
import torch

from benchmarks.fuzz.execute import Setting, run
from benchmarks.fuzz.program import Input, Program

BF16, F32, F64, I64 = torch.bfloat16, torch.float32, torch.float64, torch.int64


def inputs(*shapes: tuple[int, ...], dtype: torch.dtype = F32, layout: str = "plain") -> list[Input]:
    return [Input(shape, dtype, 10 * i, layout) for i, shape in enumerate(shapes)]


STATIC = {
    # The view that a convolution of 16 bits reads is made of a number without dims.
    "variance_of_everything_to_convolution": Program(
        inputs((2, 3, 8, 8), (3, 1, 1, 1), dtype=torch.float16),
        ["torch.var(v0, dim=(0, 1, 2, 3), keepdim=True, correction=0)", "F.conv2d(v2, v1)"],
        [3],
    ),
    # A bf16 scalar that lives across basic blocks: LLVM called a conversion that is in no library.
    "bf16_scalar": Program(inputs((1, 1), (1, 31), dtype=BF16), ["v0 - v1"], [2]),
    "bf16_expanded": Program(inputs((3,), dtype=BF16, layout="expanded"), ["(v0.abs() + 1) ** 0.3"], [1]),
    # The attention kernel sums in f32.
    "attention_float64": Program(
        inputs((2, 3, 4, 8), dtype=F64), ["F.scaled_dot_product_attention(v0, v0, v0, is_causal=True)"], [1]
    ),
    # Constants of f16: the bindings' subscript reads none.
    "constant_float16": Program(
        inputs((4,), dtype=torch.float16), ["torch.zeros_like(v0)", "torch.dot(v1, v1) * 0.5"], [2]
    ),
    # One row that a product's kernel reduces to one number: a result without any dim.
    "row_to_a_number": Program(
        inputs((7,), (33, 7)), ["torch.relu(F.linear(v0, v1) * 0.3)", "torch.dot(v2, v2) * 0.1"], [3]
    ),
    # A value beside a product's result with a dim of size 1 behind the columns.
    "dims_of_size_1_behind_columns": Program(
        inputs((8, 33), (17, 33), (8, 17, 1)),
        ["torch.sigmoid(v2)", "F.linear(v0, v1) + v3.reshape((8, 17))"],
        [3, 4],
    ),
    # A scan reads what its kernel computes through a view: that was left between kernels, or computed twice.
    "scan_of_flipped_padding": Program(
        inputs((5, 7)), ["F.pad(v0 * 2, (-1, 1)) + v0", "v1.flip(1)", "v2.cumsum(1)"], [3]
    ),
    "scan_of_transposed_concatenation": Program(
        inputs((5, 7)), ["torch.cat([v0 * 2, v0.sin()], 1)", "v1.t()", "v2.cumsum(0)"], [3]
    ),
    # A product without columns: tiles of no columns.
    "no_columns": Program(inputs((0, 5)), ["v0 @ v0.mT"], [1]),
    "rows_without_columns": Program(inputs((9, 5), (0, 5)), ["v0 @ v1.mT", "F.linear(v1, v0)"], [2, 3]),
    # Values of one column: what is computed from a result is read at column 0, and the result itself at the lane.
    "attention_of_one_column": Program(
        inputs((1, 1, 5, 1), (1, 1, 3, 1), dtype=BF16),
        ["F.scaled_dot_product_attention(v0, v1, v1)", "v2.transpose(1, 2).flatten(2)", "torch.sqrt(v2.abs() + 1)"],
        [3, 4],
    ),
    # What a call reads is backwards in memory, which PyTorch's tensors cannot be.
    "flipped_operand_of_a_call": Program(
        [*inputs((4,)), Input((33,), I64, 3, high=4), *inputs((33,))],
        ["torch.flip(v0, [0])", "torch.scatter_reduce(v3, 0, v1, v2, 'mean', include_self=False)"],
        [4],
    ),
    # kiln.matmul has no kernel for integers.
    "integer_product": Program(inputs((4, 5), (5, 3), dtype=I64), ["v0 @ v1"], [2]),
}

DYNAMIC = {
    "no_columns": STATIC["no_columns"],
    # Calls without effects may change places: a kernel whose parts one of them is in front of and the other behind.
    "calls_before_and_behind_a_kernel": Program(
        [*inputs((13,), dtype=BF16), Input((13,), I64, 101, high=13), Input((4,), I64, 102, high=13)],
        [
            "torch.cat(torch.split(v0, 6, 0)[::-1], 0)",
            "torch.scatter(v3, 0, v1, 2)",
            "v1.abs()",
            "torch.index_fill(v5, 0, v2, 1).amax()",
            "torch.neg(v0)",
        ],
        [4, 6, 7],
    ),
    # A table that other ops of the same kernel compute for themselves was looked up in what they had computed.
    "iota_gathered_and_computed": Program(
        [
            *inputs((5, 8), dtype=torch.float16),
            Input((3,), I64, 101),
            Input((2, 8), torch.float16, 102),
            Input((2,), torch.float16, 103),
            Input((3,), I64, 104, high=9),
            *inputs((9, 13)),
        ],
        [
            "torch.arange(v0.shape[-1])",
            "torch.index_select(v6, 0, v1)",
            "-v1",
            "F.gelu(v0)",
            "v6.neg_()",
            "v0.narrow(0, 1, 2)",
            "v10 // 3",
            "F.linear(v9, v2, v3) * 0.3",
            "v8 == v7",
            "F.embedding(v4, v5)",
            "F.layer_norm(v13, v13.shape[0:])",
        ],
        [11, 12, 14, 16],
    ),
    # The last element of a line of none is in front of it.
    "flipped_lines_of_none": Program(
        inputs((17, 0), layout="strided"),
        ["v0.contiguous()", "torch.full_like(v1, 2)", "torch.rsqrt(v1.abs() + 0.5)", "torch.flip(v2, [1])"],
        [3, 4],
    ),
    # A weight's sizes are fixed where the size that they say is 13 // 2: canonicalisation put casts between kernels.
    "size_known_to_one_operand": Program(
        inputs((7, 2, 2, 13), (2, 1, 3, 4), (6,)),
        ["F.conv2d(v0, v1, None, groups=2, stride=2, padding=1)", "F.layer_norm(v3, v3.shape[3:], v2, v2)"],
        [4],
    ),
    # (d0 - 3) mod s0: the dividend is negative, and division was unsigned.
    "roll": Program(inputs((17,)), ["torch.roll(v0, 3, 0)"], [1]),
    "roll_read_elsewhere": Program(inputs((3, 8, 8)), ["torch.cumsum(v0, 0)", "torch.roll(v1, 3, 0) + v1"], [2]),
    # The number of elements is arithmetic on two symbols, outside of any kernel.
    "norm_over_everything": Program(inputs((64, 33), dtype=F64), ["F.layer_norm(v0, v0.shape[0:])"], [1]),
    "variance_over_everything": Program(inputs((9, 13)), ["torch.var(v0, dim=[0, 1], correction=1) + v0.mean()"], [1]),
    # Which head a query reads is known at run time only.
    "grouped_heads": Program(
        inputs((2, 4, 5, 8), (2, 2, 5, 8)),
        ["F.scaled_dot_product_attention(v0, v1, v1, scale=0.5, enable_gqa=True)"],
        [2],
    ),
    # A head size known at run time only.
    "attention_head_size": Program(
        inputs((2, 3, 5, 8)), ["F.scaled_dot_product_attention(v0, v0, v0, scale=0.5)"], [1]
    ),
}


TRAINING = {
    # The gradient of diff is a difference of two pads: what is below them may be no reduction of the same kernel, not
    # even with an op between.
    "reduction_behind_an_op_below_a_pad": Program(
        inputs((7, 17, 4)),
        [
            "torch.diff(v0, dim=2)",
            "torch.linalg.vector_norm(v1, dim=[0], keepdim=True)",
            "torch.minimum(v2, v1)",
            "F.avg_pool1d(v3, 2, 1, 0, ceil_mode=True, count_include_pad=False)",
        ],
        [2, 4],
    ),
}


@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize("integer", [I64, torch.uint8])
def test_integer_beside_bf16(integer: torch.dtype, cpu: str) -> None:
    """MLIR folds the two conversions into one, int64 to bf16, for which a CPU without bf16 has no instruction."""
    program = Program([*inputs((5, 7), dtype=BF16), Input((5, 7), integer, 3)], ["(v1 > v0).to(torch.float32)"], [2])
    assert run(program, Setting("one CPU", {"cpu": cpu} if cpu else {}))


@pytest.mark.parametrize("name", STATIC)
def test_static(name: str) -> None:
    assert run(STATIC[name])


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic(name: str) -> None:
    assert run(DYNAMIC[name], Setting("dynamic", dynamic=True))


@pytest.mark.parametrize("name", TRAINING)
def test_training(name: str) -> None:
    assert run(TRAINING[name], Setting("training", training=True))


def test_folded_unsigned_integers() -> None:
    """A literal of the graph has the bits of an unsigned integer, and its dtype."""
    program = Program(
        [*inputs((3, 16)), Input((3, 16), torch.uint8, 13)],
        ["v1 + v1", "v1.repeat_interleave(2, 0)", "v0 + 1"],
        [2, 3, 4],
    )
    assert run(program, Setting("freezing", {"freezing": True}))


def test_group_norm_of_an_expanded_input() -> None:
    """With sizes known at run time it is a call, which wants its operand dense."""
    program = Program([*inputs((64, 2), layout="expanded"), *inputs((2,), (2,))], ["F.group_norm(v0, 2, v1, v2)"], [3])
    assert run(program, Setting("training, dynamic", dynamic=True, training=True))
