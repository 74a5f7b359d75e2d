# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The operations that are measured, in the sizes that are measured: machine code for sm_90, and a sample of the programs
of each kernel run on the CPU.

Whole, they would take minutes each. The programs of a sample run on the whole tensors; what they write is compared with
eager in float64 on just these rows and columns, and they may write nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_networks import check_code, compiled, machine_code  # noqa: F401 - a fixture

import kiln.runtime.cuda.executor as cuda_executor
from benchmarks.gpu.cases import CASES, Case
from kiln.passes.pipelines import gpu_pipeline

pytest.importorskip("triton")

_UNWRITTEN = 0xA7
"""Of each byte: -4.7e-15 in f32 as in bf16, which none of these operations gives on random inputs."""
_AROUND = 1 << 16
"""Bytes in front of a result and behind it that no program may touch."""
_ROWS = 64
"""What is compared at a time."""
_PERIOD = 4_194_301
"""A prime: random numbers that repeat at this distance, which is no multiple of a row's, differ from row to row."""
_LONG = 1 << 30
"""Floating-point operations of a program from which a sample has few of them."""


_ALIKE = (
    "softmax 4096x4096",
    "softmax 32768x1024",
    "softmax 32768x4096",
    "add+LN 16384x4096",
    "add+LN 8192x8192",
    "RMSNorm 16384x4096",
    "RMSNorm 8192x8192",
    "linear bf16 4096x4096x4096",
)
"""What has the kernel of another one with other sizes; run with --slow."""


@dataclass
class Sample:
    """The programs that ran, of how many, and the memory that they could write."""

    work: int
    generator: torch.Generator
    chosen: Sequence[int] = ()
    programs: int = 0

    def __post_init__(self) -> None:
        self.memory: list[torch.Tensor] = []

    def choose(self, programs: int) -> list[int]:
        """The first, the last, and some between them."""
        count = 3 if self.work > _LONG * programs else 10
        found = {0, programs - 1, *torch.randint(programs, (count - 2,), generator=self.generator).tolist()}
        self.chosen, self.programs = sorted(found), programs
        return list(self.chosen)

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor in memory whose every byte is known, and what is around it."""
        size = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        memory = torch.full((size * dtype.itemsize + 2 * _AROUND,), _UNWRITTEN, dtype=torch.uint8)
        self.memory.append(memory)
        return memory[_AROUND:-_AROUND].view(dtype).as_strided(shape, strides)


def exact(case: Case, module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`exact(rows, columns)`: these of the result, as a matrix, in float64; rows are neighbours.

    The operations are written out, since the module computes all rows or none.
    """
    given = {name: value.double() for name, value in module.named_parameters() if value.dim() == 1}
    kind, *_ = case.name.split()
    x = inputs[0]

    def linear(rows: slice, columns: torch.Tensor) -> torch.Tensor:
        weight = module.get_parameter("weight")[columns].double()
        y = x[rows].double() @ weight.T
        return F.gelu(y + given["bias"][columns]) if case.name.endswith("gelu") else y

    def attention(rows: slice, columns: torch.Tensor) -> torch.Tensor:
        length, size = x.shape[-2:]
        number, first = divmod(rows.start, length)
        q, k, v = (t.reshape(-1, length, size)[number].double() for t in inputs)
        count = rows.stop - rows.start
        scores = q[first : first + count] @ k.T / size**0.5
        if "causal" in case.name:
            scores.masked_fill_(torch.ones(count, length, dtype=torch.bool).triu(first + 1), float("-inf"))
        return (scores.softmax(-1) @ v)[:, columns]

    def by_rows(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda rows, columns: function(*(t[rows].double() for t in inputs))[:, columns]

    width = x.shape[-1]
    return {
        "chain": by_rows(lambda x: torch.sigmoid(torch.relu(x * 2 + 1) * 0.5)),
        "softmax": by_rows(lambda x: torch.softmax(x, -1)),
        "add+LN": by_rows(lambda x, y: F.layer_norm(x + y, (width,), given["weight"], given["bias"])),
        "RMSNorm": by_rows(lambda x: F.rms_norm(x, (width,), given["weight"])),
        "linear": linear,
        "attention": attention,
    }[kind]


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.randn` of large tensors repeats: it would take as long as all the rest."""
    random = torch.randn

    def randn(*shape: Any, generator: torch.Generator | None = None) -> torch.Tensor:
        sizes = torch.Size(shape[0] if isinstance(shape[0], tuple) else shape)
        if sizes.numel() <= _PERIOD:
            return random(sizes, generator=generator)
        base, found = random(_PERIOD, generator=generator), torch.empty(sizes)
        for part in found.view(-1).split(_PERIOD):
            part.copy_(base[: part.numel()])
        return found

    monkeypatch.setattr(torch, "randn", randn)


@pytest.fixture
def sampled(gpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Sample]]:
    """`sampled(work)`: kernels run a sample of their programs from then on, of which all together do so much work."""

    def start(work: int) -> Sample:
        found = Sample(work, torch.Generator().manual_seed(torch.seed() % (1 << 31)))
        monkeypatch.setattr(cuda_executor, "_allocator", lambda: found.empty)
        gpu.sample = found.choose
        return found

    yield start


def own_kernels() -> str:
    """The pipeline in which no library computes products or attention."""
    steps = [step.pass_.spec() for step in gpu_pipeline(arch="sm_90")]
    return ",".join(s.replace("choose-vendor{", "choose-vendor{keep=matmul,attention ") for s in steps)


def parameter(case: Case) -> Any:
    marks = [pytest.mark.slow] if case.name in _ALIKE else []
    return pytest.param(case, id=case.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("case", map(parameter, CASES))
def test_a_sample_of_programs(gpu, machine_code, repeated, sampled, case: Case) -> None:  # noqa: F811 - the fixture
    sample = sampled(case.flops)
    module, make = case.build()
    module = module.to(case.dtype)
    inputs = [x.to(case.dtype) for x in make(sample.generator)]
    with torch.no_grad():
        result: Any = compiled(module, pipeline=own_kernels())(*inputs)
    check_code(gpu, machine_code, 1)
    assert len(gpu.launched) == 1
    found = result.reshape(-1, result.shape[-1])
    assert found.data_ptr() == result.data_ptr()
    bits = {2: torch.int16, 4: torch.int32}[case.dtype.itemsize]
    unwritten = torch.full((case.dtype.itemsize,), _UNWRITTEN, dtype=torch.uint8).view(bits)
    function, written, differences, norms = exact(case, module, inputs), 0, 0.0, 0.0
    for start in range(0, found.shape[0], _ROWS):
        rows = slice(start, min(start + _ROWS, found.shape[0]))
        mask = found[rows].view(bits) != unwritten
        columns = mask.any(0).nonzero().flatten()
        if not columns.numel():
            continue
        mask = mask[:, columns]
        expected = function(rows, columns)[mask]
        differences += (found[rows][:, columns][mask].double() - expected).square().sum().item()
        norms += expected.square().sum().item()
        written += int(mask.sum())
    # What is bf16 is rounded behind the product, the bias and the GELU, by 2^-9 at most each time, of which the GELU makes
    # more where it bends. Of few elements that is the error, of many the mean.
    bound = 1e-6 if case.dtype == torch.float32 else 1.2e-2 if written < 1000 else 4e-3
    assert differences**0.5 < bound * norms**0.5, (differences, norms, written, sample.chosen)
    share = found.numel() * len(sample.chosen) / sample.programs
    # Programs at an end have parts of tiles, and persistent ones one tile more or less.
    is_even = found.numel() % sample.programs == 0 and not gpu.descriptors
    assert written == share if is_even else 0.3 * share < written < 1.7 * share, (written, share, sample.chosen)
    for memory in sample.memory:
        assert bool((memory[:_AROUND] == _UNWRITTEN).all() and (memory[-_AROUND:] == _UNWRITTEN).all())
