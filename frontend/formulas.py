# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Formulas in place of PyTorch's, where these are wrong in some version, too long to compile or slow."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

__all__ = ["corrections", "traced_formulas"]

aten = torch.ops.aten
_MEAN, _SUM = 1, 2
"""Of ATen's `Reduction`."""


def corrections() -> dict[Any, Callable[..., Any]]:
    """Op overload -> a decomposition, for the ops that FakeTensors of this PyTorch give a wrong shape, dtype or layout,
    and for cross products.

    Each returns NotImplemented where PyTorch is right, which leaves the op whole.
    """
    found: dict[Any, Callable[..., Any]] = {}
    if torch.__version__ < (2, 12):  # pyright: ignore[reportOperatorIssue] - a TorchVersion
        found |= {op: _unshared(op) for op in (aten.slice_scatter.default, aten.select_scatter.default)}
    if torch.__version__ < (2, 13):  # pyright: ignore[reportOperatorIssue] - a TorchVersion
        found[aten.linalg_vector_norm.default] = _vector_norm
        found[aten.diagonal_scatter.default] = _unshared(aten.diagonal_scatter.default)
        found |= {op: _pad(op) for op in (aten.reflection_pad2d.default, aten.replication_pad2d.default)}
    found[aten.linalg_cross.default] = _cross
    found[aten._embedding_bag.default] = _embedding_bag
    found[aten._weight_norm_interface.default] = _weight_norm
    found[aten._weight_norm_interface_backward.default] = _weight_norm_backward
    return found | {op: _pad(op) for op in (aten.reflection_pad3d.default, aten.replication_pad3d.default)}


def _cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Any:
    """Pointwise ops on the three elements along ``dim``, which PyTorch's formula looks up in tables of indices."""
    if x.dtype != y.dtype or x.dim() != y.dim():
        return NotImplemented
    (a, b, c), (u, v, w) = x.unbind(dim), y.unbind(dim)
    return torch.stack([b * w - c * v, c * u - a * w, a * v - b * u], dim)


def _pad(op: Any) -> Callable[..., Any]:
    """The traced result is planar also where an image of the CPU has its channels last, as the result then has; that of
    ATen's kernels on CUDA is planar.
    """

    def pad(x: Tensor, padding: Any) -> Any:
        wanted = suggest_memory_format(x)
        # An image of one channel or pixel is planar and has its channels last; which one it is taken for depends on
        # strides that reach no element, and in a trace these are not eager's.
        if wanted == torch.contiguous_format or x.device.type != "cpu" or x.is_contiguous():
            return NotImplemented
        # clone, since contiguous() leaves an image of one channel as it is, which asks for channels last again.
        return op(x.clone(memory_format=torch.contiguous_format), padding).clone(memory_format=wanted)

    return pad


def _unshared(op: Any) -> Callable[..., Any]:
    """The traced result of a scatter has the strides of its base, also where elements of the base share memory."""

    def scatter(base: Tensor, *args: Any, **kwargs: Any) -> Any:
        # A size with a symbol is of more than one element, and a stride with symbols is not 0.
        dims = zip(base.shape, base.stride(), strict=True)
        if any(isinstance(s, int) and s == 0 and not (isinstance(n, int) and n <= 1) for n, s in dims):
            return op(base.clone(memory_format=torch.contiguous_format), *args, **kwargs)
        return NotImplemented

    return scatter


def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The traced bag of each index is there for sums in bf16 on the CPU, whose kernel leaves it out as that of f32 does
    (the gradient finds it then).
    """
    is_left_out = weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and mode == 0 and padding_idx < 0
    scales = [] if per_sample_weights is None else [per_sample_weights.stride(0)]
    if not is_left_out or any(s != 1 for s in (weight.stride(1), *scales)):
        return NotImplemented
    options = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx)
    bags, bag_of_each, *others = aten._embedding_bag_forward_only.default(weight, indices, offsets, *options)
    return bags, bag_of_each[:0], *others


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """``v`` with a norm of ``g`` in each slice of ``dim``, and the norms of v, which are in f32 for dtypes of 16 bits.

    PyTorch traces norms in f16 on the CPU, which ATen's gradient refuses, and one norm for all of a vector.
    """
    wide = _wide(v)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    norms = v.to(wide).abs()
    if others:
        norms = aten.linalg_vector_norm.default(v, 2.0, others, True, dtype=wide)
    scaled = v.to(wide) * (g.to(wide) / norms)
    return scaled.to(v.dtype).contiguous(), norms


def _weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of v and of g: the part of ``grad`` along v changes the norm alone, which is g whatever v is."""
    wide = _wide(v)
    wide_v, wide_grad, norms = v.to(wide), grad.to(wide), norms.to(wide)
    along = (wide_grad * wide_v).sum_to_size(norms.shape) / norms
    grad_v = (g.to(wide) / norms) * (wide_grad - wide_v * (along / norms))
    return grad_v.to(v.dtype).contiguous(), along.to(g.dtype)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype.itemsize == 2 else x.dtype


def _vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The traced result keeps dims of size 1 that are counted from the end."""
    dims = [dim] if isinstance(dim, int) else dim
    if not dims or all(d >= 0 for d in dims):
        return NotImplemented
    return aten.linalg_vector_norm.default(x, ord, [d % max(x.dim(), 1) for d in dims], keepdim, dtype=dtype)


@contextlib.contextmanager
def traced_formulas() -> Generator[None, None, None]:
    """What AOTAutograd traces in the block gets Kiln's formulas of ops that PyTorch takes apart before a decomposition
    table is asked: a gradient of cumprod of 20 ops, where PyTorch's is a loop over the elements of the dim (thousands
    of ops for a dim of 100), and a loss that PyTorch computes wrong.
    """
    before = [op.py_kernels.get(key) for op, key, _ in _FORMULAS]
    _set_kernels([kernel for _, _, kernel in _FORMULAS])
    try:
        yield
    finally:
        _set_kernels(before)


def _set_kernels(kernels: list[Callable[..., Any] | None]) -> None:
    """None: PyTorch's kernel that is not in Python."""
    for (op, key, _), kernel in zip(_FORMULAS, kernels, strict=True):
        if kernel is None:
            op.py_kernels.pop(key, None)
        else:
            op.py_kernels[key] = kernel
        op._dispatch_cache.clear()


def cumprod_backward(grad: Tensor, x: Tensor, dim: int, output: Tensor) -> Tensor:
    """The gradient of ``output = x.cumprod(dim)``, all of one shape; the formula is that of ATen's eager kernel.

    With the first zero of a row at z: before z, the sum of ``grad * output`` from the element on, divided by it; at z,
    the sum of ``grad`` times the products in which the element is left out; 0 behind z.
    """
    if x.dim() == 0 or (isinstance(x.numel(), int) and x.numel() <= 1):
        return grad
    is_zero = x == 0
    zeros = is_zero.to(torch.int64).cumsum(dim)
    first = is_zero & (zeros == 1)
    without = torch.where(first, 1, x).cumprod(dim).conj() * grad
    at_first = torch.where(zeros == 1, without, 0).sum(dim, keepdim=True)
    before = torch.where(zeros == 0, output.conj() * grad, 0)
    from_here = before.flip(dim).cumsum(dim).flip(dim)
    return torch.where(first, at_first, torch.where(zeros == 0, from_here / x.conj(), 0))


def multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """The hinge loss of each label over each class that is none, and which classes are labels; both [N, C] or [C].

    Labels of a row end before its first -1. PyTorch's formula counts what follows as label 0.
    """
    classes = x.shape[-1]
    rows, labels = x.reshape(-1, classes), target.reshape(-1, classes)
    is_label = (labels == -1).to(torch.int64).cumsum(1) == 0
    index = torch.where(is_label, labels, 0)
    is_target = (is_label[:, :, None] & (index[:, :, None] == torch.arange(classes, device=x.device))).any(1)
    counts = is_label[:, :, None] & ~is_target[:, None]
    margins = torch.relu(1 - rows.gather(1, index)[:, :, None] + rows[:, None])
    losses = torch.where(counts, margins, 0).sum((1, 2)) / classes
    is_target = is_target.to(x.dtype).view(target.shape)
    if reduction == _MEAN:
        return losses.mean(), is_target
    return losses.sum() if reduction == _SUM else losses.view(x.shape[:-1]), is_target


#: Op overload, dispatch key of the kernel in Python that tracing runs, Kiln's formula.
_FORMULAS: list[tuple[Any, Any, Callable[..., Any]]] = [
    (aten.cumprod_backward.default, torch._C.DispatchKey.CompositeImplicitAutograd, cumprod_backward),
    (aten.multilabel_margin_loss_forward.default, torch._C.DispatchKey.Autograd, multilabel_margin_loss),
]
