# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Transposed and three-dimensional convolutions against float64: phases, windows, layouts, dynamic sizes, targets."""

import pytest
import torch
import torch.nn.functional as F
from conv_support import image_problem
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

import kiln
from kiln.lowering.cpu.conv.window import find_phases, tile_runs

MODULES = {
    (1, True): nn.ConvTranspose1d,
    (2, True): nn.ConvTranspose2d,
    (3, True): nn.ConvTranspose3d,
    (1, False): nn.Conv1d,
    (2, False): nn.Conv2d,
    (3, False): nn.Conv3d,
}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float((result.double() - exact).norm() / exact.norm().clamp_min(1e-300))


def check(module: nn.Module, *inputs: torch.Tensor, dynamic: bool = False, cpu: str = "native") -> None:
    """One kernel, right against float64, with eager's strides, for each of the inputs."""
    module = nn.Sequential(module, nn.ReLU()).eval()
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(
            module, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options={"cpu": cpu, "fallback": False}
        )
        for x in inputs:
            eager, result = module(x), compiled(x)
            exact = module.double()(x.double())
            module.float()
            sizes = [(a, b) for a, b, n in zip(result.stride(), eager.stride(), eager.shape, strict=True) if n > 1]
            assert result.shape == eager.shape and all(a == b for a, b in sizes)
            assert relative_error(result, exact) <= 1.5 * relative_error(eager, exact) + 1.2e-7
        (graph,) = kiln.explain(module, inputs[0]).graphs
        assert [k.kind for k in graph.kernels] == ["conv"]


# sizes of the image; channels, outputs; kernel, stride, padding, output padding, dilation, groups
TRANSPOSED = [
    ((7, 9), 16, 33, 2, 2, 0, 0, 1, 1),
    ((8, 5), 20, 16, 4, 2, 1, 0, 1, 1),
    ((6, 7), 9, 20, 3, 2, 1, 1, 1, 1),
    ((1, 1), 30, 17, 4, 1, 0, 0, 1, 1),
    ((5, 6), 8, 40, (3, 5), (1, 3), (0, 2), (0, 2), (2, 1), 2),
    ((5, 6), 4, 3, (2, 3), (3, 4), 0, (1, 2), 1, 1),  # columns that no element of the window meets
    ((5, 4), 6, 5, 3, 4, 2, 0, 2, 1),  # a stride and a dilation with a common factor
    ((4, 5), 7, 7, 3, 2, 1, 0, 1, 7),
    ((70,), 12, 20, 16, 8, 4, 0, 1, 1),
    ((3, 4, 5), 6, 18, 3, 2, 1, 1, 1, 1),
    ((3, 4, 5), 6, 18, (1, 2, 4), (1, 2, 2), (0, 0, 1), 0, 1, 2),
]


@pytest.mark.parametrize("last", [False, True], ids=["planar", "channels_last"])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed(case, last: bool) -> None:
    torch.manual_seed(0)
    sizes, channels, outputs, *window = case
    kernel, stride, padding, extra, dilation, groups = window
    module = MODULES[len(sizes), True](
        channels * groups, outputs * groups, kernel, stride, padding, extra, groups, dilation=dilation
    )
    x = torch.randn(2, channels * groups, *sizes)
    if last and x.dim() in LAST:
        module, x = module.to(memory_format=LAST[x.dim()]), x.contiguous(memory_format=LAST[x.dim()])
    check(module, x)


SPACE = [
    ((4, 9, 10), 5, 20, 3, 1, 1, 1, 1),
    ((5, 14, 13), 3, 33, (3, 7, 7), (1, 2, 2), (1, 3, 3), 1, 1),
    ((6, 5, 9), 20, 16, (3, 1, 1), (2, 1, 1), (1, 0, 0), 1, 1),
    ((4, 6, 7), 34, 20, 1, 1, 0, 1, 1),
    ((3, 9, 10), 6, 8, (2, 3, 3), (1, 2, 1), (0, 2, 1), (2, 1, 2), 2),
    ((4, 9, 10), 1, 1, 3, 1, 1, 1, 21),
]


@pytest.mark.parametrize("last", [False, True], ids=["planar", "channels_last"])
@pytest.mark.parametrize("case", SPACE, ids=str)
def test_three_dims(case, last: bool) -> None:
    torch.manual_seed(0)
    sizes, channels, outputs, kernel, stride, padding, dilation, groups = case
    module = nn.Conv3d(channels * groups, outputs * groups, kernel, stride, padding, dilation, groups)
    x = torch.randn(2, channels * groups, *sizes)
    if last:
        module, x = module.to(memory_format=LAST[5]), x.contiguous(memory_format=LAST[5])
    check(module, x)


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64"])
def test_other_targets(cpu: str) -> None:
    torch.manual_seed(0)
    check(nn.ConvTranspose2d(6, 21, 3, 2, 1, 1), torch.randn(1, 6, 9, 8), cpu=cpu)
    check(nn.Conv3d(6, 21, 3, padding=1), torch.randn(1, 6, 3, 9, 8), cpu=cpu)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_dynamic_sizes(dim: int) -> None:
    torch.manual_seed(0)
    sizes = [(2, 7, 9, 20), (3, 5, 12, 3), (1, 4, 4, 41)]
    images = [torch.randn(n, 5, *size[3 - dim :]) for n, *size in sizes]
    check(MODULES[dim, True](5, 18, 3, 2, 1, 1), *images, dynamic=True)
    check(MODULES[dim, True](5, 18, 2, 3), *images, dynamic=True)
    check(MODULES[dim, True](5, 18, 3), *images, dynamic=True)  # no padding: its window still reaches out of the image
    if dim == 3:
        check(nn.Conv3d(5, 18, 3, 2, 1), *images, dynamic=True)


def test_strided_image_and_other_epilogue() -> None:
    """A slice is read where it is; the epilogue has the rows of the result, whatever their phase."""
    torch.manual_seed(0)

    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(8, 6, 2, 2)

        def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.up(x[:, 1:9, :, ::2]) + skip.transpose(2, 3))

    module, x, skip = Up().eval(), torch.randn(2, 11, 9, 20), torch.randn(2, 6, 20, 18)
    torch._dynamo.reset()
    with torch.no_grad():
        result = torch.compile(module, backend=kiln.backend, fullgraph=True, options={"fallback": False})(x, skip)
        eager = module(x, skip)
        exact = module.double()(x.double(), skip.double())
    assert relative_error(result, exact) <= 1.5 * relative_error(eager, exact) + 1.2e-7


def test_bf16() -> None:
    torch.manual_seed(0)
    for module, sizes in ((nn.ConvTranspose2d(16, 24, 4, 2, 1), (9, 8)), (nn.Conv3d(16, 24, 3, padding=1), (3, 9, 8))):
        module = nn.Sequential(module, nn.ReLU()).to(torch.bfloat16).eval()
        x = torch.randn(2, 16, *sizes).to(torch.bfloat16)
        x, module = x.contiguous(memory_format=LAST[x.dim()]), module.to(memory_format=LAST[x.dim()])
        torch._dynamo.reset()
        with torch.no_grad():
            result = torch.compile(module, backend=kiln.backend, fullgraph=True, options={"fallback": False})(x)
            exact = module.double()(x.double())
        # Rounded once behind the sums and once behind the bias.
        assert relative_error(result, exact) < torch.finfo(torch.bfloat16).eps / 2


def test_frozen_weights() -> None:
    """Weights that are constants are packed when the model is compiled."""
    torch.manual_seed(0)
    for module, sizes in (
        (nn.ConvTranspose2d(12, 40, 3, 2, 1, groups=2), (9, 8)),
        (nn.Conv3d(12, 40, 3, padding=1, groups=2), (3, 9, 8)),
        (nn.Conv3d(21, 21, 3, padding=1, groups=21), (3, 9, 8)),
        (nn.Conv3d(12, 20, 1), (3, 9, 8)),
    ):
        module, x = module.eval(), torch.randn(2, module.in_channels, *sizes)
        torch._dynamo.reset()
        with torch.no_grad():
            options = {"freezing": True, "fallback": False}
            result = torch.compile(module, backend=kiln.backend, fullgraph=True, options=options)(x)
            eager = module(x)
            exact = module.double()(x.double())
        assert relative_error(result, exact) <= 1.5 * relative_error(eager, exact) + 1.2e-7


@settings(max_examples=300, derandomize=True)
@given(
    st.integers(1, 30), st.integers(1, 7), st.integers(1, 5), st.integers(0, 5), st.integers(0, 4), st.integers(1, 4),
    st.integers(1, 9),
)  # fmt: skip
def test_phases_of_a_row(
    width: int, window: int, stride: int, padding: int, extra: int, dilation: int, mr: int
) -> None:
    """Each column of the result belongs to one tile, which multiplies what meets it there and nothing else."""
    columns = (width - 1) * stride + dilation * (window - 1) + 1 + extra - 2 * padding
    assume(columns > 0 and extra < max(stride, dilation))
    problem = image_problem(
        1, 1, 1, 16, 1, width, 1, columns, (1, window), (1, stride), (0, padding), (1, dilation),
        (1, 1, 1, 1), (1, 1, 1, 1),
        transposed=True,
    )  # fmt: skip
    met = {}
    for phase in find_phases(problem):
        runs = tile_runs(problem, phase, mr)
        assert runs is not None
        for run in runs:
            for start in range(run.first, run.last, mr):
                for r in range(run.count):
                    column = (start + r) * stride + phase.remainder
                    assert column not in met
                    met[column] = {
                        (phase.first + t * phase.step, start + r + phase.reach(t))
                        for t, (low, high) in enumerate(run.valid)
                        if low <= r < high
                    }
    expected = {
        j: {(z, w) for w in range(width) for z in range(window) if w * stride - padding + z * dilation == j}
        for j in range(columns)
    }
    assert met == expected
