# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs whose AOTAutograd result is in PyTorch's cache: not traced again, and never taken for another graph."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache
from torch._inductor.codecache import FxGraphCache, FxGraphHashDetails

import kiln.frontend.cache
from kiln.frontend.cache import autograd_cache as kiln_autograd_cache
from kiln.frontend.cache.compiled_graphs import graph_cache
from kiln.frontend.patched_attributes import patched_attributes
from kiln.frontend.report import collect

from .conftest import assert_same

pytestmark = pytest.mark.usefixtures("caches")


def run(fn, *args, **settings):
    """Compile as another process would; returns (result, what the cache did for each graph)."""
    torch._dynamo.reset()
    with collect() as reports:
        result = torch.compile(fn, backend="kiln", **settings)(*args)
    return result, [report.cache for report in reports]


def f(x, w):
    return torch.relu(x @ w + 1).sum(-1), x.transpose(0, 1)


def test_a_known_graph_is_not_traced(kinds):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    for expected in ("stored", "loaded"):
        result, did = run(f, x, w)
        assert did == [expected]
        assert_same(result, f(x, w))
    assert kinds == ["inference"]


def test_code_that_is_gone_is_made_again(kinds):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    graph_cache().clear()
    result, did = run(f, x, w)
    assert did == ["stored"]
    assert_same(result, f(x, w))
    assert run(f, x, w)[1] == ["loaded"]
    assert kinds == ["inference"] * 2


def test_training(kinds):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 2))
    x = torch.randn(4, 6, requires_grad=True)

    def step(model):
        model.zero_grad()
        x.grad = None
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss.detach(), x.grad, *(p.grad.clone() for p in model.parameters())

    expected = step(model)
    for _ in range(2):
        torch._dynamo.reset()
        assert_same(step(torch.compile(model, backend="kiln")), expected)
    assert sorted(kinds) == ["backward", "forward"]


def test_dynamic_sizes(kinds):
    def g(x):
        return (x * 2).reshape(-1), x.shape[0] + 1, torch.softmax(x, -1)

    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(g, backend="kiln", dynamic=True, fullgraph=True)
        for n in (4, 9, 17):
            x = torch.randn(n, n + 3)
            assert_same(compiled(x), g(x))
    assert kinds == ["inference"]


def test_guards_of_a_traced_graph_hold():
    """Reshaping needs to know that the size is even: a graph from the cache is not called with another."""

    def g(x):
        return (x.reshape(2, -1) if x.shape[0] % 2 == 0 else x.reshape(1, -1)).sum(-1)

    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(g, backend="kiln", dynamic=True)
        for n in (8, 7, 12, 5):
            x = torch.randn(n)
            assert_same(compiled(x), g(x))


def test_mutated_inputs(kinds):
    def g(x, y):
        y.add_(x)
        return y, x.view(-1), None, 3

    for _ in range(2):
        x, y = torch.randn(3, 4), torch.randn(3, 4)
        expected = y + x
        result, _ = run(g, x, y)
        assert result[0] is y
        torch.testing.assert_close(y, expected)
        assert result[1].data_ptr() == x.data_ptr()
        assert result[2:] == (None, 3)
    assert kinds == ["inference"]


def test_inputs_that_share_memory_are_another_graph():
    def g(x, y):
        x.add_(1)
        return x * y

    def inputs(is_shared):
        base = torch.arange(8.0)
        return (base[:6], base[2:]) if is_shared else (base[:6].clone(), base[2:].clone())

    for _ in range(2):
        for is_shared in (False, True):
            expected, given = inputs(is_shared), inputs(is_shared)
            assert_same(run(g, *given)[0], g(*expected))
            assert_same(given, expected)


def test_elements_of_constants_are_in_the_key():
    x = torch.randn(2, 3)
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]):

        def g(x, values=values):
            return x * torch.tensor(values) + torch.tensor([True, False, True])

        for _ in range(2):
            assert_same(run(g, x)[0], g(x))


def test_modes_are_in_the_key():
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    run(f, x, w)
    assert run(f, x, w, options={"fast_math": True})[1] == ["stored"]
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            result, did = run(f, x, w)
            assert did == ["stored"]
            assert_same(result, f(x, w), rtol=2e-2, atol=2e-2)
    assert run(f, x, w)[1] == ["loaded"]


def test_off(kinds):
    x, w = torch.randn(5, 7), torch.randn(7, 3)
    before = counters["aot_autograd"]["autograd_cache_saved"]
    for _ in range(2):
        assert run(f, x, w, options={"cache": False})[1] == ["off"]
    assert kinds == ["inference"] * 2
    assert counters["aot_autograd"]["autograd_cache_saved"] == before


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (autograd_cache, "AOTAutogradCacheDetails"),
        (codecache, "FxGraphHashDetails"),
        (FxGraphCache, "load_with_key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_a_private_hook_graphs_are_traced_each_time(owner, name, kinds, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "kiln.frontend.cache.autograd_cache_hooks", raising=False)
    monkeypatch.delattr(kiln.frontend.cache, "autograd_cache_hooks", raising=False)
    monkeypatch.delattr(owner, name)
    kiln_autograd_cache._hooks.cache_clear()
    try:
        x, w = torch.randn(5, 7), torch.randn(7, 3)
        with caplog.at_level("INFO", logger="kiln"):
            for expected in ("stored", "loaded"):
                result, did = run(f, x, w)
                assert did == [expected]
                assert_same(result, f(x, w))
        assert kinds == ["inference", "inference"]
        assert name in caplog.text
    finally:
        kiln_autograd_cache._hooks.cache_clear()


class Unasked(FxGraphHashDetails):
    """Makes keys without the part for which Kiln's class stands in."""

    def __init__(self, *_):
        self.number = 1


@pytest.mark.parametrize(("details", "told"), [(Unasked, ""), (object, "no part that is Inductor's")])
def test_without_its_settings_in_the_key_nothing_is_kept(details, told, kinds, monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "kiln.frontend.cache.autograd_cache_hooks", raising=False)
    monkeypatch.delattr(kiln.frontend.cache, "autograd_cache_hooks", raising=False)
    monkeypatch.setattr(autograd_cache, "AOTAutogradCacheDetails", details)
    kiln_autograd_cache._hooks.cache_clear()
    try:
        x, w = torch.randn(5, 7), torch.randn(7, 3)
        with caplog.at_level("INFO", logger="kiln"):
            for _ in range(2):
                assert_same(run(f, x, w)[0], f(x, w))
        assert kinds == ["inference", "inference"]
        assert told in caplog.text
    finally:
        kiln_autograd_cache._hooks.cache_clear()


def test_what_stands_in_goes_again():
    class Owner:
        @staticmethod
        def name():
            return "before"

    with pytest.raises(ZeroDivisionError), patched_attributes((Owner, "name", staticmethod(lambda: "meanwhile"))):
        assert Owner.name() == Owner().name() == "meanwhile"
        raise ZeroDivisionError
    assert Owner.name() == Owner().name() == "before"
    with (
        pytest.raises(AttributeError, match="Owner has no other"),
        patched_attributes((Owner, "name", 1), (Owner, "other", 2)),
    ):
        pass
    assert Owner.name() == "before"


START = """
import sys, torch
value = torch.randn(5, 7)
with torch.no_grad():
    result = torch.compile(lambda x: torch.relu(x) * 2, backend="kiln")(value)
assert torch.equal(result, torch.relu(value) * 2)
print([name for name in ("torch._inductor.ir", "torch_mlir") if name in sys.modules])
"""


def test_a_start_imports_no_lowering_that_it_does_not_need(tmp_path):
    """Inductor's is never needed, Kiln's by the first process alone, or for the files that debugging asks for."""
    folders = {"KILN_CACHE_DIR": str(tmp_path / "kiln"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")}
    script = tmp_path / "start.py"
    script.write_text(START)
    for debug, expected in (("0", "['torch_mlir']"), ("0", "[]"), ("1", "['torch._inductor.ir', 'torch_mlir']")):
        # With TORCH_COMPILE_DEBUG, PyTorch writes files about AOTAutograd, by means of Inductor, and Kiln its stages.
        environment = {**os.environ, **folders, "KILN_CACHE": "1", "TORCH_COMPILE_DEBUG": debug}
        environment["TORCH_COMPILE_DEBUG_DIR"] = str(tmp_path)
        command = [sys.executable, str(script)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == expected
    assert list(tmp_path.glob("torch_compile_debug/*/torchinductor/*.log"))
