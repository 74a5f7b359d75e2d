# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes what graphs become at each stage, kernels included, as text: ``scripts/compare_kernels`` compares two commits.

    python -m benchmarks.stages FOLDER [--targets cpu,cpu-amx,gpu] [--models bert,...] [--dtypes f32,bf16] [--fuzz 20]

A file is ``FOLDER/TARGET/PROGRAM/GRAPH.STAGE``. Nothing is made machine code of, and no GPU is needed. A graph that
fails at a stage has the error's text in that stage's file.
"""

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import kiln
from benchmarks.case import built
from benchmarks.fuzz.execute import Setting, attempt
from benchmarks.fuzz.generate import generate
from benchmarks.model_cases import MODEL_CASES
from kiln.dialects import create_context, parse, to_text
from kiln.errors import KilnError
from kiln.frontend.report.capture import CapturedGraph, capturing
from kiln.lowering.cpu import isa
from kiln.passes import PassManager, parse_pipeline

__all__ = ["main"]

MODELS = ("bert", "llama", "t5", "vit", "resnet50", "mobilenet_v2", "convnext", "swin", "unet", "lstm")

_AMX = ("amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512vnni")


def _cpu(level: str, more: Sequence[str] = (), **facts: Any) -> isa.Isa:
    width, registers, features = isa.LEVELS[level]
    return isa.Isa(level, width, registers, tuple(sorted((*features, *more))), l3_bytes=32 << 20, **facts)


#: Processors of fixed sizes, so that the texts of two machines are equal.
CPUS = {
    "cpu": _cpu("x86-64-v4", l2_bytes=1 << 20, cores=4),
    "cpu-v3": _cpu("x86-64-v3", l2_bytes=512 << 10, cores=4, library_bytes=32),
    "cpu-amx": _cpu("x86-64-v4", _AMX, l2_bytes=2 << 20, cores=8, float_parts=True),
}
TARGETS = (*CPUS, "gpu")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("folder", type=Path, help="where files are written")
    parser.add_argument("--targets", default=",".join(TARGETS), help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--models", default=",".join(MODELS), help="names of benchmarks' models, at their small sizes")
    parser.add_argument("--dtypes", default="f32,bf16", help="what the models are run in")
    parser.add_argument("--fuzz", type=int, default=20, help="how many programs of the fuzzer")
    given = parser.parse_args(argv)
    cases = {case.name: case for case in MODEL_CASES}
    for target in given.targets.split(","):
        for name in filter(None, given.models.split(",")):
            for dtype in given.dtypes.split(","):
                write(given.folder / target / f"{name}-{dtype}", target, _model(*built(cases[name], dtype, True)))
        for number in range(given.fuzz):
            write(given.folder / target / f"fuzz-{number}", target, _program(number))
    return 0


def write(folder: Path, target: str, call: Callable[[dict[str, Any]], None]) -> None:
    """The stages of each graph that ``call`` compiles, with the options that it is given."""
    print(folder.parent.name, folder.name, file=sys.stderr)
    folder.mkdir(parents=True)
    graphs: list[CapturedGraph] = []
    torch._dynamo.reset()
    with _processor(target), capturing(graphs.append):
        try:
            call({"target": "tt-cpu" if target == "gpu" else "cpu", "fallback": False, "cache": False, "tf32": True})
        except Exception as error:
            (folder / "failure").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
        for i, graph in enumerate(graphs):
            for stage, text in _stages(graph, "gpu" if target == "gpu" else "cpu"):
                (folder / f"{i}-{graph.kind}.{stage}").write_text(text, encoding="utf-8")


def _stages(graph: CapturedGraph, target: str) -> Iterator[tuple[str, str]]:
    """Name and text of each stage, up to the kernels."""
    with create_context() as context:
        module = parse(graph.text)
    yield "torch", to_text(module)
    for text, stage in [*graph.steps, (f"emit-{target}-kernels", "kernels")]:
        try:
            with context:
                PassManager(parse_pipeline(text), []).run(module)
        except KilnError as error:
            yield stage or text.partition("{")[0], f"{type(error).__name__}: {error}\n"
            return
        if stage:
            yield stage, to_text(module)


@contextlib.contextmanager
def _processor(target: str) -> Iterator[None]:
    """Code for a processor; for a GPU, that of the machine does not matter."""
    with isa.compiling_for(CPUS[target]) if target in CPUS else contextlib.nullcontext():
        yield


def _model(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[[dict[str, Any]], None]:
    def call(options: dict[str, Any]) -> None:
        with torch.no_grad():
            torch.compile(module.eval(), backend="kiln", options=options)(*inputs)

    return call


def _program(number: int) -> Callable[[dict[str, Any]], None]:
    def call(options: dict[str, Any]) -> None:
        target = str(options["target"])
        case = generate(number, target)
        more = {key: value for key, value in case.setting.options.items() if key != "cpu"}
        setting: Setting = dataclasses.replace(case.setting, options={**more, **options})
        attempt(case.program, setting, kiln.backend, setting.options)

    return call


if __name__ == "__main__":
    sys.exit(main())
