# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of f32 by AMX, emulated: three parts of bf16, layouts, odd sizes, rows of run time, and the numbers that parts
cannot hold."""

import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, emulated_amx
from matmul_support import Kernel, StoreEpilogue

from kiln.dialects.schedules.cpu import AmxBf16x3Schedule
from kiln.frontend.options import Options, matmul_precision
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.matmul import (
    Buffers,
    MatmulProblem,
    choose_packed_schedule,
    choose_schedule,
    emit,
    emit_matmul,
    scratch_bytes,
)
from kiln.lowering.cpu.matmul.blocks import float_tiles_schedule
from kiln.lowering.cpu.matmul.tiles import Tiles
from kiln.lowering.cpu.matmul.vendor import vendor_gemm_available
from kiln.lowering.cpu.tune.products import product_schedules

pytestmark = pytest.mark.skipif(
    not (EMULATED and vendor_gemm_available()), reason="a CPU without the other instructions, or PyTorch without MKL"
)

BLOCKS = {"mc": 64, "nc": 64, "kc": 96, "ks": 64}
"""Small blocks, so that there are several of everything."""


def operands(m: int, n: int, k: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A lhs [m, k] whose rows are apart, and a rhs [k, n], stored like that or as [n, k]."""
    lhs = torch.randn(m, k + 3)[:, :k]
    return lhs, torch.randn(n, k + 5)[:, :k].T if kind == "nk" else torch.randn(k, n + 1)[:, :n]


def kernel(m: int | None, lhs: torch.Tensor, rhs: torch.Tensor, blocks: dict) -> Kernel:
    """lhs @ rhs + bias; m None: the number of rows is known when the kernel runs."""
    k, n = rhs.shape

    def problem(m):
        return MatmulProblem((), m, n, k, lhs.stride(), rhs.stride(), "f32")

    with emulated_amx(pytest.MonkeyPatch()):
        strides = (512, 1) if rhs.stride(1) == 1 else (1, 512)  # the rule has a least size
        schedule = float_tiles_schedule(MatmulProblem((), m, 512, 512, (512, 1), strides, "f32"), 256, isa.target())
        assert schedule is not None
        schedule = replace(schedule, **blocks)

        def write(b, buffers, symbols, ctx):
            epilogue = StoreEpilogue(buffers[2], (n,), buffers[3])
            rows = m if m is not None else symbols[0]
            emit_matmul(b, problem(rows), schedule, Buffers(*buffers[:2]), epilogue, ctx)

        return Kernel(["f32"] * 4, int(m is None), scratch_bytes(problem(m), schedule), write)


def check(lhs: torch.Tensor, rhs: torch.Tensor, m: int | None = None, blocks: dict = BLOCKS) -> None:
    """The kernel's error is not above PyTorch's, with one thread and with two. PyTorch's is taken for at least 1.5 units
    in the last place, since that of a single row may by chance be smaller."""
    found = kernel(m, lhs, rhs, blocks)
    bias = torch.randn(rhs.shape[1])
    exact = lhs.double() @ rhs.double() + bias.double()
    for threads in (1, 2):
        out = torch.full(exact.shape, torch.nan)
        found(lhs, rhs, out, bias, symbols=(len(lhs),) if m is None else (), threads=threads)
        if exact.numel():
            own, eager = ((x.double() - exact).norm() / exact.norm() for x in (out, lhs @ rhs + bias))
            assert own <= 1.2 * max(eager, 1.5 * torch.finfo(torch.float32).eps), f"{own:.2e}, PyTorch's {eager:.2e}"


@pytest.mark.parametrize("kind", ["nk", "kn"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (50, 77, 70), (100, 130, 333), (33, 31, 97), (1, 40, 32)])
def test_static_sizes(m: int, n: int, k: int, kind: str) -> None:
    torch.manual_seed(0)
    lhs, rhs = operands(m, n, k, kind)
    check(lhs, rhs, m)


@pytest.mark.parametrize("kind", ["nk", "kn"])
def test_blocks_of_the_rule(kind: str) -> None:
    torch.manual_seed(0)
    lhs, rhs = operands(70, 300, 260, kind)
    check(lhs, rhs, 70, {})


@pytest.mark.parametrize("kind", ["nk", "kn"])
def test_rows_of_run_time(kind: str) -> None:
    torch.manual_seed(0)
    lhs, rhs = operands(130, 100, 150, kind)
    for m in (0, 1, 16, 65, 130):
        check(lhs[:m], rhs)


@pytest.mark.parametrize("kind", ["nk", "kn"])
def test_numbers_that_parts_cannot_hold(kind: str) -> None:
    """Infinities and NaN come out where PyTorch has them, and small numbers are not lost."""
    torch.manual_seed(0)
    lhs, rhs = operands(70, 100, 150, kind)
    check(lhs * 1e-36, rhs * 1e36, 70)
    check(lhs * 1e-20, rhs * 1e-20, 70)
    check((lhs > 0).float(), torch.where(rhs > 0, 1.0, 0.0), 70)
    lhs[3, 5], rhs[6, 7], rhs[2, 66], lhs[66, 100] = torch.inf, -torch.inf, torch.nan, 1e-40
    out = torch.empty(70, 100)
    bias = torch.zeros(100)
    kernel(70, lhs, rhs, BLOCKS)(lhs, rhs, out, bias)
    torch.testing.assert_close(out, lhs @ rhs, equal_nan=True)
    assert out.isnan().any() and out.isinf().any()


def test_large_numbers() -> None:
    """Nothing overflows that does not in f32."""
    lhs, rhs = torch.full((64, 64), 3.4e38), torch.full((64, 64), 1e-3)
    rhs[:, ::2] *= 1e-3
    check(lhs / 64, rhs, 64)
    check(torch.full((64, 64), torch.finfo(torch.float32).max), torch.eye(64), 64)


def test_candidates() -> None:
    """One of the schedules that are tried where the user does not allow it; none for a weight packed before."""
    problem = MatmulProblem((), 128, 768, 768, (768, 1), (1, 768), "f32")
    with emulated_amx(pytest.MonkeyPatch()):
        usual = choose_schedule(problem, isa.target())
        assert usual.kernel == "cpu.gemm.blocked"
        kernels = [s.kernel for s in product_schedules(problem, isa.target(), usual, 128, False)]
        assert kernels.count("cpu.gemm.amx_bf16x3") == 1
        with isa.compiling_for(isa.named("", float_parts=True)):
            assert choose_packed_schedule(problem, isa.target()) is None
    assert isa.named("x86-64-v4", float_parts=True) == isa.named("x86-64-v4")


def test_settings() -> None:
    """By PyTorch's setting for all products, or for those on the CPU; by the option where PyTorch's do not forbid it."""
    products: Any = attrgetter("matmul")(torch.backends.mkldnn)
    before = products.fp32_precision
    keys = set()
    try:
        for general, cpu, expected in (
            ("highest", None, False), ("high", None, True), ("medium", None, True), ("high", "ieee", False),
            ("highest", "bf16", True),
        ):  # fmt: skip
            torch.set_float32_matmul_precision(general)
            if cpu is not None:
                products.fp32_precision = cpu
            assert Options.build().float_parts == expected
            keys.add(matmul_precision())
        assert len(keys) == 5
        torch.set_float32_matmul_precision("highest")
        assert Options.build(options={"tf32": True}).float_parts
    finally:
        torch.set_float32_matmul_precision("highest")
        products.fp32_precision = before


class Block(nn.Module):
    """Projections of one input, a gated unit, norms behind products, a weight [k, n]."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(224, 224) for _ in range(3))
        self.gate, self.up, self.down = nn.Linear(224, 320), nn.Linear(224, 320, bias=False), nn.Linear(320, 224)
        self.norm = nn.LayerNorm(224)
        self.last = nn.Parameter(torch.randn(224, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x + self.q(x) * self.k(x) + self.v(x))
        return self.norm(y + self.down(nn.functional.silu(self.gate(y)) * self.up(y))) @ self.last


@pytest.mark.parametrize("freezing", [False, True])
def test_models(freezing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = []

    def counting(b, problem, schedule, *rest):
        emitted.append(schedule)
        return Tiles(b, problem, schedule, *rest)

    monkeypatch.setattr(emit, "Tiles", counting)
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = Block(), torch.randn(2, 60, 224)
    options: dict[str, Any] = {"fallback": False, "freezing": freezing, "tf32": True}
    with torch.no_grad(), emulated_amx(pytest.MonkeyPatch()):
        compiled = torch.compile(module, backend="kiln", options=options, fullgraph=True)
        out, eager = compiled(x), module(x)
        exact = module.double()(x.double())
    error, base = ((y.double() - exact).norm() / exact.norm() for y in (out, eager))
    assert error <= 1.2 * base
    emitted = [s for s in emitted if isinstance(s, AmxBf16x3Schedule)]
    shared = sum(s.shared for s in emitted)
    assert len(emitted) >= 6 and shared == 5  # the projections of one input, and the gate and its other half
