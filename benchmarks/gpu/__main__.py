# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One table: time per call, error against float64, CPU time per call, seconds of the first call.

Single operations are timed on the GPU alone (CUDA graphs), models as they are called, with their launches; the JSON
file has both for all.

    python -m benchmarks.gpu --only micro --contenders eager,inductor,kiln --case linear --json results.json
    python -m benchmarks.gpu --only models --seconds 500

A rate is the baseline's time over Kiln's: above 1, Kiln is faster. ``--seconds`` stops before the next case.
"""

import argparse
import copy
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

CONTENDERS = ("eager", "inductor", "max-autotune", "kiln")
SETTINGS: dict[str, tuple[str, str | None, dict[str, bool] | None]] = {
    "inductor": ("inductor", None, None),
    "max-autotune": ("inductor", "max-autotune-no-cudagraphs", None),
    "inductor-graphs": ("inductor", "reduce-overhead", None),
    "kiln": ("kiln", None, None),
    "kiln-tma": ("kiln", None, {"tensor_maps": True}),
    "kiln-graphs": ("kiln", "reduce-overhead", None),
    "kiln-max-autotune": ("kiln", "max-autotune-no-cudagraphs", None),
}
"""Contender -> backend, mode, options."""


def _prepare(name: str, module: torch.nn.Module) -> Callable[..., Any]:
    if name == "eager":
        return module
    backend, mode, options = SETTINGS[name]
    if backend == "inductor":
        return torch.compile(module, fullgraph=True, mode=mode)
    import kiln

    return torch.compile(module, backend=kiln.backend, fullgraph=True, mode=mode, options=options)


def _measure(case: Any, contenders: list[str], rounds: int) -> dict[str, Any]:
    from benchmarks.gpu.measure import call_overhead, interleaved, relative_error, wall_times

    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module, make = case.build()
    wide_inputs = make(generator)
    sets = [wide_inputs, *(make(generator) for _ in range(case.sets - 1))]
    module = module.cuda().to(case.dtype)
    on_device = [[_cast(t.cuda(), case.dtype) for t in inputs] for inputs in sets]
    row: dict[str, Any] = {"case": case.name, "first_s": {}, "error": {}, "us": {}, "spread": {}, "cpu_us": {}}
    row |= {"wall_us": {}, "is_model": case.is_model}
    calls: dict[str, Callable[..., Any]] = {}
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(*(_cast(t, torch.float64) for t in on_device[0]))
        for name in contenders:
            torch._dynamo.reset()
            call = _prepare(name, module)
            start = time.perf_counter()
            try:
                result = call(*on_device[0])
                torch.cuda.synchronize()
            except Exception as error:  # noqa: BLE001 - the table says so
                message = f"{type(error).__name__}: {error}".strip().splitlines()
                row.setdefault("failed", {})[name] = " ".join(message)[:600]
                continue
            row["first_s"][name] = time.perf_counter() - start
            row["error"][name] = relative_error(result, exact)
            row["cpu_us"][name] = call_overhead(call, on_device[0])
            calls[name] = call
            del result
        del exact
        row["wall_us"] = {name: found.us for name, found in wall_times(calls, on_device, rounds=rounds).items()}
        plain = {name: call for name, call in calls.items() if not name.endswith("graphs")}
        for name, found in interleaved(plain, on_device, rounds=rounds).items():
            row["us"][name], row["spread"][name] = found.us, found.spread
    best = row["us"].get("kiln", 0)
    if best and case.bytes_moved:
        row["TB/s"] = case.bytes_moved / best / 1e6
    if best and case.flops:
        row["TFLOP/s"] = case.flops / best / 1e6
    return row


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _line(row: dict[str, Any], contenders: list[str]) -> str:
    us = _times(row)
    cells = [f"{row['case']:34}"]
    cells += [f"{us[c]:10.2f}" if c in us else f"{'-':>10}" for c in contenders]
    ratios = [f"{us[c] / us['kiln']:6.2f}" if c in us and "kiln" in us else f"{'-':>6}" for c in contenders[:-1]]
    cells += ratios
    cells += [f"{row['error'][c]:8.1e}" if c in row["error"] else f"{'-':>8}" for c in ("eager", "kiln")]
    cells += [f"{row['cpu_us'][c]:8.0f}" if c in row["cpu_us"] else f"{'-':>8}" for c in contenders]
    cells += [f"{row['first_s'][c]:6.1f}" if c in row["first_s"] else f"{'-':>6}" for c in contenders]
    rate = [f"{row[k]:.0f} {k}" if k == "TFLOP/s" else f"{row[k]:.2f} {k}" for k in ("TFLOP/s", "TB/s") if k in row]
    return " ".join([*cells, *rate])


def _times(row: dict[str, Any]) -> dict[str, float]:
    """Contender -> microseconds per call: what the table compares."""
    return row["wall_us"] if row["is_model"] else row["us"]


def _summary(rows: list[dict[str, Any]]) -> list[str]:
    """Geometric means of how much faster Kiln is than Inductor, and than the best of the others in each row."""
    lines = []
    for name, group in (("single operations", False), ("models", True)):
        mine = [_times(row) for row in rows if row["is_model"] == group and "kiln" in _times(row)]
        over = [times["inductor"] / times["kiln"] for times in mine if "inductor" in times]
        others = [[t for c, t in times.items() if c in ("eager", "inductor", "max-autotune")] for times in mine]
        best = [min(ts) / times["kiln"] for ts, times in zip(others, mine, strict=True) if ts]
        for title, ratios in (("Inductor", over), ("the best of eager, Inductor and max-autotune", best)):
            if ratios:
                mean = statistics.geometric_mean(ratios)
                lines.append(f"{len(ratios)} {name}, over {title}: {mean:.2f}, least {min(ratios):.2f}")
    return lines


def _header(contenders: list[str]) -> str:
    cells = [
        f"{'us per call':34}",
        *(f"{c:>10.10}" for c in contenders),
        *(f"{'/' + c[:5]:>6}" for c in contenders[:-1]),
    ]
    cells += [f"{'err eag':>8}", f"{'err kiln':>8}", *(f"{'cpu ' + c[:4]:>8}" for c in contenders)]
    return " ".join([*cells, *(f"{'s ' + c[:4]:>6}" for c in contenders)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("micro", "models"), help="single operations, or whole models; default: both")
    parser.add_argument("--case", default="", help="regular expression that a case's name has to match")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="comma-separated; kiln is always there")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case after this time")
    parser.add_argument("--json", default="", help="file for all figures")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU: torch.cuda.is_available() is False", file=sys.stderr)
        return 1
    folder = tempfile.mkdtemp(prefix="kiln-gpu-benchmark-")  # first calls are cold
    os.environ["KILN_FALLBACK"] = "0"  # a graph that Kiln fails on would be timed as eager's
    os.environ["KILN_CACHE"] = "0"
    os.environ.setdefault("TRITON_CACHE_DIR", f"{folder}/triton")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{folder}/inductor")
    from benchmarks.gpu.cases import CASES, MODELS

    contenders = [c for c in options.contenders.split(",") if c and c != "kiln"] + ["kiln"]
    cases = [*(CASES if options.only != "models" else []), *(MODELS if options.only != "micro" else [])]
    begin, rows = time.perf_counter(), []
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n{_header(contenders)}", flush=True)
    for case in cases:
        if not re.search(options.case, case.name):
            continue
        if time.perf_counter() - begin > options.seconds:
            print(f"stopped before {case.name}: {options.seconds:.0f} s are over", flush=True)
            break
        row = _measure(case, contenders, options.rounds)
        rows.append(row)
        print(_line(row, contenders), flush=True)
        for name, reason in row.get("failed", {}).items():
            print(f"  {name} failed: {reason}", flush=True)
        torch.cuda.empty_cache()
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    print("\n".join(_summary(rows)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
