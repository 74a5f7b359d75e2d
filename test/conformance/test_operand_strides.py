# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that read the memory of their operands by themselves get them in eager's order, whatever Kiln made of it."""

import pytest
import torch
from torch.nn import functional as F

from kiln.frontend.import_.operand_strides import needs_strides

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@torch.library.custom_op("kiln_test::memory", mutates_args=())
def memory(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, (x.numel(),), (1,)).clone()


memory.register_fake(lambda x: x.new_empty((x.numel(),)))


@torch.library.custom_op("kiln_test::memories", mutates_args=())
def memories(xs: list[torch.Tensor], scale: float = 1.0, last: torch.Tensor | None = None) -> torch.Tensor:
    return torch.cat([torch.as_strided(x, (x.numel(),), (1,)) * scale for x in [*xs, *([last] * (last is not None))]])


memories.register_fake(
    lambda xs, scale=1.0, last=None: xs[0].new_empty(sum(x.numel() for x in xs) + (0 if last is None else last.numel()))
)


@torch.library.custom_op("kiln_test::count_up", mutates_args=("out",))
def count_up(x: torch.Tensor, out: torch.Tensor) -> None:
    flat = torch.as_strided(x, (x.numel(),), (1,))
    out.copy_(flat.cumsum(0).view(out.shape))


_CASES = {
    "transposed": lambda x: memory(x.transpose(1, 2).contiguous()),
    "computed and transposed": lambda x: memory((x + 1).transpose(0, 2).contiguous()) * 2,
    "as it lies": lambda x: memory((x + 1).transpose(1, 2)),
    "expanded": lambda x: memory(x[:, :1].expand(-1, 5, -1).contiguous()),
    "a slice": lambda x: memory(x[:, ::2].contiguous()),
    "channels-last": lambda x: memory(x[None].contiguous(memory_format=torch.channels_last)),
    "a convolution's": lambda x: memory(F.conv2d(F.conv2d(x[None], _WEIGHT), _WEIGHT).relu()),
    "lists": lambda x: memories([x.mT.contiguous(), x.sin().mT], 2.0, last=(x * 2).permute(2, 0, 1).contiguous()),
}
_WEIGHT = torch.randn(4, 4, 1, 1)


@pytest.mark.parametrize("case", _CASES)
def test_custom_op(check, case):
    with torch.no_grad():
        check(_CASES[case], torch.randn(4, 6, 10))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_reads_a_dense_copy(causal):
    """PyTorch's kernel for CPUs steps through its operands' last dim by one element, whatever their strides say."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        y = x.clone(memory_format=torch.contiguous_format)
        return F.scaled_dot_product_attention(y, y, y, is_causal=causal)

    compiled = torch.compile(attend, backend="kiln", dynamic=True, options={"fallback": False})
    for width in (4, 6):
        x = torch.randn(4, 8, 5, 2 * width)[..., ::2]
        given, wanted = x.clone().requires_grad_(), x.double().requires_grad_()
        found, exact = compiled(torch.repeat_interleave(given, 2, -1)[..., ::2]), attend(wanted)
        (gradient,) = torch.autograd.grad(found.square().sum(), given)
        (reference,) = torch.autograd.grad(exact.square().sum(), wanted)
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x).double(), attend(x.double()), rtol=1e-5, atol=1e-5)


def test_dynamic_sizes(check):
    compiled = torch.compile(_CASES["lists"], backend="kiln", dynamic=True, options={"fallback": False})
    for shape in [(4, 6, 10), (3, 5, 7), (2, 1, 9), (1, 3, 1)]:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), _CASES["lists"](x))


def test_written_operands(check):
    def fn(x):
        out = torch.empty_like(x)
        count_up(x.mT.contiguous(), out)
        return out + 1

    with torch.no_grad():
        check(fn, torch.randn(4, 6, 10))


def test_training():
    """The operands of a backward graph's calls, too."""

    @torch.library.custom_op("kiln_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(x, (x.numel(),), (1,)).view(x.shape) * 2

    doubled.register_fake(lambda x: torch.empty(x.shape))
    doubled.register_autograd(lambda ctx, grad: doubled(grad.contiguous()))

    def fn(x):
        return doubled((x * 3).mT.contiguous()).mT.sin().sum()

    x = torch.randn(5, 7, requires_grad=True)
    (expected,) = torch.autograd.grad(fn(x), x)
    (found,) = torch.autograd.grad(torch.compile(fn, backend="kiln", fullgraph=True)(x), x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("batch_first", [True, False])
def test_lstm(batch_first):
    """oneDNN's layer takes its input for contiguous."""
    lstm = torch.nn.LSTM(5, 7, batch_first=batch_first).eval().requires_grad_(False)
    x = torch.randn(3, 4, 5)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        found = torch.compile(lstm, backend="kiln", fullgraph=True)(x)
        torch.testing.assert_close(found, lstm(x))


@pytest.mark.parametrize("name", ["flash", "efficient", "cudnn"])
def test_gradients_of_attention_keep_the_strides(name):
    """cuDNN's is wrong for others (test/runtime/cuda/test_attention_gradients.py runs it)."""
    assert needs_strides(getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention_backward").default)
    assert not needs_strides(torch.ops.aten._scaled_dot_product_flash_attention.default)


def test_group_norm_of_unknown_channels_reads_what_eager_gave_it(fresh_compiler):
    """It is a call of ATen then, which on CUDA rejects an image that lies neither planar nor channels-last."""
    seen = []

    class Calls(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.native_group_norm.default:
                seen.append(args[0].stride())
            return func(*args, **(kwargs or {}))

    def model(x, weight, scale, shift):
        y = F.softplus(F.conv2d(x, weight, padding=1))
        return F.silu(F.group_norm(y, 4, scale, shift))

    given = [torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last), torch.randn(16, 8, 3, 3)]
    given += [torch.randn(16), torch.randn(16)]
    with torch.no_grad():
        compiled = torch.compile(model, backend="kiln", dynamic=True)
        torch.testing.assert_close(compiled(*given), model(*given))
        with Calls():
            compiled(*given)
    expected = F.conv2d(*given[:2], padding=1).stride()
    assert all(stride == expected for stride in seen)
    assert needs_strides(torch.ops.aten.native_group_norm.default)
    assert needs_strides(torch.ops.aten.native_group_norm_backward.default)
