# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that read the memory of their operands by themselves get them in eager's order, whatever Kiln made of it."""

import re
from collections import Counter

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from kiln.frontend.import_.operand_strides import ANY_STRIDES, needs_strides

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


_READERS = {
    "complex": lambda x: torch.view_as_complex(x.permute(0, 2, 1).contiguous()[..., :2].contiguous()).abs(),
    "complex, from an odd element on": lambda x: torch.view_as_complex(x.flatten()[1:9].clone().view(4, 2)).abs(),
    "complex, computed": lambda x: torch.view_as_real(torch.view_as_complex((x * 2).mT[:, :, :2].contiguous()) * 2j),
    "complex, a dim of size 1": lambda x: torch.view_as_complex(x[:1, :1, :1].expand(1, 2, 2).contiguous()).abs(),
    "larger elements": lambda x: x.mT.contiguous().view(torch.int64),
    "larger elements, from an odd one on": lambda x: x.flatten()[1:9].clone().view(torch.float64),
    "smaller elements": lambda x: x.mT.contiguous().view(torch.int16),
    "elements of one size": lambda x: x.mT.contiguous().view(torch.int32),
    "distances": lambda x: torch.pdist(x[0].mT.contiguous()),
    "a solution": lambda x: torch.linalg.solve_triangular(
        x[:, :4, :4].mT.contiguous(), x[:, :4].contiguous(), upper=True
    ),
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", list(_READERS))
def test_ops_that_read_memory(case, dynamic):
    """Each was an error, or of other numbers, where a copy became a view."""
    fn, x = _READERS[case], torch.randn(4, 6, 10)
    found = torch.compile(fn, backend="kiln", dynamic=dynamic, options={"fallback": False})(x)
    torch.testing.assert_close(found, fn(x), equal_nan=True)


_DIFFERENTIATED = {
    "complex": lambda x: torch.view_as_complex((x * 3).permute(0, 2, 1)[..., :2].contiguous()).abs(),
    "a determinant's logarithm": lambda x: torch.linalg.slogdet(x[:, :4, :4].mT.contiguous()).logabsdet,
    "bags": lambda x: F.embedding_bag(_INDICES, x[0].mT.contiguous(), torch.tensor([0, 3]), mode="sum"),
}
_INDICES = torch.tensor([1, 0, 5, 2, 2])


@pytest.mark.parametrize("case", list(_DIFFERENTIATED))
def test_gradients_of_ops_that_read_memory(case):
    """The determinant's was wrong: it is computed from a factorization that counts on the operand's order."""
    fn, x = _DIFFERENTIATED[case], torch.randn(4, 6, 10)
    given, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = torch.compile(fn, backend="kiln", options={"fallback": False})(given), fn(wanted)
    weight = torch.randn_like(expected)
    found.backward(weight)
    expected.backward(weight)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(given.grad, wanted.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", [torch.view_as_complex, lambda x: x.view(torch.int16)], ids=["complex", "integers"])
def test_a_view_of_a_copy_is_no_view_of_the_argument(view):
    """Kiln keeps the copy as the argument itself."""
    x = torch.randn(4, 2)
    before = x.clone()
    torch.compile(lambda x: view(x.clone()), backend="kiln", options={"fallback": False})(x).zero_()
    torch.testing.assert_close(x, before)


_ALIASES = {
    "a copy of a result": lambda x, view: (view(x.sin().clone()), x),
    "a copy beside its source": lambda x, view: (lambda y: (view(y.clone()), y))(x.sin()),
    "a view beside its source": lambda x, view: (lambda y: (view(y), y))(x.sin()),
    "two copies": lambda x, view: (view(x.clone()), view(x.clone())),
    "two copies of a result": lambda x, view: (lambda y: (view(y.clone()), view(y.clone())))(x.sin()),
    "a view of a view": lambda x, view: (view(x.clone()).flatten(), x),
}


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("view", [torch.view_as_complex, lambda x: x.view(torch.int16)], ids=["complex", "integers"])
@pytest.mark.parametrize("case", list(_ALIASES))
def test_results_share_the_memory_that_eagers_share(case, view, target):
    x = torch.randn(4, 2)
    compiled = torch.compile(_ALIASES[case], backend="kiln", options={"fallback": False, "target": target})
    found, expected = ((x, *results) for results in (compiled(x, view), _ALIASES[case](x, view)))
    starts = [[t.untyped_storage().data_ptr() for t in tensors] for tensors in (found, expected)]
    shared = [[[a == b for b in tensors] for a in tensors] for tensors in starts]
    assert shared[0] == shared[1]


def test_a_view_of_an_argument_writes_to_it():
    x = torch.randn(4, 2)
    expected = torch.view_as_real(torch.view_as_complex(x.clone()) * 2j)
    torch.compile(lambda x: torch.view_as_complex(x).mul_(2j), backend="kiln", options={"fallback": False})(x)
    torch.testing.assert_close(x, expected)


def _elsewhere(x: torch.Tensor) -> list[torch.Tensor]:
    """``x`` with every second element of a larger memory, and with its dims in the reverse order."""
    spread = x.new_zeros((*x.shape, 2))[..., 0]
    turned = x.new_empty(x.shape[::-1]).permute(*range(x.dim())[::-1])
    return [other.copy_(x) for other in (spread, turned)]


class _OtherStrides(TorchDispatchMode):
    """Calls the ops of ``ANY_STRIDES`` again, each operand in turn with other strides, and compares the results."""

    def __init__(self) -> None:
        super().__init__()
        self.called = Counter[str]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = str(func).removesuffix(".default").removeprefix("aten.")
        if name in ANY_STRIDES and self.called[name] < 6:
            leaves, spec = tree_flatten((args, kwargs or {}))
            for k, leaf in enumerate(leaves):
                if not isinstance(leaf, torch.Tensor) or leaf.numel() < 2:
                    continue
                self.called[name] += 1
                for other in _elsewhere(leaf):
                    args, kwargs = tree_unflatten([*leaves[:k], other, *leaves[k + 1 :]], spec)
                    torch.testing.assert_close(func(*args, **kwargs), found, msg=f"{name}, operand {k}")
        return found


_MAKE_THEM = """cdist|conv2d|embedding|grid_sample|kthvalue|masked_(scatter|select)|median|nonzero|scatter|scatter_add|
scatter_reduce_sum|sort|topk|index_(add|copy)|searchsorted|bucketize|adaptive_avg_pool[23]d|avg_pool[23]d|max_pool2d|
pad_(reflect|replicate)|interpolate_(bicubic|bilinear|trilinear|nearest)"""


def test_the_others_take_any_strides():
    calls = _OtherStrides()
    pattern = re.compile(rf"(nn_functional_)?({_MAKE_THEM})".replace("\n", ""))
    for op in op_db:
        if not pattern.fullmatch(op.formatted_name):
            continue
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):
            with calls:
                results = tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
                results = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
                torch.autograd.backward(results, [torch.randn_like(t) for t in results])
    assert sorted(calls.called) == sorted(ANY_STRIDES)


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


def test_which_ops_need_strides():
    aten = torch.ops.aten
    assert needs_strides(aten.view_as_complex.default)
    assert needs_strides(aten.fractional_max_pool2d_backward.default)  # counts its indices in memory
    assert not needs_strides(aten.mm.default)
    assert not needs_strides(aten.digamma.default)  # elementwise
    assert not needs_strides(aten.convolution_backward.default)


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
