# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Limits of the CPU's schedules (`lowering/cpu/choices/*.toml`) beside smaller and larger ones.

    python -m benchmarks.cpu_rules                                # every limit that has cases here
    python -m benchmarks.cpu_rules loops.parallel_units tiles     # some
    python -m benchmarks.cpu_rules --json out.json

A case is a small program, compiled once for each value. Calls take turns in one process. A figure is the least time of
a call with a value, over that with the limit as it is: more than 1 says that the limit as it is is faster. "same": the
value makes no other kernel.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.rules import Rules, rules_of
from kiln.lowering.host.recent_kernels import recent_kernels

NO_AMX = ("amx-",)
NO_VNNI = ("amx-", "avx512vnni", "avxvnni")


@dataclass(frozen=True)
class Case:
    """`make` gives a function and its arguments. without: how the names of instruction sets begin that are not used."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]
    without: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    threads: int = 1


def linear(m: int, n: int, k: int, dtype: str = "float32", order: str = "nk", **more: Any) -> Case:
    """A product with a bias; order of the weight: "nk" or "kn"."""

    def make() -> Any:
        kind = getattr(torch, dtype)
        x, bias = torch.randn(m, k).to(kind), torch.randn(n).to(kind)
        if order == "nk":
            return F.linear, (x, torch.randn(n, k).to(kind), bias)
        return lambda x, w, bias: x @ w + bias, (x, torch.randn(k, n).to(kind), bias)

    return Case(f"{dtype} {m}, {n}, {k} [{order[0]}, {order[1]}]", make, **more)


def integers(m: int, n: int, k: int, **more: Any) -> Case:
    """A product of 8-bit integers with a factor behind it."""

    def make() -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
        x, w = (torch.randint(-9, 9, size, dtype=torch.int8) for size in ((m, k), (n, k)))
        return lambda x, w: torch._int_mm(x, w.t()) * 0.5, (x, w)

    return Case(f"int8 {m}, {n}, {k}", make, **more)


def conv(
    channels: int,
    outputs: int,
    size: tuple[int, int],
    window: int,
    dtype: str = "float32",
    groups: int = 1,
    **more: Any,
) -> Case:
    """A convolution of one channels-last image, and a ReLU."""

    def make() -> Any:
        kind = getattr(torch, dtype)
        x = torch.randn(1, channels, *size).to(kind).to(memory_format=torch.channels_last)
        w = torch.randn(outputs, channels // groups, window, window).to(kind)
        return lambda x, w: F.conv2d(x, w, padding=window // 2, groups=groups).relu(), (x, w)

    return Case(
        f"{dtype} {channels} to {outputs}, {size[0]}x{size[1]}, {window}x{window}, {groups} groups", make, **more
    )


def loop(name: str, function: Callable[..., Any], *sizes: tuple[int, ...], **more: Any) -> Case:
    """A function of f32 tensors of these sizes."""
    return Case(f"{name} of {', '.join('x'.join(map(str, s)) for s in sizes)}", lambda: (
        function, tuple(torch.randn(size) for size in sizes)), **more)  # fmt: skip


def scattered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sums of rows at positions."""
    return x.index_add(0, torch.arange(y.shape[0]) * 7 % x.shape[0], y)


PARTS = {"options": (("tf32", True),)}
TWO = {"threads": 2}
BF, F16 = "bfloat16", "float16"
CASES: dict[str, tuple[tuple[Any, ...], tuple[Case, ...]]] = {
    "products.near_rhs_bytes": (
        (1 << 16, 1 << 20),
        (linear(64, 256, 384), linear(64, 128, 256), linear(64, 512, 448), linear(64, 256, 384, BF)),
    ),
    "products.dot_steps": ((256, 4096), (linear(8, 256, 1024), linear(24, 128, 2048))),
    "products.dot_row_steps": ((1024, 65536), (linear(1, 768, 3072), linear(1, 1024, 16384))),
    "products.dot_block": ((16, 256), (linear(8, 256, 1024), linear(32, 128, 1024), integers(8, 3072, 768))),
    "products.stream_columns": ((1024, 16384), (linear(1, 8192, 768, order="kn"), linear(1, 3072, 768, order="kn"))),
    "products.vendor_block": (
        ((512, 512), (1024, 256), (4096, 4096)),
        (linear(512, 768, 768, order="kn"), linear(2048, 1024, 512, order="kn")),
    ),
    "products.blocked_columns": ((128, 512), (linear(24, 768, 768, order="kn"), linear(64, 768, 768, F16))),
    "products.half_rows": (
        (8, 128),
        (linear(16, 64, 512, F16, "kn"), linear(64, 64, 512, F16, "kn"), linear(96, 128, 768, F16, "kn")),
    ),
    "products.pairs_in_place_rows": (
        (4, 24),
        (
            linear(8, 768, 768, BF, "kn", without=NO_AMX),
            linear(16, 768, 768, BF, "kn", without=NO_AMX),
            linear(24, 3072, 768, BF, "kn", without=NO_AMX),
        ),
    ),
    "products.int8_block": (
        ((256, 256, 192), (1024, 256, 192), (512, 256, 96), (512, 256, 384)),
        (integers(256, 768, 2048, without=NO_VNNI), integers(64, 768, 768, without=NO_VNNI)),
    ),
    "tiles.int8_block": (
        ((512, 256, 256), (2048, 256, 256), (1024, 256, 128), (1024, 256, 512)),
        (integers(256, 768, 2048), integers(64, 3072, 768)),
    ),
    "tiles.packed_steps": (
        (1024, 2048, 16384),
        (
            linear(512, 512, 8192, BF, "kn"),
            linear(64, 1024, 8192, BF, "kn"),
            linear(128, 768, 3072, BF, "kn"),
            linear(512, 1024, 4096, BF, "kn"),
            linear(1024, 768, 3072, BF),
            linear(32, 4096, 4096, BF),
        ),
    ),
    "tiles.sum_steps": ((256, 1024), (linear(128, 768, 3072, BF, "kn"), linear(256, 1024, 2048, BF, "kn"))),
    "tiles.far_sum_steps": ((512, 2048), (linear(1024, 768, 3072, BF, "kn"), linear(2048, 1024, 2048, BF, "kn"))),
    "tiles.block_share": ((0.19, 0.75), (linear(1024, 1024, 2048, BF, "kn"), linear(1024, 768, 3072, BF, "kn"))),
    "tiles.float_columns": (
        (32, 128, 192, 300),
        (
            linear(128, 64, 768, **PARTS),
            linear(128, 96, 768, **PARTS),
            linear(128, 128, 768, **PARTS),
            linear(512, 128, 768, **PARTS),
            linear(128, 192, 768, **PARTS),
            linear(512, 256, 768, **PARTS),
        ),
    ),
    "tiles.parts_share": ((0.25, 0.75), (linear(512, 1024, 1024, **PARTS), linear(256, 768, 3072, **PARTS))),
    "tiles.parts_columns": ((128, 512), (linear(128, 3072, 512, **PARTS), linear(64, 2048, 768, **PARTS))),
    "tiles.far_parts_columns": ((256, 1024), (linear(512, 2048, 1024, **PARTS), linear(256, 1024, 3072, **PARTS))),
    "tiles.split_steps": ((64, 256), (linear(128, 3072, 768, **PARTS), linear(512, 1024, 1024, **PARTS))),
    "convolutions.product_pixels": (
        (4, 16, 32, 64),
        (
            conv(512, 512, (1, 8), 1),
            conv(256, 512, (1, 16), 1),
            conv(512, 128, (1, 20), 1),
            conv(512, 512, (1, 32), 1),
            conv(128, 256, (1, 32), 1),
            conv(512, 512, (1, 49), 1),
        ),
    ),
    "convolutions.row_bytes": (
        (4096, 65536),
        (conv(64, 64, (56, 56), 3), conv(32, 32, (112, 112), 3), conv(64, 64, (56, 200), 3)),
    ),
    "convolutions.tasks": (
        (16, 256),
        (
            conv(512, 512, (7, 7), 3, **TWO),
            conv(64, 64, (4, 200), 3, **TWO),
            conv(256, 256, (14, 14), 3, groups=256, **TWO),
        ),
    ),
    "convolutions.tiles_group": (
        (4, 8, 64),
        (
            conv(32, 32, (28, 28), 3, BF, 8),
            conv(64, 64, (28, 28), 3, BF, 8),
            conv(256, 256, (14, 14), 3, BF, 32),
            conv(128, 128, (56, 56), 3, BF, 32),
            conv(128, 128, (28, 28), 3, BF, 8),
        ),
    ),
    "convolutions.chunk_pixels": (
        (64, 128, 1024),
        (
            conv(64, 64, (56, 56), 3, BF),
            conv(256, 64, (56, 56), 1, BF),
            conv(256, 512, (28, 28), 1, BF),
            conv(256, 256, (14, 14), 3, BF),
        ),
    ),
    "convolutions.unit_pixels": ((128, 2048), (conv(64, 64, (56, 56), 3, BF), conv(128, 128, (28, 28), 3, BF))),
    "convolutions.halo_rows": ((1, 8), (conv(64, 64, (112, 112), 3, BF), conv(32, 32, (112, 112), 5, BF))),
    "convolutions.odd_tile_time": (
        (1.0, 2.0),
        (conv(64, 64, (56, 56), 3, BF), conv(128, 128, (14, 14), 3, BF), conv(64, 64, (20, 20), 3, BF)),
    ),
    "convolutions.copy_share": ((0.125, 1.0), (conv(256, 256, (56, 56), 3, BF), conv(512, 512, (28, 28), 3, BF))),
    "convolutions.copy_bytes": (
        (1 << 18, 1 << 24),
        (conv(512, 64, (16, 512), 3, BF), conv(1024, 64, (8, 1024), 3, BF)),
    ),
    "loops.parallel_units": (
        (16, 256),
        (
            loop("x + row", lambda x, row: x + row, (20, 65536), (65536,), **TWO),
            loop("x + row", lambda x, row: x + row, (100, 8192), (8192,), **TWO),
            loop("exp(x) + row", lambda x, row: x.exp() + row, (33, 8192), (8192,), **TWO),
        ),
    ),
    "loops.piece_units": (
        (1, 64),
        (
            loop("cat, sigmoid", lambda x, y: torch.cat([x, y]).sigmoid(), (20, 8192), (60, 8192), **TWO),
            loop("pad, exp", lambda x: F.pad(x, (0, 0, 3, 3)).exp(), (100, 8192), **TWO),
        ),
    ),
    "loops.unrolled_cost": (
        (6, 12, 48, 96),
        (
            loop("exp", torch.exp, (64, 1024)),
            loop("gelu", F.gelu, (64, 1024)),
            loop("x * y + 1", lambda x, y: x * y + 1, (64, 1024), (64, 1024)),
            loop("tanh(sigmoid)", lambda x: x.sigmoid().tanh(), (64, 1024)),
        ),
    ),
    "loops.streamed_bytes": (
        (1 << 21, 1 << 30),
        (
            loop("x * x", lambda x: x * x, (256, 1024)),
            loop("x * x", lambda x: x * x, (2048, 1024)),
            loop("x * x", lambda x: x * x, (16384, 1024)),
        ),
    ),
    "loops.reduction_cost": (
        (3, 6, 48),
        (
            loop("sum of x * y", lambda x, y: (x * y).sum(-1), (128, 1024), (128, 1024)),
            loop("sum of exp", lambda x: x.exp().sum(-1), (128, 1024)),
            loop("layer norm", lambda x: F.layer_norm(x, (1024,)), (128, 1024)),
        ),
    ),
    "loops.scatter_shared": (
        (2, 256),
        (
            loop("index_add", scattered, (4000, 8), (4000, 8), **TWO),
            loop("index_add", scattered, (4000, 32), (4000, 32), **TWO),
            loop("index_add", scattered, (2000, 6, 32), (2000, 6, 32), **TWO),
        ),
    ),
    "loops.tile_lines": (
        (16, 256),
        (
            loop("x + y.t()", lambda x, y: x + y.t(), (768, 512), (512, 768)),
            loop("x.t()", lambda x: x.t().contiguous(), (2048, 1024)),
        ),
    ),
    "loops.least_columns": ((16, 96), (linear(16, 96, 2048, **TWO), linear(64, 160, 1024, **TWO))),
    "loops.least_rows": ((4, 64), (linear(300, 160, 1024, **TWO), linear(100, 64, 1024, "float32", "kn", **TWO))),
    "loops.whole_rows": (
        (16, 511),
        (
            linear(64, 32, 2048, **TWO),
            linear(90, 96, 1024, "float32", "kn", **TWO),
            linear(300, 96, 1024, "float32", "kn", **TWO),
        ),
    ),
}


@contextmanager
def changed(name: str, value: Any, case: Case) -> Iterator[None]:
    """Kernels made inside are for the CPU of a case, with another value of a limit."""
    group, field = name.split(".")

    def rules(vector_bytes: int) -> Rules:
        found = rules_of(vector_bytes)
        return found if value is None else replace(found, **{group: replace(getattr(found, group), **{field: value})})

    host = isa.host()
    features = tuple(f for f in host.features if not (case.without and f.startswith(case.without)))
    machine = replace(host, features=features, float_parts=dict(case.options).get("tf32", False))
    with patch.object(isa, "host", lambda: machine), patch.object(isa, "rules_of", rules):
        yield


def copy_of(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function with code of its own: what Dynamo has compiled belongs to the code."""

    def call(*arguments: torch.Tensor) -> Any:
        return function(*arguments)

    code = call.__code__.replace(co_name=f"call{number}")
    return FunctionType(code, globals(), code.co_name, None, call.__closure__)


def times(name: str, values: tuple[Any, ...], case: Case, seconds: float) -> dict[str, float | str]:
    """The time of a call with each value over that with the limit as it is."""
    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    torch._dynamo.reset()
    function, arguments = case.make()
    calls: dict[Any, Callable[[], Any]] = {}
    code: dict[Any, list[bytes]] = {}
    for number, value in enumerate((None, *values)):
        with changed(name, value, case):
            recent = recent_kernels()
            recent.clear()  # names of kernels do not tell the limits
            compiled = torch.compile(
                copy_of(function, number), backend="kiln", options={"cache": False, **dict(case.options)}
            )
            compiled(*arguments)
            code[value] = sorted(recent[kernel].object_bytes for kernel in list(recent))
        assert code[value], "a kernel for this CPU"
        if value is None or code[value] != code[None]:
            calls[value] = partial(compiled, *arguments)
    clock = time.thread_time_ns if case.threads == 1 else time.perf_counter_ns
    best = dict.fromkeys(calls, float("inf"))
    compiled_frames = torch._dynamo.utils.counters["frames"]["ok"]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for value, call in calls.items():
            start = clock()
            call()
            best[value] = min(best[value], clock() - start)
    assert torch._dynamo.utils.counters["frames"]["ok"] == compiled_frames, "nothing is compiled while it is timed"
    found: dict[str, float | str] = {"us": round(best[None] / 1000, 1)}
    return found | {str(v): round(best[v] / best[None], 2) if v in calls else "same" for v in values}


def main() -> None:
    """Measures the limits that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="limits, or groups of them")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each case")
    parser.add_argument("--json", help="write the figures to a file")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (values, cases) in CASES.items():
        group, field = name.split(".")
        if given.names and not {name, group} & set(given.names):
            continue
        current = getattr(getattr(isa.host().rules, group), field)
        for case in cases:
            found = times(name, values, case, given.seconds)
            rows.append({"limit": name, "value": current, "case": case.name, "threads": case.threads, **found})
            print(f"{name} = {current}: {case.name}: {found}", flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
