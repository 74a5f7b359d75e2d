# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Warm starts: CPU time until the first result in a new process that finds everything on the disk.

``python -m benchmarks.warm resnet18 llama`` compares Inductor and Kiln, both with ``caching_precompile`` as well, and
Dynamo with a backend that compiles nothing, the floor without it. A round is one process of each, in turn; figures are
medians. ``torch.compile`` and the first call are counted, imports and a first trivial function not.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.cold import LIMIT, ROOT, cpu_seconds

__all__ = ["WAYS", "measure_warm"]

#: Name -> (contender, whether with ``caching_precompile``).
WAYS = {
    "Dynamo alone": ("dynamo", False),
    "Inductor": ("inductor", False),
    "Kiln": ("kiln", False),
    "Inductor, precompiled": ("inductor", True),
    "Kiln, precompiled": ("kiln", True),
}


def measure_warm(case: str, small: bool, rounds: int, ways: Iterable[str] = tuple(WAYS)) -> dict[str, float | str]:
    """Median CPU seconds per name of WAYS; the last line of the log where a process failed."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        for number in range(rounds + 1):
            for name in samples:
                contender, precompiled = WAYS[name]
                found = _process(
                    Path(folder) / str(list(WAYS).index(name)),
                    [case, contender, *["--precompiled"] * precompiled],
                    small,
                )
                if isinstance(found, str):
                    failures[name] = found
                elif number:  # the first fills the caches
                    samples[name].append(found)
    medians = {name: statistics.median(times) for name, times in samples.items() if times}
    return {name: failures[name] if name in failures else medians[name] for name in samples}


def _process(folder: Path, arguments: list[str], small: bool) -> float | str:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"), "KILN_CACHE_DIR": str(folder / "kiln")}
    environment = {**os.environ, **caches, "KILN_CACHE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "benchmarks.warm", "--one", *arguments, *["--small"] * small]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        return (done.stderr.strip() or "no message").splitlines()[-1]
    return json.loads(done.stdout.splitlines()[-1])


def _one(case: str, contender: str, precompiled: bool, small: bool) -> float:
    """This process's CPU seconds."""
    import torch

    from benchmarks.case import built
    from benchmarks.cases import CASES
    from benchmarks.contenders import CONTENDERS

    torch._dynamo.config.caching_precompile = precompiled
    torch.set_num_threads(1)
    module, inputs = built(CASES[case], "f32", small)

    def prepare(fn: Any) -> Any:
        if contender == "dynamo":
            return torch.compile(fn, backend="eager", fullgraph=True)
        return CONTENDERS[contender].prepare(fn)

    with torch.no_grad():
        expected = module(*inputs)
        prepare(_trivial)(torch.randn(64))
        before = cpu_seconds()
        result = prepare(module)(*inputs)
        taken = cpu_seconds() - before
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    if precompiled:
        torch.compiler.save_cache_artifacts()
    return taken


def _trivial(x: Any) -> Any:
    return x + 1


def _main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of warm starts")
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--small", action="store_true", help="the small sizes of the models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="which columns")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--precompiled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        case, contender = arguments.cases
        print(json.dumps(_one(case, contender, arguments.precompiled, arguments.small)))
        return
    print(f"| CPU seconds | {' | '.join(arguments.ways)} |\n|{'---|' * (len(arguments.ways) + 1)}", flush=True)
    for case in arguments.cases:
        found = measure_warm(case, arguments.small, arguments.rounds, arguments.ways).values()
        cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in found]
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    _main()
