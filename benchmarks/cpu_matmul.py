# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul and attention kernels against PyTorch's, called directly (without torch.compile's call path).

    python benchmarks/cpu_matmul.py                    # everything, one thread
    python benchmarks/cpu_matmul.py --threads 2 --only mm bmm sdpa
    python benchmarks/cpu_matmul.py --only mm --dtype bf16   # products of bf16, the weights in the caches
    python benchmarks/cpu_matmul.py --json out.json

All contestants of a row run interleaved in one process; a figure is the low quantile (1/6) of the rounds,
thread CPU time for one thread and wall time for more. `error` is the largest error against float64 over
PyTorch's own. Leaves: what `choose_schedule` takes, with the vendor's gemm and without (`own`).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test" / "lowering" / "cpu")]

from matmul_support import DTYPES, Kernel, StoreEpilogue

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.attention import (
    AttentionBuffers,
    AttentionProblem,
    attention_scratch_bytes,
    choose_attention_schedule,
    emit_attention,
)
from kiln.lowering.cpu.matmul import Buffers, MatmulProblem, choose_schedule, emit_matmul, scratch_bytes

MM_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MM_SIZES = ((768, 768), (3072, 768), (768, 3072), (2048, 2048))  # (n, k)
BMM = (
    (48, 32, 32, 64),
    (24, 128, 128, 64),
    (24, 128, 64, 128),
    (12, 197, 197, 64),
    (4, 512, 512, 64),
    (4, 512, 64, 512),
)
SDPA = (
    (2, 12, 128, 128, 64),
    (1, 12, 197, 197, 64),
    (1, 12, 512, 512, 64),
    (1, 32, 256, 256, 128),
    (4, 12, 1, 512, 64),
)

Contestants = dict[str, tuple[Callable[[], object], torch.Tensor]]


def matmul_kernel(lhs: torch.Tensor, rhs: torch.Tensor, out: torch.Tensor, threads: int, vendor: bool | None):
    """(call, leaf name) of out = lhs @ rhs, compiled for these shapes and strides."""
    *batch, m, k = lhs.shape
    names = {t: DTYPES[t] for t in (lhs.dtype, out.dtype)}
    problem = MatmulProblem(tuple(batch), m, rhs.shape[-1], k, lhs.stride(), rhs.stride(), names[lhs.dtype])
    schedule = choose_schedule(problem, isa.host(), vendor)

    def emit(b, buffers, symbols, ctx):
        emit_matmul(b, problem, schedule, Buffers(*buffers[:2]), StoreEpilogue(buffers[2], out.stride()[:-1]), ctx)

    kernel = Kernel([names[t.dtype] for t in (lhs, rhs, out)], 0, scratch_bytes(problem, schedule), emit)
    rows, columns = getattr(schedule, "mr", 0), getattr(schedule, "nv", getattr(schedule, "nr", 0))
    tile = f"{rows}x{columns}" if rows else ""
    return kernel.bind([lhs, rhs, out], threads=threads), f"{schedule.kernel} {tile}".strip()


def attention_kernel(q, k, v, out: torch.Tensor, causal: bool, threads: int):
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    problem = AttentionProblem(
        (batch,), heads, k.shape[1], queries, keys, size, v.shape[3], q.stride(), k.stride(), v.stride(),
        size**-0.5, causal,
    )  # fmt: skip
    schedule = choose_attention_schedule(problem, isa.host())

    def emit(b, buffers, symbols, ctx):
        operands = AttentionBuffers(*buffers[:3])
        emit_attention(b, problem, schedule, operands, StoreEpilogue(buffers[3], out.stride()[:-1]), ctx)

    kernel = Kernel(["f32"] * 4, 0, attention_scratch_bytes(problem, schedule), emit, kind="attention")
    return kernel.bind([q, k, v, out], threads=threads)


def cases(
    only: set[str], threads: int, dtype: torch.dtype
) -> Iterator[tuple[str, float, torch.Tensor, Contestants, str]]:
    """(name, floating-point operations, float64 result, contestants with PyTorch first, leaf)."""
    mm = [(m, n, k, layout) for layout in ("nk", "kn") for n, k in MM_SIZES for m in MM_ROWS] if "mm" in only else []
    for m, n, k, layout in mm:
        lhs, rhs = torch.randn(m, k), torch.randn(n, k).mT if layout == "nk" else torch.randn(k, n)
        yield _product(f"mm {layout} {m}x{n}x{k}", lhs.to(dtype), rhs.to(dtype), threads)
    for batch, m, n, k in BMM if "bmm" in only else ():
        for layout in ("nk", "kn"):
            rhs = torch.randn(batch, n, k).mT if layout == "nk" else torch.randn(batch, k, n)
            lhs = torch.randn(batch, m, k, dtype=dtype)
            yield _product(f"bmm {layout} {batch}x{m}x{n}x{k}", lhs, rhs.to(dtype), threads)
    for batch, heads, queries, keys, size in SDPA if "sdpa" in only else ():
        for causal in (False, True) if queries > 1 else (False,):
            q, k, v = (torch.randn(batch, heads, length, size) for length in (queries, keys, keys))
            exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
            out, name = (
                torch.empty_like(q),
                f"sdpa {'causal ' if causal else ''}{batch}x{heads}x{queries}x{keys}x{size}",
            )
            eager = F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            def torch_call(q=q, k=k, v=v, causal=causal):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            calls = {"torch": (torch_call, eager), "kiln": (attention_kernel(q, k, v, out, causal, threads), out)}
            yield name, 4.0 * batch * heads * queries * keys * size / (1 + causal), exact, calls, "flash"


def _product(name: str, lhs: torch.Tensor, rhs: torch.Tensor, threads: int):
    shape = (*lhs.shape[:-1], rhs.shape[-1])
    eager, out, own = (torch.empty(shape, dtype=lhs.dtype) for _ in range(3))
    call, leaf = matmul_kernel(lhs, rhs, out, threads, None)
    calls: Contestants = {"torch": (lambda: torch.matmul(lhs, rhs, out=eager), eager), "kiln": (call, out)}
    if leaf == "vendor":
        calls["own"] = (matmul_kernel(lhs, rhs, own, threads, False)[0], own)
    return name, 2.0 * out.numel() * lhs.shape[-1], lhs.double() @ rhs.double(), calls, leaf


def measure(calls: Contestants, threads: int, rounds: int) -> dict[str, float]:
    """Seconds of each contestant; each round runs all of them, each as often as fills about a millisecond."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    repeats, samples = {}, {name: [] for name in calls}
    for name, (call, _) in calls.items():
        call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-7)))
    for _ in range(rounds):
        for name, (call, _) in calls.items():
            call()
            start = clock()
            for _ in range(repeats[name]):
                call()
            samples[name].append((clock() - start) / repeats[name])
    return {name: sorted(times)[len(times) // 6] for name, times in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=["mm", "bmm", "sdpa"], choices=["mm", "bmm", "sdpa"])
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"], help="of products")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    rows = []
    print(
        f"{'case':32} {'leaf':12} {'torch ms':>9} {'kiln ms':>9} {'GFLOP/s':>8} {'speedup':>8} {'own':>6} {'error':>6}"
    )
    for name, operations, exact, calls, leaf in cases(set(arguments.only), arguments.threads, dtype):
        seconds = measure(calls, arguments.threads, arguments.rounds)
        errors = {n: (result.double() - exact).abs().max().item() for n, (_, result) in calls.items()}
        row = {
            "case": name,
            "leaf": leaf,
            "seconds": seconds,
            "speedup": seconds["torch"] / seconds["kiln"],
            "own": seconds["torch"] / seconds["own"] if "own" in seconds else None,
            "error": max(e for n, e in errors.items() if n != "torch") / max(errors["torch"], 1e-30),
        }
        rows.append(row)
        own = f"{row['own']:6.2f}" if row["own"] else "     -"
        print(
            f"{name:32} {leaf:12} {seconds['torch'] * 1e3:9.3f} {seconds['kiln'] * 1e3:9.3f}"
            f" {operations / seconds['kiln'] / 1e9:8.1f} {row['speedup']:8.2f} {own} {row['error']:6.2f}",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"threads": arguments.threads, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
