# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One job in a process of its own, which a mistake may end."""

import faulthandler
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.breadth.contender import Arguments, compiled, counts, reports, run, snapshot, step, to, widened
from benchmarks.gpu.breadth.entry import DTYPES, Entry, Job
from benchmarks.gpu.breadth.families import entries_of
from benchmarks.gpu.breadth.judge import Finding, Values, difference, judge
from benchmarks.gpu.breadth.parameters import randomize
from benchmarks.gpu.breadth.row import Row

__all__ = ["Settings", "main"]


@dataclass(frozen=True)
class Settings:
    """The same for all jobs: where they run, what compiles them, and in which module their entries stand."""

    device: str = "cuda"
    backend: str = "kiln"
    options: dict[str, Any] = field(default_factory=dict)
    entries: str = ""


class NotRun(Exception):
    """Nothing to compare: no model, or no result of eager's."""


def main(job: Job, settings: Settings, results: Connection, log: str, limit: float) -> None:
    """Send the row of `job`; what is printed goes to the file `log`, and where the job is shortly before `limit`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    faulthandler.dump_traceback_later(max(1.0, limit - 2))
    begin = time.perf_counter()
    row: Row = {}
    try:
        entry = entries_of(settings.entries)[job.entry]
        _job(job, entry, settings, row)
    except NotRun as error:
        row |= {"status": "not run", "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - the row says so
        traceback.print_exc()
        row |= {"status": "crashed" if _is_fatal(error) else "failed", "reason": _message(error)}
    results.send(row | {"seconds": time.perf_counter() - begin})
    results.close()
    sys.stdout.flush()
    os._exit(0)  # teardown of a context that another kernel has harmed may hang


def _job(job: Job, entry: Entry, settings: Settings, row: Row) -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_num_threads(1)
    dtype = DTYPES[job.dtype]
    module, inputs = _built(entry, job, settings.device, dtype)
    make_step = job.kind == "train"
    sets = [to(_made(inputs, seed), settings.device, dtype) for seed in ((0,) if make_step else (0, 1))]
    references = _references(module, sets, dtype, make_step, row)
    _poison(settings.device)
    with reports(settings.backend) as found:
        try:
            _compare(module, sets, references, make_step, dtype, settings, row)
        finally:
            row.update(counts(found))  # type: ignore[typeddict-item]
            row["breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())


def _built(entry: Entry, job: Job, device: str, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    try:
        with torch.device(device):
            module, inputs = entry.build(job.batch)
        module = module.to(device)
        randomize(module)
        module = module.to(dtype)
    except Exception as error:
        traceback.print_exc()
        raise NotRun(f"cannot be made: {_message(error)}") from error
    module.train(job.kind == "train")
    for part in module.modules():  # dropout would compare two streams of random numbers
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) or type(part).__name__ in ("StochasticDepth",):
            part.p = 0.0  # type: ignore[assignment]
    return module, inputs


def _made(inputs: Any, seed: int) -> Arguments:
    return inputs(torch.Generator().manual_seed(seed))


def _references(
    module: nn.Module, sets: list[Arguments], dtype: torch.dtype, make_step: bool, row: Row
) -> list[tuple[Values, Values]]:
    """(eager's results, exact ones) for each set of arguments."""

    def results(dtype: torch.dtype) -> list[Values]:
        copied = widened(module, dtype)
        device = next(module.parameters()).device.type
        given = [to(arguments, device, dtype) for arguments in sets]
        return [step(copied, copied, a) if make_step else run(copied, a) for a in given]

    try:
        eager = results(dtype)
    except Exception as error:
        traceback.print_exc()
        raise NotRun(f"eager fails: {_message(error)}") from error
    row["reference"] = "float64"
    try:
        exact = results(torch.float64)
    except torch.OutOfMemoryError as error:
        raise NotRun(f"reference: {_message(error)}") from error
    except Exception:  # noqa: BLE001 - some models name float32
        traceback.print_exc()
        row["reference"] = "float32"
        try:
            exact = results(torch.float32)
        except Exception as error:
            raise NotRun(f"reference fails: {_message(error)}") from error
    return list(zip(eager, exact, strict=True))


def _compare(
    module: nn.Module,
    sets: list[Arguments],
    references: list[tuple[Values, Values]],
    make_step: bool,
    dtype: torch.dtype,
    settings: Settings,
    row: Row,
) -> None:
    """Calls on the first arguments, the first, the second and the first again: each is judged."""
    call = compiled(module, settings.backend, settings.options)
    before = snapshot(module, sets)
    worst, first, recompiles = Finding(), None, 0
    row |= {"repeats": True, "difference": 0.0}
    for number, index in enumerate((0, 0) if make_step else (0, 0, 1, 0)):
        graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        found = step(call, module, sets[index]) if make_step else run(call, sets[index])
        if settings.device == "cuda":
            torch.cuda.synchronize()
        if number:
            recompiles += torch._dynamo.utils.counters["stats"]["unique_graphs"] - graphs
        eager, exact = references[index]
        current = judge(found, eager, exact, dtype)
        if current.reason and not worst.reason:
            worst = Finding(
                f"call {number}: {current.reason}", current.where, current.error, current.eager_error, current.share
            )
        elif current.share > worst.share and not worst.reason:
            worst = current
        if first is None:
            first = {name: value.clone() for name, value in found.items()}
        elif index == 0 and first.keys() == found.keys() and not worst.reason:
            row["repeats"] &= all(_same_bits(first[name], found[name]) for name in first)
            apart = difference(first, found, exact)
            row["difference"] = max(row["difference"], apart)
    reason = worst.reason or _unstable(row["difference"], references[0], dtype)
    if not reason and not make_step:
        written = [name for name, value in snapshot(module, sets).items() if not _same_bits(value, before[name])]
        reason = f"written to: {', '.join(written[:4])}" if written else ""
    row |= {"status": "wrong" if reason else "right", "reason": reason, "recompiles": recompiles}
    row |= {"where": worst.where, "error": worst.error, "eager_error": worst.eager_error, "share": worst.share}


def _unstable(apart: float, reference: tuple[Values, Values], dtype: torch.dtype) -> str:
    """Calls may differ by the order in which sums are made: by as much as eager is off."""
    eager, exact = reference
    limit = 2 * difference(eager, exact, exact) + 8 * torch.finfo(dtype).eps
    return f"calls differ by {apart:.2e} (eager's error {limit / 2:.1e})" if apart > limit else ""


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)) and torch.equal(
        torch.isnan(first), torch.isnan(second)
    )


def _poison(device: str) -> None:
    """Fill the memory that the allocator will hand out with NaN: what a kernel leaves unwritten shows, where the
    results of eager would be found otherwise."""
    if device != "cuda":
        return
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    sizes = [min(1 << 30, free // 8)] * 2 + [1 << 20] * 64 + [16 << 20] * 16
    blocks = [torch.full((size,), 255, dtype=torch.uint8, device=device) for size in sizes]
    torch.cuda.synchronize()
    del blocks


def _is_fatal(error: Exception) -> bool:
    """CUDA's errors stay: the process is of no more use."""
    text = str(error)
    return "CUDA error" in text or "illegal memory access" in text or "misaligned address" in text


def _message(error: BaseException) -> str:
    """The error in one line, and where in Kiln or in the model's package it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else ""
    return " ".join(f"{type(error).__name__}: {error}".split())[:500] + place
