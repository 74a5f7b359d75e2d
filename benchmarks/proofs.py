# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proofs about the kernels of the GPU's models, compiled for an H100 without one: nothing runs.

python -m benchmarks.proofs [--only WORD] [--minutes N] [--out FILE.json] [--breadth]

For each model of `benchmarks.gpu` (with `--breadth` for each architecture of `benchmarks.gpu.breadth`, in bf16): how
many kernels there are, how many properties of them are proved, which are refuted, and which are not known. The exit
status is 1 where one is refuted or a model does not compile. The same command goes on with what FILE lacks.
"""

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch_mlir import ir

import kiln
import kiln.frontend.native as native
from benchmarks.gpu.breadth.lines import about_run
from kiln.dialects.kiln import KernelOp
from kiln.frontend.options import Options
from kiln.frontend.patched_attributes import patched_attributes
from kiln.frontend.report import collect
from kiln.passes.lower_triton_ir import LowerTritonIR
from kiln.runtime.plan import Plan

Build = Callable[[], tuple[nn.Module, Sequence[Any] | Mapping[str, Any], bool]]


@dataclass
class Row:
    """One model. refuted: findings; unknown: how many, by what was to be proved; error: why it did not compile."""

    model: str
    kernels: int = 0
    proved: int = 0
    refuted: list[str] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


def _zeros(plan: Plan, constants: object, options: Options) -> Callable[[Sequence[Any]], list[Any]]:
    """In place of a runner: results of the right shapes. Sizes must be known."""

    def run(inputs: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        for output in plan.outputs:
            if output.tensor is None:
                made.append(output.value)
                continue
            buffer = plan.buffers[output.tensor.buffer]
            shape: Any = buffer.shape if output.tensor.shape is None else output.tensor.shape
            strides: Any = buffer.strides if output.tensor.strides is None else output.tensor.strides
            dtype = getattr(torch, output.tensor.dtype or buffer.dtype)
            made.append(torch.empty_strided(shape, strides, dtype=dtype).zero_())
        return made

    return run


def row_of(name: str, build: Build) -> Row:
    """Compiles a model, forward and if it is trained backward, and counts."""
    row, start = Row(name), time.monotonic()
    options = {"check": "warn", "target": "tt-cpu", "cache": False, "fallback": False}
    torch._dynamo.reset()
    with (
        collect(every_thread=True) as reports,
        patched_attributes(*_PLACES),
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        try:
            model, inputs, trains = build()
            run = torch.compile(model, backend=kiln.backend, dynamic=False, options=options)
            with torch.set_grad_enabled(trains):
                out = run(**inputs) if isinstance(inputs, Mapping) else run(*inputs)
                if trains:
                    torch.autograd.backward([t.float().sum() for t in _tensors(out) if t.requires_grad])
        except Exception as error:  # noqa: BLE001 - the other models are still of interest
            row.error = f"{type(error).__name__}: {error}"[:500]
    for report in reports:
        if report.proved is not None:
            row.kernels += report.proved.kernels
            row.proved += report.proved.proved
            for line in report.proved.unknown:  # "@kernel: bounds unknown: ..."
                check = line.split(": ")[1].removesuffix(" unknown")
                row.unknown[check] = row.unknown.get(check, 0) + 1
    row.refuted = [str(w.message) for w in told if " refuted: " in str(w.message)]
    row.seconds = round(time.monotonic() - start, 1)
    return row


def _leave(_: LowerTritonIR, kernel: KernelOp) -> None:
    """The kernel stays as it is; the passes behind take it for one with machine code."""
    kernel.operation.attributes["object"] = ir.StringAttr.get("none")


_PLACES = [(native, "make_runner", _zeros), (LowerTritonIR, "run_on", _leave)]
"""Graphs are compiled up to their kernels in Triton IR, and calls return zeros."""


def _tensors(tree: object) -> list[torch.Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _models() -> dict[str, Build]:
    from benchmarks.gpu.cases import CASES, MODELS

    def build(case: Any) -> tuple[nn.Module, Sequence[Any], bool]:
        model, make = case.build()
        given = make(torch.Generator().manual_seed(0))
        inputs = [x.to(case.dtype) if x.is_floating_point() else x for x in given]
        return model.to(case.dtype).eval(), inputs, False

    return {case.name: lambda case=case: build(case) for case in [*CASES, *MODELS]}


def _architectures() -> dict[str, Build]:
    from benchmarks.gpu.breadth.families import entries_of

    def build(entry: Any, trains: bool) -> tuple[nn.Module, Any, bool]:
        model, make = entry.build(2)
        given = make(torch.Generator().manual_seed(0))

        def cast(x: Any) -> Any:
            return x.bfloat16() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

        inputs = {k: cast(x) for k, x in given.items()} if isinstance(given, Mapping) else [cast(x) for x in given]
        return model.bfloat16().train(trains), inputs, trains

    found: dict[str, Build] = {}
    for entry in entries_of("").values():
        for trains in (False, True) if entry.trains else (False,):
            name = f"{entry.name} {'train' if trains else 'forward'}"
            found[name] = lambda entry=entry, trains=trains: build(entry, trains)
    return found


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    """JSON with a line for each model."""
    totals = {
        "models": len(rows),
        "not compiled": sum(bool(r["error"]) for r in rows),
        **{k: sum(r[k] for r in rows) for k in ("kernels", "proved")},
        "refuted": sum(len(r["refuted"]) for r in rows),
        "unknown": sum(sum(r["unknown"].values()) for r in rows),
    }
    head = json.dumps({**about_run("cpu", ""), "target": "sm_90", "totals": totals}, indent=1)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{head[:-2]},\n "models": [\n{lines}\n ]\n}}\n'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression for names")
    parser.add_argument("--minutes", type=float, default=9.0, help="begin no model after this time")
    parser.add_argument("--out", type=Path, default=Path("build/proofs.json"))
    parser.add_argument("--breadth", action="store_true", help="the architectures of benchmarks.gpu.breadth")
    chosen = parser.parse_args()
    rows = json.loads(chosen.out.read_text())["models"] if chosen.out.exists() else []
    done, end = {row["model"] for row in rows}, time.monotonic() + 60 * chosen.minutes
    for name, build in (_architectures() if chosen.breadth else _models()).items():
        if name in done or not re.search(chosen.only, name) or time.monotonic() > end:
            continue
        row = row_of(name, build)
        rows.append(asdict(row))
        print(f"{name}: {row.kernels} kernels, {row.proved} proved, {len(row.refuted)} refuted, "
              f"{sum(row.unknown.values())} not known, {row.seconds} s {row.error}", flush=True)  # fmt: skip
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(_text(rows))
    return int(any(row["refuted"] or row["error"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
