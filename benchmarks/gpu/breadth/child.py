# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One job in a process of its own, which a mistake may end."""

import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.breadth.comparison import Comparison, NotRun
from benchmarks.gpu.breadth.contender import compiled, counts, reports, to
from benchmarks.gpu.breadth.entry import DTYPES, Entry, Inputs, Job
from benchmarks.gpu.breadth.families import entries_of
from benchmarks.gpu.breadth.parameters import randomize
from benchmarks.gpu.breadth.row import Row

__all__ = ["Settings", "main"]


@dataclass(frozen=True)
class Settings:
    """The same for all jobs: where they run, what compiles them, and in which module their entries stand.

    dynamic: sizes are unknown to the compiler, and other calls have one more sample.
    """

    device: str = "cuda"
    backend: str = "kiln"
    options: dict[str, Any] = field(default_factory=dict)
    entries: str = ""
    dynamic: bool = False


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
    begin = time.perf_counter()
    dtype, is_step = DTYPES[job.dtype], job.kind == "train"
    module, inputs = _built(entry, job.batch, job, settings.device, dtype)
    makers = [inputs] if is_step else [inputs, inputs]
    if settings.dynamic:
        makers = [inputs, _built(entry, job.batch + 1, job, settings.device, dtype)[1]]
    made = [make(torch.Generator().manual_seed(seed)) for seed, make in enumerate(makers)]
    sets = [to(arguments, settings.device, dtype) for arguments in made]
    ready = time.perf_counter()
    comparison = Comparison(module, sets, dtype, row, is_step, entry.input_gradients, settings.device)
    comparison.reference()
    row["times"] = {"model": ready - begin, "reference": time.perf_counter() - ready}
    _poison(settings.device)
    with reports(settings.backend) as found:
        try:
            comparison.compare(compiled(module, settings.backend, settings.options, settings.dynamic))
            if row["status"] == "wrong" and row["share"] > 1:
                _compare_captured(comparison, settings)
        except torch._dynamo.exc.TorchDynamoException as error:
            if settings.backend == "kiln" and not isinstance(error, torch._dynamo.exc.BackendCompilerFailed):
                _check_dynamo(comparison)
            raise
        finally:
            row.update(counts(found))
            row["breaks"] = sum(torch._dynamo.utils.counters["graph_break"].values())
            row["times"]["processor"] = time.process_time()


def _built(entry: Entry, batch: int, job: Job, device: str, dtype: torch.dtype) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    try:
        with torch.device(device):
            module, inputs = entry.build(batch)
        module = module.to(device)
        randomize(module)
        module = module.to(dtype)
    except Exception as error:
        traceback.print_exc()
        raise NotRun(f"cannot be made: {_message(error)}") from error
    module.train(job.kind == "train")
    _switch_off_chance(module)
    return module, inputs


def _switch_off_chance(module: nn.Module) -> None:
    """No dropout and no stochastic depth: two streams of random numbers cannot be compared."""
    for part in module.modules():
        name = type(part).__name__
        if isinstance(part, torch.nn.modules.dropout._DropoutNd) or name == "StochasticDepth":
            part.p = 0.0
        elif name.endswith("DropPath"):  # timm's and those of the transformers package
            part.drop_prob = 0.0


def _compare_captured(comparison: Comparison, settings: Settings) -> None:
    """A model that asks whether it is compiled may compute something else then: what Dynamo captures of it is what a
    backend has to agree with. A row that is right beside that says so; any other stays as it is."""

    def captured(module: nn.Module) -> Callable[..., Any]:
        torch._dynamo.reset()
        return compiled(module, "eager", {})

    row: Row = {}
    again = replace(comparison, row=row, through=captured)
    again.reference()
    torch._dynamo.reset()
    again.compare(compiled(again.module, settings.backend, settings.options, settings.dynamic))
    if row["status"] == "right":
        comparison.row.update(row | {"reference": f"{row['reference']}, as Dynamo captures it"})


def _check_dynamo(comparison: Comparison) -> None:
    """Raises NotRun if the model does not compile with any backend."""
    torch._dynamo.reset()
    try:
        comparison.compare(compiled(comparison.module, "eager", {}))
    except Exception as error:
        raise NotRun(f"Dynamo fails: {_message(error)}") from error


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
