# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What ATen computes is within the bounds that checked execution gives it (`kiln.dialects.interpret.estimates`).

Each call of ATen that the first sample of an entry of PyTorch's operator database makes, forward and backward, is
compared as checked execution does it. Without ``--slow`` a fixed part of the entries runs.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch_mlir import ir

import kiln  # noqa: F401 - makes the package known in a checkout that is not installed
from kiln.dialects import create_context
from kiln.dialects.interpret.bounds import Bounded, BoundedNumbers
from kiln.dialects.interpret.error_rules import format_of
from kiln.dialects.interpret.estimates import estimated
from kiln.errors import UnsupportedError
from kiln.lowering.host.references import is_checked_name
from kiln.runtime.checked.comparison import compare

from .test_opdb import ENTRIES, in_sample

TYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.bool: "i1",
}  # fmt: skip
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


class Comparing(TorchDispatchMode):
    """Compares each call that checked execution would; `wrong` has what is off, `compared` counts."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.compared = 0
        self._context = create_context()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        if not self._is_checked(func, tensors):
            return func(*args, **kwargs)
        values = [Bounded(x.detach().double() if x.is_floating_point() else x.clone()) for x in tensors]
        result = func(*args, **kwargs)
        found = tensors_of(result)
        if any(x.dtype not in TYPES for x in found) or len(found) < len(pytree.tree_leaves(result)):
            return result

        def call(given: Sequence[torch.Tensor], is_wide: bool) -> list[torch.Tensor]:
            rest = iter(given)
            changed = [
                next(rest)
                if isinstance(x, torch.Tensor)
                else torch.float64
                if is_wide and isinstance(x, torch.dtype) and x.is_floating_point
                else x
                for x in leaves
            ]
            again = pytree.tree_unflatten(changed, spec)
            return tensors_of(func(*again[0], **again[1]))

        elements = [self._element(x) for x in found]
        given = [self._element(x) for x in tensors]
        with torch.no_grad(), contextlib.suppress(UnsupportedError):
            expected = BoundedNumbers().call(lambda t: call(t, True), lambda t: call(t, False), values, given, elements)
            self.compared += 1
            for number, (x, bounded, element) in enumerate(zip(found, expected, elements, strict=True)):
                difference = compare(number, x, bounded, element)
                if difference is not None:
                    self.wrong.append(f"{func}: {difference}")
        return result

    def _is_checked(self, func: Any, tensors: Sequence[torch.Tensor]) -> bool:
        schema = func._schema
        return (
            is_checked_name(str(func))
            and not schema.is_mutable
            and torch.Tag.nondeterministic_seeded not in func.tags
            and not any(r.alias_info for r in schema.returns)
            and "_efficientzerotensor" not in str(func)
            and all(x.dtype in TYPES and x.layout == torch.strided for x in tensors)
        )

    def _element(self, x: torch.Tensor) -> ir.Type:
        return ir.Type.parse(TYPES[x.dtype], self._context)


@pytest.mark.parametrize("name", sorted(n for n in ENTRIES if not n.startswith("jiterator")))  # which need a GPU
def test_calls_are_within_their_bounds(name: str, request: pytest.FixtureRequest) -> None:
    if not in_sample(name) and not request.config.getoption("--slow"):
        pytest.skip("outside of the sample: --slow runs it")
    op, looking = ENTRIES[name], Comparing()
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        has_gradient = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=has_gradient)))
        with contextlib.suppress(RuntimeError, NotImplementedError), looking:
            results = [x for x in tensors_of(op.op(sample.input, *sample.args, **sample.kwargs)) if x.requires_grad]
            inputs = [x for x in tensors_of((sample.input, sample.args, sample.kwargs)) if x.requires_grad]
            if results:
                torch.autograd.grad(results, inputs, [torch.randn_like(x) for x in results], allow_unused=True)
    assert not looking.wrong
    if not looking.compared:
        pytest.skip("it makes no call that checked execution compares")


def test_a_wrong_call_is_found() -> None:
    x = torch.randn(5, 40)

    class Wrong(TorchDispatchMode):
        """Sums of `x` itself are off, and right on copies of it."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            return found * 1.01 if func is torch.ops.aten.sum.dim_IntList and args[0] is x else found

    looking = Comparing()
    with Wrong(), looking:
        torch.ops.aten.sum.dim_IntList(x, [1])
    assert looking.compared == 1 and len(looking.wrong) == 1


def test_sums_that_another_run_orders_otherwise_are_right() -> None:
    """A GPU adds up 16-bit gradients one by one, in the order in which its threads come."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 40, dtype=torch.float64).to(torch.bfloat16)

    def less_exact(x: torch.Tensor) -> torch.Tensor:
        """As far off as by a rounding for each of 64 numbers that are added, which differ from call to call."""
        return x.double() + 64**0.5 * 2.0**-8 * torch.randn(x.shape, generator=generator, dtype=torch.float64)

    context = create_context()
    element = ir.Type.parse("bf16", context)
    form = format_of(element)
    limits = [
        estimated(lambda t: [t[0] * 1], lambda t: [less_exact(t[0])], [x.double()], [x.dtype], [form], [element])[0]
        for _ in range(40)
    ]
    for wide, limit in limits:
        assert limit is not None and ((less_exact(x) - wide).abs() <= limit).all()
        assert limit.max() < 1.5
