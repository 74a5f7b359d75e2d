# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Norms whose result is computed again for the gradient."""

from collections.abc import Callable
from math import prod

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

import kiln
from kiln.frontend import aot
from kiln.frontend.recomputed import round_recomputed

Function = Callable[..., torch.Tensor]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The elements of each of what backward graphs get from their forward graphs, without the caller's tensors."""
    found: list[int] = []

    def keep(forward: GraphModule, backward: GraphModule) -> None:
        given = {memory(node) for node in forward.graph.find_nodes(op="placeholder")}
        arguments: list[Node] = backward.graph.find_nodes(op="placeholder")
        kept = [n for n in arguments if memory(n) not in given and not n.name.startswith("tangents")]
        tensors = [n.meta["val"] for n in kept if isinstance(n.meta["val"], torch.Tensor)]
        found.extend(prod(n if isinstance(n, int) else n.node.hint for n in t.shape) for t in tensors)
        round_recomputed(forward, backward)

    monkeypatch.setattr(aot, "round_recomputed", keep)
    return found


def memory(node: Node) -> object:
    value = node.meta["val"]
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def gradients(run: Function, inputs: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
    y = run(*leaves)
    found = torch.autograd.grad(y, leaves, torch.linspace(1, -1, y.numel(), dtype=dtype).view(y.shape))
    return [y.detach().double(), *(g.double() for g in found)]


def check(function: Function, inputs: list[torch.Tensor], target: str, dtype: torch.dtype, dynamic: bool) -> None:
    torch._dynamo.reset()
    run = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    inputs[0] = inputs[0].to(dtype)  # a tensor of its own: whether its size is dynamic is noted in it
    if dynamic:
        torch._dynamo.mark_dynamic(inputs[0], 0)
    exact = gradients(function, [x.to(dtype) for x in inputs], torch.float64)
    share = 1e-5 if dtype == torch.float32 else 0.02
    for ours, wanted in zip(gradients(run, inputs, dtype), exact, strict=True):
        assert (ours - wanted).abs().max() <= share * wanted.abs().max()


def image_block(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    y = F.conv2d(x, w, padding=1)
    return F.conv2d(F.silu(F.group_norm(y, 4, scale, shift)), w, padding=1)


def modulated(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return (F.layer_norm(y, y.shape[-1:]) * (1 + scale) + shift) @ w


def loss_of_norm(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(F.layer_norm(x @ w, w.shape[-1:], scale, shift).float(), x.float(), reduction="none")


IMAGES = [torch.Size(s) for s in ((2, 8, 6, 6), (8, 8, 3, 3), (8,), (8,))]
ROWS = [torch.Size(s) for s in ((2, 9, 16), (16, 16), (16,), (16,))]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize(
    ("function", "shapes", "kept"), [(image_block, IMAGES, 2), (modulated, ROWS, 2), (loss_of_norm, ROWS, 1)]
)
def test_results_are_computed_again(
    saved: list[int],
    function: Function,
    shapes: list[torch.Size],
    kept: int,
    target: str,
    dtype: torch.dtype,
    dynamic: bool,
) -> None:
    """Kept are the norm's input and the second product's operand, and not the norm's result."""
    torch.manual_seed(0)
    inputs = [torch.randn(s).to(dtype) / (1 if i == 0 else s[-1] ** 0.5) for i, s in enumerate(shapes)]
    check(function, inputs, target, dtype, dynamic)
    assert saved.count(shapes[0].numel()) == kept


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_group_norms_of_images_in_either_order(memory_format: torch.memory_format) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(s) for s in IMAGES]
    inputs[0] = inputs[0].contiguous(memory_format=memory_format)
    check(lambda x, w, a, b: F.silu(F.group_norm(x, 2, a, b)) * w[0].sum(), inputs, "cpu", torch.float32, False)


def test_results_that_products_need_are_kept(saved: list[int]) -> None:
    """The norm stays one op: its result is kept for the gradient of the weight."""
    torch.manual_seed(0)
    inputs = [torch.randn(s) for s in ROWS]

    def function(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(x @ w, w.shape[-1:], a, b)
        return torch.tanh(y) + y @ w

    check(function, inputs, "cpu", torch.float32, False)
    assert saved.count(ROWS[0].numel()) == 2


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_gradients_of_parameters_over_a_batch_of_any_size(target: str) -> None:
    """Sums over a dynamic batch and a known length, which are split along the length."""
    torch.manual_seed(0)

    def function(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (32,), scale, shift)

    torch._dynamo.reset()
    run = torch.compile(function, backend=kiln.backend, options={"fallback": False, "target": target})
    for batch in (3, 5):
        inputs = [torch.randn(batch, 1024, 32), torch.randn(32), torch.randn(32)]
        torch._dynamo.mark_dynamic(inputs[0], 0)
        for ours, wanted in zip(
            gradients(run, inputs, torch.float32), gradients(function, inputs, torch.float64), strict=True
        ):
            # Of thousands of numbers up to 1 that cancel.
            assert (ours - wanted).abs().max() <= 1e-3 * wanted.abs().max()


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("has_weight", [True, False])
def test_gradients_of_rms_norms_as_gpus_trace_them(target: str, has_weight: bool) -> None:
    """PyTorch has a kernel of this op for GPUs alone: the reference is the gradient of the norm written out."""
    torch.manual_seed(0)
    x, gradient, weight = torch.randn(6, 5, 40), torch.randn(6, 5, 40), torch.randn(40)
    root = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)

    def function(
        gradient: torch.Tensor, x: torch.Tensor, root: torch.Tensor, weight: torch.Tensor
    ) -> tuple[object, ...]:
        given = weight if has_weight else None
        return torch.ops.aten._fused_rms_norm_backward(gradient, x, [40], root, given, [True, has_weight])

    options = {"target": target, "fallback": False, "cache": False}
    found = torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)(gradient, x, root, weight)
    wide = [t.double().requires_grad_() for t in (x, weight)]
    normed = wide[0] * torch.rsqrt(wide[0].square().mean(-1, keepdim=True) + 1e-5)
    expected = torch.autograd.grad(
        normed * wide[1] if has_weight else normed, wide[: 1 + has_weight], gradient.double()
    )
    for mine, exact in zip(found, expected, strict=has_weight):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, w: F.triplet_margin_loss(x, y, w),
        lambda x, y, w: (torch.linalg.vector_norm(x * y, dim=1) * torch.linalg.vector_norm(x + w, 1, 1)).sum()[None],
        lambda x, y, w: torch.logsumexp(x * y - w, 1),
        lambda x, y, w: F.logsigmoid(x * y) * w,
    ],
)
def test_what_vector_norms_and_activations_read_is_computed_again(
    function: Function, dtype: torch.dtype, saved: list[int]
) -> None:
    """PyTorch's partitioner knows these ops only as what its decompositions make of them."""
    torch.manual_seed(1)
    check(function, [torch.randn(64, 48) for _ in range(3)], "cpu", dtype, False)
    assert 64 * 48 not in saved
