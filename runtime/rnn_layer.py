# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""oneDNN's recurrent layer, which PyTorch takes an ``nn.LSTM`` apart into, as a compiled graph has to call it.

``aten::mkldnn_rnn_layer`` returns the workspace that its derivative reads only where a gradient may be asked for, which
it sees by the grad mode: a compiled forward graph runs without. Graphs are traced with a workspace of no elements: it
travels from one graph to the other as a tensor without elements in the workspace's memory. Both ops divide by the
batch's size.
"""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["rnn_layer"]

_LAYER, _BACKWARD = "aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default"
_WORKSPACE = 3
"""Place of the workspace among the layer's results."""


def rnn_layer(op: str, call: Callable[..., Any], last_read: int) -> Callable[..., Any]:
    """`call`, which is the operator `op`, or a function that calls it if it is one of oneDNN's recurrent layers.

    last_read: the last of the results that anything reads.
    """
    if op == _LAYER:
        return _not_empty(_with_workspace(call) if last_read >= _WORKSPACE else call, _layer_of_nothing)
    return _not_empty(_from_workspace(call), _backward_of_nothing) if op == _BACKWARD else call


def _with_workspace(call: Callable[..., Any]) -> Callable[..., Any]:
    def training(*args: Any) -> tuple[torch.Tensor, ...]:
        # Below autograd: the graph's derivative is a graph of its own.
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            *results, workspace = call(*args)
        return *results, workspace[:0]

    return training


def _from_workspace(call: Callable[..., Any]) -> Callable[..., Any]:
    def backward(*args: Any) -> Any:
        *others, workspace = args
        return call(*others, workspace.new_empty(0).set_(workspace.untyped_storage()))

    return backward


def _not_empty(call: Callable[..., Any], nothing: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(x: torch.Tensor, *args: Any) -> Any:
        return call(x, *args) if x.numel() else nothing(x, *args)

    return guarded


def _layer_of_nothing(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    _, _, _, _, hx, cx, _, _, _, hidden_size, *_ = args
    return x.new_zeros(*x.shape[:2], hidden_size), hx.clone(), cx.clone(), x.new_empty(0, dtype=torch.uint8)


def _backward_of_nothing(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    w1, w2, b1, b2, hx, cx, *_ = args
    return tuple(torch.zeros_like(t, dtype=torch.float32) for t in (x, w1, w2, b1, b2, hx, cx))
