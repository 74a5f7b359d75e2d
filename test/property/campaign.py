# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A long run over random programs: goes on behind failures, in one process or several."""

import multiprocessing
import os
import traceback
from concurrent.futures import ProcessPoolExecutor

import torch
from compiling import SETTINGS, Setting, run
from families import programs
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from programs import Program
from tally import Tally


def campaign(number: int, graphs: int, jobs: int = 1) -> tuple[Tally, list[str]]:
    """Compare `graphs` programs drawn from the seed `number` with eager; what there was, and the failures as text.

    jobs: processes, each of which draws its share from a seed of its own.
    """
    if jobs == 1:
        return _share(number, graphs)
    total, failures = Tally(number), []
    shares = [graphs * (i + 1) // jobs - graphs * i // jobs for i in range(jobs)]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare, (jobs,)) as pool:
        for tally, failed in pool.map(_share, range(number, number + jobs), shares):
            total.kinds += tally.kinds
            failures += failed
    total.failed = len(failures)
    return total, failures


def _prepare(jobs: int) -> None:
    os.environ["KILN_CACHE"] = "0"
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))


def _share(number: int, graphs: int) -> tuple[Tally, list[str]]:
    tally, failures = Tally(number), []

    @seed(number)
    @settings(
        max_examples=graphs, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs(14), st.sampled_from(SETTINGS))
    def each(program: Program, setting: Setting) -> None:
        is_counted = True
        try:
            is_counted = run(program, setting)
        except Exception as error:
            failures.append(f"{setting}\n{program!r}\n{''.join(traceback.format_exception(error))[-2000:]}")
            tally.failed += 1
            print(failures[-1], flush=True)
        assume(is_counted)
        tally.add(setting.kind)

    each()
    return tally, failures
