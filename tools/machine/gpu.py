# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How fast an NVIDIA GPU is, by kernels that Kiln compiles and by cuBLAS's products.

Times are those of replays of CUDA graphs, by the GPU's clock. What cannot be timed by itself is taken from the machine
that Kiln knows for this architecture.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch

from kiln.errors import KilnError
from kiln.functions import Fn
from kiln.lowering.gpu.dot.machine import Machine, machine
from kiln.lowering.gpu.tune.measure import replay_times
from kiln.tools.machine.facts import Fact, Facts, Tell, origin, write

__all__ = ["measure_gpu", "write_gpu"]

_SECONDS = 0.2
"""For each time that is taken."""
_ROWS, _ROW = 1024, 1 << 18
"""Programs that all read one row, and its elements of 16 bits: more than a first-level cache holds, and less than the
second one."""
_SMALLEST = 3530.0
"""Nanoseconds of the smallest kernel that an H200 takes one after another, by this program (2026-11-23)."""


def write_gpu(path: Path, facts: Facts) -> None:
    """The file of this GPU."""
    write(path, Machine, torch.cuda.get_device_name(), _arch(), facts)


def measure_gpu(tell: Tell = lambda _: None) -> Facts:
    """The facts by the names of `Machine`'s fields; about a minute. Raises KilnError where there is no GPU."""
    if not torch.cuda.is_available() or torch.version.hip is not None:
        raise KilnError("there is no NVIDIA GPU to measure")
    by, like = origin("triton"), machine(_arch())
    properties = cast(Any, torch.cuda.get_device_properties)(0)
    version = torch.cuda.get_device_capability()
    facts: Facts = {
        "sms": Fact(properties.multi_processor_count, "CUDA"),
        "shared_bytes": Fact(properties.shared_memory_per_block_optin, "CUDA"),
        "l2_bytes": Fact(properties.L2_cache_size, "CUDA"),
        "tensor_maps": Fact(version >= (9, 0), "CUDA programming guide: from compute capability 9.0 on"),
        "warpgroups": Fact(version[0] == 9, "PTX ISA: wgmma for sm_90a alone"),
        "float8": Fact(version >= (8, 9), "CUDA programming guide: from compute capability 8.9 on"),
    }
    with torch.no_grad():
        facts |= _products(properties.multi_processor_count, by, like, tell)
        facts |= _moves(properties.multi_processor_count, by, tell) | _starts(by, like, tell)
    for name in ("sums_rate", "term_time"):
        facts.setdefault(name, Fact(getattr(like, name), f"as {like.name}'s"))
    return facts


def _arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _products(sms: int, by: str, like: Machine, tell: Tell) -> Facts:
    """Multiply-adds a nanosecond of a multiprocessor by cuBLAS, and what share of it there is with other types."""
    n = 8192
    tell("fma_rate")
    whole = n**3 / _nanoseconds(_product(torch.bfloat16, n))
    facts = {"fma_rate": Fact(_digits(whole / sms), f"{by}: cuBLAS, bf16, {n} cubed")}
    makers: dict[str, Callable[[int], Callable[[], object]]] = {
        "f64_share": lambda n: _product(torch.float64, n),
        "f32_share": lambda n: _product(torch.float32, n),
        "tf32_share": lambda n: _product(torch.float32, n, tf32=True),
        "int8_share": _product_of_int8,
        "float8_share": _product_of_float8,
    }
    for name, make in makers.items():
        tell(name)
        size = n // 2
        try:
            rate = size**3 / _nanoseconds(make(size))
        except (RuntimeError, AttributeError):
            facts[name] = Fact(getattr(like, name), f"as {like.name}'s: there is no such product here")
            continue
        facts[name] = Fact(_digits(rate / whole), f"{by}: cuBLAS, {size} cubed")
    return facts


def _moves(sms: int, by: str, tell: Tell) -> Facts:
    """Bytes a nanosecond, by kernels of Kiln: a copy in memory; rows that lie in the second-level cache."""
    tell("memory_rate")
    x = torch.randn(1 << 28, dtype=torch.bfloat16, device="cuda")
    copied = 4 * x.numel() / _nanoseconds(_compiled(lambda x: x + 1, x))
    tell("load_rate")
    row = torch.randn(_ROW, dtype=torch.bfloat16, device="cuda")
    scale = torch.randn(_ROWS, dtype=torch.bfloat16, device="cuda")
    read = 2 * row.numel() * _ROWS / _nanoseconds(_compiled(lambda r, s: (r * s[:, None]).amax(1), row, scale))
    return {
        "memory_rate": Fact(_digits(copied), f"{by}: x + 1 of {2 * x.numel() >> 20} MiB"),
        "load_rate": Fact(_digits(read / sms), f"{by}: rows of {2 * _ROW >> 10} KiB from the second-level cache"),
    }


def _starts(by: str, like: Machine, tell: Tell) -> Facts:
    """What products and kernels take besides their loops: in proportion to the time of the smallest kernel."""
    tell("kernel_time")
    x = torch.randn(32, 32, dtype=torch.bfloat16, device="cuda")
    smallest = _nanoseconds(_compiled(lambda x: x.relu(), x))
    source = f"{by}: {like.name}'s, by the smallest kernel: {smallest:.0f} ns, of an H200 {_SMALLEST:.0f}"
    names = ("kernel_time", "library_time", "second_kernel_time", "round_time", "sums_time")
    return {name: Fact(_digits(getattr(like, name) * smallest / _SMALLEST), source) for name in names}


def _nanoseconds(run: Callable[[], object]) -> float:
    def once() -> None:
        run()

    return 1e9 * replay_times([once], _SECONDS)[0].least


def _compiled(call: Fn[torch.Tensor, torch.Tensor], *inputs: torch.Tensor) -> Callable[[], object]:
    import kiln

    torch._dynamo.reset()
    options: dict[str, Any] = {"fallback": False, "cache": False}
    compiled = torch.compile(call, backend=kiln.backend, dynamic=False, options=options)
    compiled(*inputs)
    return lambda: compiled(*inputs)


def _product(dtype: torch.dtype, n: int, tf32: bool = False) -> Callable[[], object]:
    a, b = (torch.randn(n, n, dtype=dtype, device="cuda") for _ in range(2))

    def run() -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        try:
            torch.mm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return run


def _product_of_int8(n: int) -> Callable[[], object]:
    a, b = (torch.randint(-128, 128, (n, n), dtype=torch.int8, device="cuda") for _ in range(2))
    return lambda: torch.ops.aten._int_mm(a, b.t())


def _product_of_float8(n: int) -> Callable[[], object]:
    a, b = (torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch.ops.aten._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _digits(value: float) -> float:
    """Three digits, and more than 0."""
    return max(float(f"{value:.3g}"), 1e-3)
