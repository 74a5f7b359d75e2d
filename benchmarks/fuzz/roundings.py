# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs of a program in eager, in float64, and in float64 with random errors of the size of eager's roundings.

Each call of PyTorch has two errors: one of its result, as large as a rounding to its dtype in eager, and one of what it
reads, for the sums inside of it, which are in float32. Calls that eager does exactly, and not by chance, have none.
Gradients that go back through a call have both errors, too: a norm's backward pass subtracts means of them, and has the
roundings of what it subtracts. So have those of a value that several calls read, exact or not: autograd adds them up in
the value's dtype. Those that a call reads several times, as an embedding its rows, or that equal elements share have
the error of sums. The weights of an attention are rounded to its dtype, each with an error of its own: here its values
have that error, so that results near zero have it, too. On GPUs a convolution is also rounded before its bias is added:
cuDNN takes none, and PyTorch adds it to the rounded result. So is a product on CUDA: cuBLASLt adds the bias to the
rounded sum where it splits the terms.
"""

import functools
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch._prims_common import suggest_memory_format
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmarks.fuzz.program import Program

HALF_ULP = {dtype: torch.finfo(dtype).eps / 2 for dtype in (torch.bfloat16, torch.float16, torch.float32)}
"""The largest relative error of a rounding, by dtype."""
_HALF_LEAST = {dtype: torch.finfo(dtype).smallest_normal * half for dtype, half in HALF_ULP.items()}
"""The largest error of a rounding to a subnormal number: half of their spacing."""
_INSIDE = 2.0**-18
"""Relative error of the terms of a sum in float32: what thousands of roundings, one after the other, come to."""
_CANCELLED = 2.0**-22
"""Relative error of the gradients that a norm subtracts from each other, of which rows of few elements leave little."""
_EPS = 1e-5
"""What norms add to a variance."""
_TF32 = 2.0**-10
"""Relative error of the terms of a convolution in float32, which on CUDA may round them to TF32, as in eager."""
_LEAST_NORMAL = 2.0**-126
"""Denormal results of a GPU's functions are zero: in every other noisy run those of all calls are."""
_EXACT_BY_CHANCE = re.compile(
    r"norm|var|std|mean|sum|prod|softmax|entropy|matmul|linear|conv|interpolate|avg|addc|lerp"
)
"""Calls with roundings inside, which the data may hide: the variance of equal numbers is 0 in eager."""
_LOGARITHMS = re.compile(r"log_softmax|logsumexp|cross_entropy")
"""Calls that subtract what they have rounded: their error is as large as what they read, also where they give zero."""
_FROM_RESULT = re.compile(r"^(sigmoid|tanh)$")
"""Calls whose gradient subtracts the result, as it was rounded, from one."""
_SUMS_IN_PLACE = re.compile(r"^(index_add|scatter_add)_?$")
"""Calls that eager adds up one by one, on GPUs with a rounding for each."""
_REPEATED = re.compile(r"^(embedding|index_select|gather|take(_along_dim)?|repeat(_interleave)?|expand(_as)?|tile)$")
"""Calls that give an element several times: its gradient is a sum, however exact they are."""
_SHARED = re.compile(r"^(amin|amax)$")
"""Calls whose gradient equal elements share: a quotient."""
_SELECTIONS = re.compile(r"amax|amin|max|min|maximum|minimum|sort|topk|median|cummax|cummin")
"""Calls whose results are elements of their operands."""
_CONTRACTED = re.compile(r"^_*[ir]?(add|sub|rsub)_*$")
"""Calls whose operand, a product, loses its rounding in a fused multiply-add."""


class ReferenceFailed(RuntimeError):
    """What eager computes, the reference does not: the fuzzer is wrong, and neither PyTorch nor Kiln."""


@contextmanager
def _of_reference() -> Generator[None]:
    try:
        yield
    except Exception as error:
        raise ReferenceFailed(f"{type(error).__name__}: {error}") from error


class Runs:
    """The runs of one program on a CPU or, `for_gpu`, with a GPU's libraries: first `eager`, then `wide`, then any
    number of `noisy` ones. The same calls come in the same order in each."""

    def __init__(self, program: Program, for_gpu: bool = False) -> None:
        self._program, self._for_gpu = program, for_gpu
        self._results: list[Any] = []
        self._errors: list[float] = []
        self._roundings: list[float] = []
        self._spacings: list[float] = []
        self._dtypes: list[torch.dtype] = []
        self._is_new: list[bool] = []  # whether the result of a call has memory of its own

    def eager(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All values as eager computes them."""

        def record(call: Callable[..., Any], args: Any, kwargs: Any, _: int) -> Any:
            found = _planar_borders(call)(*args, **kwargs)
            is_float = isinstance(found, torch.Tensor) and found.is_floating_point()
            is_shared = is_float and any(_shares(found, x) for x in tree_leaves((args, kwargs)))
            is_view = is_shared and not _is_write(call)
            self._is_new.append(is_float and not is_shared)
            self._roundings.append(HALF_ULP.get(found.dtype, 2.0**-53) if is_float else 0.0)
            self._dtypes.append(found.dtype if is_float else torch.float64)
            self._spacings.append(_HALF_LEAST.get(found.dtype, 0.0) if is_float else 0.0)
            self._errors.append(0.0 if is_view else self._roundings[-1])
            self._results.append(found.detach().clone() if self._errors[-1] else None)
            return found

        with _Calls(record):
            return self._program.trace(inputs)

    def _apart(self, found: Any, args: Any, kwargs: Any, number: int) -> Any:
        """The result of a call, copied if it is an operand and eager's is not: a cast to the type it has in float64."""
        is_operand = self._is_new[number] and any(_shares(found, x) for x in tree_leaves((args, kwargs)))
        return found.clone() if is_operand else found

    def wide(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All values in float64."""

        def compare(call: Callable[..., Any], args: Any, kwargs: Any, number: int) -> Any:
            found = self._apart(_as_defined(call)(*args, **kwargs), args, kwargs, number)
            is_apart = self._for_gpu and _bias(call, args) is not None
            if self._errors[number] and not is_apart and _is_exact(self._results[number], found.detach()):
                self._errors[number] = 2.0**-24 if _EXACT_BY_CHANCE.search(_name(call)) else 0.0
            self._results[number] = None
            return found

        with _of_reference(), _Calls(compare):
            return self._program.wide(inputs)

    def noisy(self, inputs: Sequence[torch.Tensor], seed: int, scale: float = 1.0) -> list[torch.Tensor]:
        """All values in float64 with errors drawn from a seed, `scale` times as large as roundings.

        For every third seed they are numbers of eager's types, so that some are equal that are near each other. For
        every third from 5 on equal numbers have equal errors, which sums add up. A GPU may take what is denormal for 0:
        it does so for odd seeds.
        """
        random = torch.Generator(inputs[0].device).manual_seed(seed)
        readers: dict[int, list[int]] = {}  # by a result's id: how many calls have read it

        def changed(x: torch.Tensor, size: float, spacing: float = 0.0) -> torch.Tensor:
            """x with errors of a relative `size`; of subnormal numbers at least `spacing`, or all of them."""
            if x.dtype != torch.float64:
                return x
            size, spacing = scale * size, scale * spacing
            drawn = _by_value(x, random) if seed > 2 and seed % 3 == 2 else _draw(x.shape, random)
            found = x * (1 + size * drawn)
            if spacing:
                sizes = x.detach().abs()
                found = found + drawn * (sizes.clamp(max=spacing) - size * sizes).clamp(min=0)
            return found

        def flushed(found: Any) -> Any:
            if not self._for_gpu or not seed % 2 or not isinstance(found, torch.Tensor) or found.dtype != torch.float64:
                return found
            return found - torch.where(found.abs() < _LEAST_NORMAL, found, 0.0).detach()

        def of_eager(found: torch.Tensor, number: int) -> torch.Tensor:
            """Numbers of eager's type, for every third seed."""
            if not seed or seed % 3 or found.dtype != torch.float64:
                return found
            return found + (found.detach().to(self._dtypes[number]).double() - found.detach()).nan_to_num(0, 0, 0)

        def watched(call: Callable[..., Any], args: Any, kwargs: Any, number: int) -> Any:
            found = self._apart(disturb(_as_defined(call), args, kwargs, number), args, kwargs, number)
            size, spacing = self._roundings[number], self._spacings[number]
            if any(isinstance(x, torch.Tensor) and x.requires_grad for x in tree_leaves(found)):
                for x in {id(x) for x in tree_leaves((args, kwargs))} & readers.keys():
                    readers[x][0] += 1
            readers.pop(id(found), None)  # of a tensor that is gone
            if size and isinstance(found, torch.Tensor) and found.requires_grad:
                count = readers[id(found)] = [0]
                found.register_hook(lambda gradient: changed(gradient, size, spacing) if count[0] > 1 else gradient)
            return found

        def disturb(call: Callable[..., Any], args: Any, kwargs: Any, number: int) -> Any:
            size = self._errors[number] if _name(call) != "masked_fill" else 0.0  # equal numbers stay equal
            spacing = self._spacings[number] if size == self._roundings[number] else 0.0  # exact by chance: none
            inside = _TF32 if "conv" in _name(call) and random.device.type == "cuda" else _INSIDE
            if not size and _CONTRACTED.search(_name(call)):
                size, inside = 2.0**-53, 2.0**-24
            if not size or seed and seed % 3 == 0 and _selects(call, args):
                found = call(*args, **kwargs)
                found = found if _is_write(call) else flushed(found)
                if _rounds_gradients(call, args) and isinstance(found, torch.Tensor) and found.requires_grad:
                    found.register_hook(lambda gradient: changed(gradient, inside))
                return found
            if self._for_gpu and _SUMS_IN_PLACE.search(_name(call)):
                size *= _additions(*args[:3]) ** 0.5
            if _is_write(call):
                found = call(*args, **kwargs)
                found.data.copy_(changed(found.detach(), size, spacing))  # `data`: it may be saved for a gradient
                return found
            if _name(call) in ("softmax", "log_softmax"):
                args = (_below_largest(args[0], *args[1:2], **kwargs), *args[1:])
            args, kwargs = tree_map_only(torch.Tensor, lambda x: changed(x, inside), (args, kwargs))
            if _name(call) == "scaled_dot_product_attention":
                args = (*args[:2], changed(args[2], self._roundings[number]), *args[3:])
            bias = _bias(call, args) if self._for_gpu else None
            if _FROM_RESULT.search(_name(call)):
                found = call(*args, **kwargs)
                found.data.copy_(changed(found.detach(), size, spacing))  # `data`: it is saved for the gradient
            elif bias is None:
                found = changed(call(*args, **kwargs), size, spacing)
            else:
                found = changed(call(args[0], args[1], None, *args[3:], **kwargs), size, spacing)
                found = changed(of_eager(found, number) + bias, size, spacing)
            if _LOGARITHMS.search(_name(call)) and found.dtype == torch.float64:
                found = found + scale * 2.0**-24 * _largest(args) * _draw(found.shape, random)
            if _name(call) == "gelu" and found.dtype == torch.float64:  # one and `erf` cancel where it is near zero
                found = found + scale * 2.0**-24 * args[0].detach().abs() * _draw(found.shape, random)
            found = of_eager(flushed(found), number)
            factors = _factors_of_norm(call, args)
            if factors is not None and found.requires_grad and args[0].requires_grad:
                largest = max(1.0, _largest([args[2:], kwargs]))  # of the weights
                sizes: list[torch.Tensor] = []
                found.register_hook(lambda gradient: sizes.append(gradient.abs().max()))
                errors = scale * _CANCELLED * largest * _draw(args[0].shape, random)
                args[0].register_hook(lambda gradient: gradient + errors * factors * sizes[-1])
            if found.requires_grad:  # what comes back has been rounded as well, and is added up in sums like those
                back, least = self._roundings[number], self._spacings[number]  # of a result exact by chance, too
                found.register_hook(lambda gradient: changed(changed(gradient, back, least), inside))
            return found

        given = [flushed(x) for x in inputs]
        with _of_reference(), _Calls(watched):
            return self._program.wide(given)


class _Calls(TorchFunctionMode):
    """Has all calls of PyTorch done by `handle(call, args, kwargs, number)`."""

    def __init__(self, handle: Callable[[Callable[..., Any], Any, Any, int], Any]) -> None:
        super().__init__()
        self._handle, self._count = handle, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._count += 1
        return self._handle(func, args, kwargs or {}, self._count - 1)


def _draw(shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    """Numbers between -1 and 1."""
    return 2 * torch.rand(shape, generator=random, device=random.device, dtype=torch.float64) - 1


def _by_value(x: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Numbers between -1 and 1 for those of x, equal ones for equal ones: a hash of all but the last bits, in which
    sums in another order differ.
    """
    salt = torch.randint(2**62, (), generator=random, device=random.device)
    bits = ((x.detach().view(torch.int64) + 2**19) >> 20) ^ salt
    for _ in range(2):
        bits = (bits ^ (bits >> 29)) * -0x61C8864680B583EB  # the golden ratio in 64 bits
    return (bits >> 11).double() / 2.0**52


def rms_norm(
    x: torch.Tensor, sizes: Sequence[int], weight: torch.Tensor | None = None, eps: float | None = None
) -> torch.Tensor:
    """`F.rms_norm` by its definition: CUDA's kernel gives NaN for all numbers of a row with an infinite one."""
    mean = x.square().mean([*range(-len(sizes), 0)], keepdim=True)
    normal = x * torch.rsqrt(mean + (torch.finfo(x.dtype).eps if eps is None else eps))
    return normal if weight is None else normal * weight


def hardswish(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """`F.hardswish` by its definition: CUDA's kernel multiplies float64 by a sixth that is rounded to float32."""
    return x * (x + 3).clamp(0, 6) / 6


def attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    """`F.scaled_dot_product_attention` by its definition: kernels in blocks make 0 of rows whose scores are NaN."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(*args, **kwargs)


DEFINITIONS: dict[str, Callable[..., torch.Tensor]] = {
    "rms_norm": rms_norm,
    "hardswish": hardswish,
    "scaled_dot_product_attention": attention,
}
"""Calls that stand for PyTorch's in float64, by name."""


def _as_defined(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, or one that gives on any device what its definition does."""
    definition = DEFINITIONS.get(_name(call))
    return functools.wraps(call)(definition) if definition else _planar_borders(call)


def _below_largest(x: torch.Tensor, dim: int, **_: Any) -> torch.Tensor:
    """What a softmax reads, less the largest along `dim`, which it subtracts first: rows of one large number, as those
    that are masked as a whole, are all zeros, without an error.
    """
    return x - x.detach().amax(dim, keepdim=True)


def _planar_borders(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call; `avg_pool2d` of an image of a GPU by the planar kernel: the gradient of CUDA's kernel for channels last
    takes an image with a border for one without.
    """
    if _name(call) != "avg_pool2d":
        return call

    @functools.wraps(call)
    def planar(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        wanted = suggest_memory_format(x)
        if not x.is_cuda or wanted == torch.contiguous_format:
            return call(x, *args, **kwargs)
        found = call(x.clone(memory_format=torch.contiguous_format), *args, **kwargs)
        return found.contiguous(memory_format=wanted)

    return planar


def _factors_of_norm(call: Callable[..., Any], args: Any) -> torch.Tensor | None:
    """By what a norm that subtracts means multiplies each element of its operand, without weights; None of others."""
    name, x = _name(call), args[0] if args else None
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float64 or not x.numel():
        return None
    values = x.detach()
    if name == "layer_norm":
        dims = range(-len(args[1]), 0)
    elif name == "group_norm":
        values, dims = values.reshape(x.shape[0], args[1], -1), (2,)
    elif name == "instance_norm":
        dims = range(2, x.dim())
    elif name == "batch_norm":
        dims = (0, *range(2, x.dim()))
    else:
        return None
    scale = torch.rsqrt(values.var(tuple(dims), correction=0, keepdim=True) + _EPS)
    return scale.expand_as(values).reshape(x.shape)


def _additions(x: torch.Tensor, dim: int, index: torch.Tensor) -> float:
    """How many numbers an element of x gets along a dim, in the mean, and its own."""
    return 1 + index.shape[dim if index.dim() > 1 else 0] / max(x.shape[dim], 1)


def _rounds_gradients(call: Callable[..., Any], args: Any) -> bool:
    """Whether an exact call computes its gradient with roundings: it may give an element of an operand several times,
    or share what comes back.
    """
    is_indexed = _name(call) == "__getitem__" and any(isinstance(x, torch.Tensor) for x in tree_leaves(args[1:]))
    return is_indexed or any(names.search(_name(call)) for names in (_REPEATED, _SHARED))


def _selects(call: Callable[..., Any], args: Any) -> bool:
    """Whether each element of the result is one of an operand's: gradients are those of equal ones together."""
    return bool(_SELECTIONS.fullmatch(_name(call))) or "scatter_reduce" in _name(call) and "am" in str(args[4:5])


def _name(call: Callable[..., Any]) -> str:
    return getattr(call, "__name__", "")


def _bias(call: Callable[..., Any], args: Any) -> torch.Tensor | None:
    """The bias of a convolution, or of a product on CUDA, as it is added to the result; None for other calls."""
    if len(args) < 3 or args[2] is None:
        return None
    if _name(call) == "linear" and _is_on_cuda(args[0]):
        return args[2]
    return args[2].view(-1, *[1] * (args[0].dim() - 2)) if "conv" in _name(call) else None


def _is_on_cuda(x: torch.Tensor) -> bool:
    return x.is_cuda


def _is_write(call: Callable[..., Any]) -> bool:
    name = _name(call)
    return name.endswith("_") and not name.endswith("__")


def _shares(x: torch.Tensor, y: Any) -> bool:
    return isinstance(y, torch.Tensor) and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def _largest(args: Any) -> float:
    sizes = [x.detach().nan_to_num(0.0, 0.0, 0.0).abs().max().item() for x in tree_leaves(args) if _is_wide(x)]
    return max(sizes, default=0.0)


def _is_wide(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64 and x.numel() > 0


def _is_exact(narrow: torch.Tensor, wide: torch.Tensor) -> bool:
    return torch.equal(narrow.double().nan_to_num(0.5), wide.double().nan_to_num(0.5))
