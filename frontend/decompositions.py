# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which ATen ops AOTAutograd takes apart before Kiln sees the graph.

Everything a fuser wants whole stays whole: normalisations, softmax, attention, activations, matmuls, convolutions,
embedding. What is taken apart are compounds that have no kernel of their own worth keeping: losses, most backward
formulas, window and grid makers. Random ops are never taken apart, so that a seed gives eager's numbers.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import _decomp

from kiln.frontend.average_gradients import average_decompositions
from kiln.frontend.encoder_layers import encoder_decompositions
from kiln.frontend.foreach import foreach_decompositions
from kiln.frontend.formulas import corrections
from kiln.frontend.grid_sampling import sampling_decompositions
from kiln.frontend.losses import loss_decompositions
from kiln.frontend.padding_gradients import padding_decompositions

__all__ = ["decomposition_table"]

aten = torch.ops.aten

#: Losses: a few pointwise ops and a reduction.
_LOSSES = (
    aten.binary_cross_entropy,
    aten.binary_cross_entropy_with_logits,
    aten.huber_loss,
    aten.l1_loss,
    aten.mse_loss,
    aten.smooth_l1_loss,
    aten.soft_margin_loss,
)

#: Gradients whose formula is pointwise ops and reductions.
_BACKWARD = (
    aten.binary_cross_entropy_backward,
    aten.diagonal_backward,
    aten.elu_backward,
    aten._fused_rms_norm_backward,
    aten.gelu_backward,
    aten.glu_backward,
    aten.hardsigmoid_backward,
    aten.hardswish_backward,
    aten.hardtanh_backward,
    aten.huber_loss_backward,
    aten.leaky_relu_backward,
    aten.log_sigmoid_backward,
    aten._log_softmax_backward_data,
    aten.logit_backward,
    aten.mish_backward,
    aten.mse_loss_backward,
    aten.native_batch_norm_backward,
    aten.native_dropout_backward,
    aten.native_group_norm_backward,
    aten.native_layer_norm_backward,
    aten._prelu_kernel_backward,
    aten.sigmoid_backward,
    aten.silu_backward,
    aten.slice_backward,
    aten.select_backward,
    aten.smooth_l1_loss_backward,
    aten.soft_margin_loss_backward,
    aten._softmax_backward_data,
    aten.softplus_backward,
    aten.tanh_backward,
    aten.threshold_backward,
)

#: Norms by the statistics of their own input (training; instance norms), which are reductions and pointwise ops.
_STATISTICS = (
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
)

#: Compounds of pointwise, view and reduction ops.
_COMPOUNDS = (
    aten.addr,
    aten.affine_grid_generator,
    aten.aminmax,
    aten.count_nonzero,
    aten.deg2rad,
    aten._euclidean_dist,
    aten.expand_as,
    aten.fill,
    aten.floor_divide,
    aten.frac,
    aten.glu,
    aten.isneginf,
    aten.isposinf,
    aten.logaddexp,
    aten.logaddexp2,
    aten.logit,
    aten.narrow,
    aten.rad2deg,
    aten.sinc,
    aten.special_entr,
    aten.special_xlog1py,
    aten.trace,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes,
    aten._unsafe_view,
    aten.xlogy,
    aten.zero,
)


@cache
def decomposition_table() -> dict[Any, Callable[..., Any]]:
    """Op overload -> decomposition: PyTorch's own for the ops listed in this file, and corrections of PyTorch's."""
    listed = cast(Any, _decomp).get_decompositions([*_LOSSES, *_BACKWARD, *_STATISTICS, *_COMPOUNDS])
    return {
        **listed,
        **foreach_decompositions(),
        **loss_decompositions(),
        **encoder_decompositions(),
        **average_decompositions(),
        **padding_decompositions(),
        **sampling_decompositions(),
        **corrections(),
    }
