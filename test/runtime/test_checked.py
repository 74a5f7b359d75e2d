# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution: right kernels pass, planted bugs are found and named, and a folder runs the kernel again."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch.utils._python_dispatch import TorchDispatchMode

import kiln
import kiln.runtime.executor as executor
from kiln.dialects import parse
from kiln.dialects.kiln import KernelOp
from kiln.errors import BackendOptionError, CheckError
from kiln.frontend.options import Options
from kiln.lowering.host import recent_kernels
from kiln.runtime.checked.checker import LaunchChecker
from kiln.runtime.checked.reference import Reference
from kiln.tools.kiln_check import main

TARGETS = ["cpu", "tt-cpu"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No kernel of another test is used again."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    monkeypatch.setattr(recent_kernels, "_by_cpu", {})
    monkeypatch.setenv("KILN_CACHE_DIR", str(tmp_path / "cache"))
    yield
    torch._dynamo.reset()


def compiled(model: Any, target: str = "cpu", check: bool | str = True, **options: Any) -> Callable[..., Any]:
    dynamic = options.pop("dynamic", None)
    chosen = {"check": check, "fallback": False, "cache": False, **({} if target == "cpu" else {"target": target})}
    return torch.compile(model, backend=kiln.backend, dynamic=dynamic, options={**chosen, **options})


def test_modes_do_not_see_what_references_compute(
    checkers: list[LaunchChecker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch runs a graph's first call in a mode that looks at each op, which takes longer than small ops do."""
    seen: list[Any] = []

    class Looking(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    evaluate = Reference.evaluate

    def looked_at(*args: Any) -> Any:
        with Looking():
            return evaluate(*args)

    monkeypatch.setattr(Reference, "evaluate", looked_at)
    compiled(lambda x: x.exp())(torch.randn(8))
    assert checkers[0].checked == 1 and not seen


def plant(monkeypatch: pytest.MonkeyPatch, kernel: str, pattern: str, wrong: str, count: int = 1) -> list[str]:
    """A bug in the code of kernels whose name holds `kernel`; returns the names of those that have it."""
    put, planted = KernelOp.put_code, list[str]()

    def wrong_code(self: KernelOp, module: Any) -> Any:
        text, found = re.subn(pattern, wrong, module.operation.get_asm(), count=count)
        if kernel not in self.symbol or not found or '"tt.func"(' in text:
            return put(self, module)
        planted.append(self.symbol)
        with module.context:
            return put(self, parse(text))

    monkeypatch.setattr(KernelOp, "put_code", wrong_code)
    return planted


# ---------------------------------------------------------------------------------------------------- right kernels


class Block(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.norm, self.lift = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.heads = 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.lift(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(mixed.transpose(1, 2).flatten(2))


def convolutions() -> nn.Module:
    layers = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
    ]
    return nn.Sequential(*layers, nn.GroupNorm(2, 8), nn.SiLU())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", TARGETS)
def test_right_kernels_pass(target: str, dtype: torch.dtype, checkers: list[LaunchChecker]) -> None:
    """Forward and backward graphs."""
    model, x = Block().to(dtype), torch.randn(2, 9, 24, dtype=dtype)
    y = compiled(model, target)(x)
    torch.testing.assert_close(y, model(x), rtol=3e-2, atol=3e-2)
    y.float().square().sum().backward()
    assert len(checkers) == 2 and all(c.checked > 2 and not c.skipped for c in checkers)
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("target", TARGETS)
def test_right_convolutions_pass(target: str, checkers: list[LaunchChecker]) -> None:
    model, x = convolutions(), torch.randn(2, 3, 13, 15)
    compiled(model, target)(x).square().sum().backward()
    assert len(checkers) == 2 and all(c.checked > 2 and not c.skipped for c in checkers)


def test_freezing_packs_constants_which_are_unpacked(checkers: list[LaunchChecker]) -> None:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    with torch.no_grad():
        compiled(model, freezing=True)(torch.randn(64, 64))
    assert any(constant.layout for constant in checkers[0].plan.constants)
    assert checkers[0].checked > 0 and not checkers[0].skipped


@pytest.mark.parametrize("target", TARGETS)
def test_dynamic_sizes(target: str, checkers: list[LaunchChecker]) -> None:
    run = compiled(lambda x: (F.softmax(x, -1) @ x.mT, x.cumsum(1)), target, dynamic=True)
    for rows in (5, 8, 33):
        run(torch.randn(rows, 7))
    assert len(checkers) == 1 and checkers[0].checked >= 9


@pytest.mark.parametrize("dynamic", [False, True])
def test_operands_that_are_read_backwards(dynamic: bool, checkers: list[LaunchChecker]) -> None:
    run = compiled(lambda x: x.flip(0).cumsum(1), dynamic=dynamic)
    for rows in (5, 8) if dynamic else (5,):
        run(torch.randn(rows, 7))
    assert checkers[0].checked and not checkers[0].skipped


def test_a_folder_of_a_kernel_that_reads_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it read lies forwards in the folder."""
    with monkeypatch.context() as patched:
        plant(patched, "sum", r"0\.000000e\+00 : f32", "1.0e-3 : f32", count=0)
        with pytest.raises(CheckError) as caught:
            compiled(lambda x, y: (x.flip(0) * y).sum(1))(torch.randn(40, 33), torch.randn(40, 33))
        assert main([caught.value.folder]) == 1
    assert main([caught.value.folder]) == 0 and main([caught.value.folder, "--target=tt-cpu"]) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_roundings_of_nearly_equal_numbers_are_alike(target: str, checkers: list[LaunchChecker]) -> None:
    """They do not cancel in a sum, nor in a recurrence, whose gate is rounded in the same way at each step."""

    def mean(x: torch.Tensor, y: torch.Tensor) -> Any:
        scaled = x * y
        return scaled, scaled.float().mean(0)

    x = (1 + 0.01 * torch.randn(1200, 32)).bfloat16()
    compiled(mean, target)(x, torch.full((32,), 117.3, dtype=torch.bfloat16))

    def decayed(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def combine(a: Any, b: Any) -> Any:
            return a[0] * b[0], b[0] * a[1] + b[1]

        return associative_scan(combine, (gate.sigmoid(), x), 0, combine_mode="generic")[1]

    compiled(decayed, target, dynamic=False)(torch.full((512, 8), 5.0).half(), torch.randn(512, 8).half())
    assert all(c.checked and not c.skipped for c in checkers)


@pytest.mark.parametrize("target", TARGETS)
def test_weights_of_attention_are_rounded_where_its_result_is_not(target: str, checkers: list[LaunchChecker]) -> None:
    """What follows takes the result in f32; the weights are still operands of a product of 16 bits."""

    def gated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5) * gate.sigmoid()

    compiled(gated, target)(*torch.randn(4, 8, 4, 49, 120).bfloat16().unbind())
    assert checkers[0].checked and not checkers[0].skipped


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_are_written(target: str, checkers: list[LaunchChecker]) -> None:
    """The reference reads what was there before."""

    def step(x: torch.Tensor, index: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2).add_(1)
        table = torch.zeros(10, 4).index_add(0, index, y)
        return x[:, :4] + table[0]

    x, expected = torch.randn(5, 6), torch.empty(0)
    index, y = torch.tensor([3, 0, 3, 9]), torch.randn(4, 4)
    copy = x.clone()
    expected = step(copy, index, y)
    torch.testing.assert_close(compiled(step, target)(x, index, y), expected)
    torch.testing.assert_close(x, copy)
    assert checkers[0].checked and not checkers[0].skipped


@pytest.mark.parametrize("target", TARGETS)
def test_random_numbers_and_integers(target: str, checkers: list[LaunchChecker]) -> None:
    def draw(x: torch.Tensor) -> Any:
        kept = F.dropout(x, 0.5, training=True)
        return kept, x.argmax(-1), x > 0, (x * 10).to(torch.int32) // 3, x.sort(-1)

    compiled(draw, target)(torch.randn(6, 40))
    assert checkers[0].checked and not checkers[0].skipped


def test_a_graph_from_the_cache_is_checked(checkers: list[LaunchChecker]) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        compiled(lambda x: x.sin() @ x, cache=True)(torch.ones(4, 4))
    assert [c.checked > 0 for c in checkers] == [True, True]


def test_without_the_option_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No IR in the plan, and no more source in the program that runs it."""
    plans: list[tuple[Any, bool]] = []
    write = executor.write_program

    def record(plan: Any, parts: Any, layout: Any, **given: Any) -> Any:
        program = write(plan, parts, layout, **given)
        plans.append((plan, "before(" in program.source or "after(" in program.source))
        return program

    monkeypatch.setattr(executor, "write_program", record)
    for check in (False, True):
        torch._dynamo.reset()
        compiled(lambda x: x.sin() @ x, check=check)(torch.ones(4, 4))
    assert [(bool(plan.references), shown) for plan, shown in plans] == [(False, False), (True, True)]


# ----------------------------------------------------------------------------------------------------- planted bugs


def normed(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (33,)).relu()


def product(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ x.mT)


def total(x: torch.Tensor) -> torch.Tensor:
    return x.exp().sum(0)


def moved(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[1:], x[:1]], 0).mT.contiguous()


def largest(x: torch.Tensor) -> torch.Tensor:
    return (x - 5).amax(1)


BUGS: dict[str, tuple[Callable[..., Any], str, str, str]] = {
    "sign": (normed, "layer_norm", r"arith\.subf", "arith.addf"),
    "count of a mean": (normed, "layer_norm", r"3\.300000e\+01", "3.200000e+01"),
    "start of a sum": (total, "sum", r"0\.000000e\+00 : f32", "1.0e-3 : f32"),
    "start of a maximum": (largest, "amax", r"0xFF800000 : f32", "0.0 : f32"),
    "factor": (product, "mm", r"arith\.constant (5\.000000e-01) : f32", "arith.constant 5.001e-01 : f32"),
}


@pytest.mark.parametrize("bug", list(BUGS))
@pytest.mark.parametrize("target", TARGETS)
def test_planted(bug: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, kernel, pattern, wrong = BUGS[bug]
    planted = plant(monkeypatch, kernel, pattern, wrong, count=0)
    with pytest.raises(CheckError) as caught:
        compiled(function, target)(torch.randn(40, 33))
    assert caught.value.kernel in planted
    assert any(Path(__file__).name in line for line in caught.value.lines) and caught.value.ops


def test_a_folder_runs_the_kernel_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patched:
        plant(patched, "sum", r"0\.000000e\+00 : f32", "1.0e-3 : f32", count=0)
        with pytest.raises(CheckError) as caught:
            compiled(total)(torch.randn(40, 33))
        folder = caught.value.folder
        assert main([folder]) == 1 and "elements are off" in capsys.readouterr().out
    assert f"kiln.tools.kiln_check {folder}" in str(caught.value)
    assert main([folder]) == 0 and main([folder, "--target=tt-cpu"]) == 0
    assert main([folder, "--stored"]) == 1
    assert main([folder + "-none"]) == 2 and "holds no kernel" in capsys.readouterr().err


def test_a_warning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "sum", r"0\.000000e\+00 : f32", "1.0e-3 : f32", count=0)
    run = compiled(total, check="warn")
    with pytest.warns(RuntimeWarning, match="computes something else than its IR says"):
        run(torch.randn(40, 33))
    run(torch.randn(40, 33))


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Options.build(None, {"check": value}).check for value in (True, False, "error", "warn")]
    assert found == ["error", "", "error", "warn"]
    with pytest.raises(BackendOptionError, match="'check' must be True, False, 'error' or 'warn'"):
        Options.build(None, {"check": "warning"})
    for text, check in (("1", "error"), ("warn", "warn"), ("0", "")):
        monkeypatch.setenv("KILN_CHECK", text)
        assert Options.build().check == check


def test_a_reference_without_operands_is_where_the_results_are() -> None:
    text = """module {
      func.func @main() -> tensor<4xf32> {
        %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
        %0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
            outs(%e : tensor<4xf32>) {
        ^bb0(%o: f32):
          %i = linalg.index 0 : index
          %j = arith.index_cast %i : index to i32
          %f = arith.sitofp %j : i32 to f32
          linalg.yield %f : f32
        } -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }
    }"""
    assert Reference(text).evaluate([], [])[0].value.tolist() == [0, 1, 2, 3]
    assert Reference(text).evaluate([], [], "meta")[0].value.device.type == "meta"


def test_numbers_of_the_ir_meet_tensors_of_another_device() -> None:
    text = """module {
      func.func @main(%x: tensor<4xf32>) -> (tensor<4xi64>, tensor<4xf32>) {
        %m = arith.constant 31 : i64
        %f = arith.constant 2.5 : f32
        %e = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xi64>
        %g = "kiln.empty"() {shape = affine_map<() -> (4)>} : () -> tensor<4xf32>
        %0:2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
            affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
            ins(%x : tensor<4xf32>) outs(%e, %g : tensor<4xi64>, tensor<4xf32>) {
        ^bb0(%a: f32, %o: i64, %p: f32):
          %l = math.log %a : f32
          %i = arith.fptosi %l : f32 to i64
          %j = arith.minsi %i, %m : i64
          %k = arith.maxnumf %l, %f : f32
          linalg.yield %j, %k : i64, f32
        } -> (tensor<4xi64>, tensor<4xf32>)
        return %0#0, %0#1 : tensor<4xi64>, tensor<4xf32>
      }
    }"""
    there = Reference(text).evaluate([torch.empty(4, device="meta")], [])
    assert [x.value.device.type for x in there] == ["meta", "meta"]
    here = Reference(text).evaluate([torch.tensor([1.0, 2.0, 8.0, 1e30])], [])
    assert [x.value.tolist() for x in here] == [[0, 0, 2, 31], pytest.approx([2.5, 2.5, 2.5, 69.07755])]


@pytest.mark.parametrize("target", TARGETS)
def test_memory_of_sizes_that_a_pad_rounds_up(target: str) -> None:
    weight = torch.randn(5, 4)

    def padded(x: torch.Tensor) -> torch.Tensor:
        return (F.pad(x, (0, 0, 0, -x.shape[0] % 3)) @ weight).exp()

    function = torch.compile(padded, backend="kiln", dynamic=True, options={"target": target, "fallback": False})
    for rows in (8, 7):  # of 7, a remainder without a sign makes 7, which is less than is there
        x = torch.randn(rows, 5, requires_grad=True)
        results = function(x), padded(x)
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        grads = [torch.autograd.grad(result.sum(), x)[0] for result in results]  # of the saved result
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
