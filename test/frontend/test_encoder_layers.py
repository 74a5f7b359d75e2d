# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's fast paths of encoder layers and self-attention are taken apart, and give eager's numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import kiln

LENGTH = 10


def padded(batch: int) -> Tensor:
    """True at positions past a row's own length."""
    return torch.arange(LENGTH) >= torch.tensor([LENGTH - i for i in range(batch)])[:, None]


def causal() -> Tensor:
    return torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


MASKS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "none": dict,
    "causal": lambda: {"mask": causal()},
    "padded": lambda: {"src_key_padding_mask": padded(3)},
    "both": lambda: {"mask": causal(), "src_key_padding_mask": padded(3)},
}


def compiled_apart(module: nn.Module, target: str, *inputs: Any, **kwargs: Any) -> Any:
    torch._dynamo.reset()
    with torch.no_grad():
        calls = kiln.explain(module, *inputs, options={"target": target}, **kwargs).aten_calls
        assert not {"aten._transformer_encoder_layer_fwd.default", "aten._native_multi_head_attention.default"} & {
            *calls
        }
        torch._dynamo.reset()
        options: dict[str, Any] = {"target": target, "fallback": False}
        return torch.compile(module, backend="kiln", fullgraph=True, options=options)(*inputs, **kwargs)


def error(result: Tensor, reference: Tensor) -> float:
    return ((result.double() - reference).abs().max() / reference.abs().max()).item()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("target", "norm_first"), [("cpu", False), ("cpu", True), ("tt-cpu", True)])
def test_layers_are_taken_apart(target: str, norm_first: bool, mask: str) -> None:
    activation = "gelu" if norm_first else "relu"
    layer = nn.TransformerEncoderLayer(32, 4, 48, activation=activation, batch_first=True, norm_first=norm_first)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, masks = torch.randn(3, LENGTH, 32), MASKS[mask]()
    result = compiled_apart(module, target, x, **masks)
    with torch.no_grad():
        reference = module.double()(x.double(), **masks)
    assert error(result, reference) < 1e-5


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_self_attention_is_taken_apart(need_weights: bool, average: bool) -> None:
    module = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x = torch.randn(3, LENGTH, 32)
    arguments: dict[str, Any] = {"need_weights": need_weights, "average_attn_weights": average}
    result, weights = compiled_apart(module, "cpu", x, x, x, key_padding_mask=padded(3), **arguments)
    with torch.no_grad():
        x = x.double()
        wanted, wanted_weights = module.double()(x, x, x, key_padding_mask=padded(3), **arguments)
    assert error(result, wanted) < 1e-5
    assert (weights is None) == (wanted_weights is None)
    if weights is not None:
        assert weights.shape == wanted_weights.shape and error(weights, wanted_weights) < 1e-5


def test_rows_without_a_position_are_nan_as_in_eager() -> None:
    module = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x, padding = torch.randn(2, LENGTH, 16), torch.zeros(2, LENGTH, dtype=torch.bool)
    padding[1] = True
    torch._dynamo.reset()
    with torch.no_grad():
        result = torch.compile(module, backend="kiln")(x, src_key_padding_mask=padding)
        assert torch.equal(result.isnan(), module(x, src_key_padding_mask=padding).isnan())
    assert result[1].isnan().all() and not result[0].isnan().any()


def test_halves_are_as_exact_as_eager() -> None:
    module = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True).eval()
    x = torch.randn(4, LENGTH, 64)
    with torch.no_grad():
        reference = module.double()(x.to(torch.bfloat16).double())
        module, x = module.to(torch.bfloat16), x.to(torch.bfloat16)
        torch._dynamo.reset()
        assert error(torch.compile(module, backend="kiln")(x), reference) < 2 * error(module(x), reference)
