# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs whose trace AOTAutograd's cache cannot keep, and failures of that cache: right results, and a reason."""

import functools

import pytest
import torch
from torch._functorch._aot_autograd import autograd_cache
from torch.nn.attention.flex_attention import flex_attention

import kiln
from kiln.frontend import aot
from kiln.frontend.cache.serialized_artifact import Reference, SerializedArtifact
from kiln.frontend.options import Options
from kiln.frontend.report import collect

from .conftest import assert_same

pytestmark = pytest.mark.usefixtures("caches")


def reports_of(fn, *args, **settings):
    """Compiled twice, as two processes would: each time as eager does. Returns the reports."""
    found = []
    for _ in range(2):
        torch._dynamo.reset()
        with collect() as reports:
            assert_same(torch.compile(fn, backend="kiln", **settings)(*args), fn(*args))
        found += reports
    return found


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.nonzero(x),
        lambda x: torch.argwhere(x),
        lambda x: torch.unique(x),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0) * 2,
        lambda x: torch.masked.cumsum(x, 1, mask=x > 0),
        lambda x: torch.min(x, torch.tensor(0.25)),
        lambda x: x + torch.ones(200, 200)[:4, :6],
    ],
    ids=["nonzero", "argwhere", "unique", "mask", "masked_select", "masked.cumsum", "min", "constant"],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("bundled", [False, True], ids=["", "precompile"])
def test_sizes_known_at_run_time(fn, dynamic, bundled):
    """2.11 and 2.12 assert that code which has a key at all has one that is not None."""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, caching_precompile=bundled):
        assert all(report.executor == "kiln" for report in reports_of(fn, torch.randn(4, 6), dynamic=dynamic))


def test_flex_attention():
    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))

    def attend(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) / 64)

    assert all(report.cache.startswith("off: ") for report in reports_of(attend, q, k, v))


def gradients(fn, x):
    x = x.clone().requires_grad_()
    fn(x).backward()
    return x.grad


def test_training():
    """AOTAutograd makes an entry of forward and backward when the latter is compiled."""

    def loss(x):
        return (x + torch.ones(200, 200)[:4, :6]).square().sum()

    x = torch.randn(4, 6)
    for _ in range(2):
        torch._dynamo.reset()
        assert_same(gradients(torch.compile(loss, backend="kiln"), x), gradients(loss, x))


def test_code_without_a_key_has_no_attribute_for_it():
    def run(inputs):
        return inputs

    code = SerializedArtifact(run, None, Options(), reason="a test")
    assert not hasattr(code, "_fx_graph_cache_key")
    kept = SerializedArtifact(run, Reference("inference", 1, "ab" * 32, None, False, []), Options())
    # AOTAutograd's wrappers copy what an instance has.
    for function in (kept, functools.wraps(kept)(lambda inputs: kept(inputs))):
        assert Reference.of_text(function._fx_graph_cache_key).key == "ab" * 32


def failing(*_, **__):
    raise AssertionError("a cache of another PyTorch")


def loss(x):
    return torch.tanh(x * 3).sum()


@pytest.mark.parametrize("hook", ["make_entry", "generate_guards_expression", "save"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_failing_cache_keeps_nothing(hook, dynamic, monkeypatch):
    monkeypatch.setattr(autograd_cache.AOTAutogradCache, hook, staticmethod(failing))
    x = torch.randn(4, 6)
    reports = reports_of(loss, x, dynamic=dynamic)
    assert [report.executor for report in reports] == ["kiln", "kiln"]
    assert reports[0].trace == "not kept: AssertionError: a cache of another PyTorch"
    assert "not kept: AssertionError" in str(kiln.explain(lambda x: loss(x) + 1, x))
    torch._dynamo.reset()
    with collect() as reports:
        assert_same(gradients(torch.compile(loss, backend="kiln", dynamic=dynamic), x), gradients(loss, x))
    assert reports[0].trace == "not kept: AssertionError: a cache of another PyTorch"


def test_a_cache_that_fails_while_it_is_asked(monkeypatch):
    """The graph is traced again, without it."""
    monkeypatch.setattr(autograd_cache.AOTAutogradCache, "try_load", staticmethod(failing))
    reports = reports_of(loss, torch.randn(4, 6))
    assert {report.trace for report in reports} == {"not kept: AssertionError: a cache of another PyTorch"}


def test_an_error_of_the_graph_is_raised_as_it_is(monkeypatch):
    """It comes again without the cache, and the user sees the first."""
    errors = [ValueError("first"), ValueError("second")]

    def raising(*_, **__):
        raise errors.pop(0)

    monkeypatch.setattr(aot, "_dispatch", raising)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="first"):
        torch.compile(loss, backend="kiln")(torch.randn(4, 6))
    assert not errors


def test_code_that_is_asked_for_is_not_left_out(monkeypatch):
    """``aot_compile`` must not return what it cannot save."""
    monkeypatch.setattr(autograd_cache.AOTAutogradCache, "make_entry", staticmethod(failing))
    with (
        torch._dynamo.config.patch(enable_aot_compile=True),
        pytest.raises(Exception, match="a cache of another PyTorch"),
    ):
        torch.compile(loss, backend="kiln", fullgraph=True).aot_compile(((torch.randn(4, 6),), {}))


def test_rewrite_that_fails(monkeypatch):
    """A defect of a rewrite ahead of the import costs speed alone, or is an error where the user asked for errors."""

    def fails(*args):
        raise ValueError("no such window")

    monkeypatch.setattr(aot, "share_size_operands", fails)
    monkeypatch.setattr(aot, "write_no_log_softmax", fails)
    w, x = torch.randn(3, 6, requires_grad=True), torch.randn(4, 6)

    def loss(x, w):
        return torch.nn.functional.cross_entropy(x @ w.T, torch.tensor([0, 2, 1, 1]))

    with pytest.warns(RuntimeWarning, match="a rewrite of it failed: ValueError: no such window"):
        (report,) = reports_of(lambda x: torch.softmax(x, -1), x)[:1]
    assert report.executor == "kiln"
    torch._dynamo.reset()
    with pytest.warns(RuntimeWarning, match="no such window"):
        torch.compile(loss, backend="kiln")(x, w).backward()
    found, w.grad = w.grad, None
    loss(x, w).backward()
    torch.testing.assert_close(found, w.grad)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no such window"):
        torch.compile(loss, backend="kiln", options={"fallback": False})(x, w)
