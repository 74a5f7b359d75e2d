# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""PyTorch's operator database: what ``aot_eager`` compiles Kiln compiles, with equal values and strides.

The first float32 sample of every entry runs forward with ``fullgraph=True``. Without ``--slow`` a fixed quarter of the
entries runs, chosen by a hash of the name.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed

from .expected_failures import EXPECTED_FAILURES, STRIDES_NOT_TRACED, UNINITIALISED

op_database = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

SAMPLED_PARTS = 4
OLD = torch.__version__ < (2, 12)

ENTRIES = {
    op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op
    for op in op_database
    if torch.float32 in op.supported_dtypes("cpu")
}


def in_sample(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % SAMPLED_PARTS == 0


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def first_sample(name: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The op as a function, and its first float32 sample."""
    torch.manual_seed(0)
    op = ENTRIES[name]
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))

    def call(*args: Any, **kwargs: Any) -> Any:
        return op.op(*args, **kwargs)

    return call, (sample.input, *sample.args), sample.kwargs


def run(backend: str, name: str) -> tuple[Any, Any]:
    """The compiled op's result, and its arguments afterwards (some ops write to them)."""
    call, args, kwargs = first_sample(name)
    torch.manual_seed(1)
    result = torch.compile(call, backend=backend, fullgraph=True)(*args, **kwargs)
    return result, (args, kwargs)


def compare(ours: Any, theirs: Any, name: str) -> None:
    flat_ours, spec_ours = pytree.tree_flatten(ours)
    flat_theirs, spec_theirs = pytree.tree_flatten(theirs)
    assert spec_ours == spec_theirs
    for a, b in zip(flat_ours, flat_theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b)
            assert not isinstance(b, (int, float, complex)) or a == b or (a != a and b != b)
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if not (OLD and name in STRIDES_NOT_TRACED):
            assert a.stride() == b.stride()
        if name not in UNINITIALISED:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True, check_stride=False)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "error:kiln.*:RuntimeWarning")
@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_operator(name: str, request: pytest.FixtureRequest) -> None:
    if not (request.config.getoption("--slow") or in_sample(name)):
        pytest.skip("not in the sample; --slow runs all")
    try:
        expected, expected_args = run("aot_eager", name)
    except Exception as error:
        if name in EXPECTED_FAILURES:
            pytest.skip(EXPECTED_FAILURES[name])
        pytest.skip(f"aot_eager fails too, and expected_failures.py does not list it: {type(error).__name__}")
    torch._dynamo.reset()
    result, args = run("kiln", name)
    compare(result, expected, name)
    compare(args, expected_args, "")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", sorted(EXPECTED_FAILURES))
def test_expected_failure_is_dynamos(name: str, request: pytest.FixtureRequest) -> None:
    if name not in ENTRIES:
        pytest.skip("not in this PyTorch's database")
    if not (request.config.getoption("--slow") or in_sample(name)):
        pytest.skip("not in the sample; --slow runs all")
    with pytest.raises(Exception):  # noqa: B017 - any error of Dynamo's
        run("aot_eager", name)
