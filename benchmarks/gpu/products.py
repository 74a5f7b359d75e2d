# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matrix products in kernels of Kiln's own and in cuBLAS's: what `lowering/gpu/choices/matmul.toml` rests on.

``python -m benchmarks.gpu.products OUT.json`` on a machine with an NVIDIA GPU; some four minutes on an H200. Each case
is a product ``[m, k] @ [n, k]^T``, alone or with a bias and ReLU behind it: as Kiln's kernel with the schedule that the
rules choose, in parts (split-K) where the model splits it, and as cuBLAS's first algorithm with a kernel behind it for
what follows. Times are of the GPU alone (replays of CUDA graphs).
"""

import argparse
import datetime
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from pathlib import Path

import torch
import triton
from torch_mlir import ir

import kiln.lowering.gpu.tune.library as library
from kiln.dialects import kiln
from kiln.dialects.context import create_context
from kiln.dialects.schedules import from_attribute
from kiln.errors import KilnError
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.tune.store import Found, TunedSchedules


@dataclass(frozen=True)
class Case:
    """A product of `dtype`; behind: "nothing", or "relu" (with a bias in front of it). tensor_maps: as the option."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    behind: str = "nothing"
    tensor_maps: bool = True


_MOST = 1 << 37
"""Multiply-adds of a case: more takes long and tells nothing new."""
_ROWS = (2, 8, 16, 17, 32, 64, 128, 197, 256, 512, 1024, 2048, 4096, 8192)
_WEIGHTS = ((256, 256), (768, 768), (1024, 1024), (3072, 768), (768, 3072), (4096, 1024), (4096, 4096))
_NO_LINES = ((1032, 264), (1032, 1032), (2056, 2056), (4104, 1032), (4104, 4104), (3080, 776))
_ANYWHERE = ((256, 100), (1024, 257), (1024, 1001), (4096, 4097))
_SMALL = (32, 64, 128)
_SQUARES = ((16, 16), (64, 64), (64, 1024), (256, 256), (1024, 64), (1024, 1024))
_LONG = ((128, 256), (256, 1024), (512, 512), (1024, 1024), (2048, 2048), (512, 4096))


def cases() -> Iterator[Case]:
    """All cases: sizes of models, rows that are no whole lines, long sums, rows anywhere, wide floats, pointers."""
    for behind in ("nothing", "relu"):
        for m, (n, k) in product(_ROWS, _WEIGHTS):
            yield Case(m, n, k, behind=behind)
        for m, (n, k) in product((17, 64, 128, 512, 1024, 2048, 4096, 12608), _NO_LINES):
            yield Case(m, n, k, behind=behind)
        for k, (m, n) in product((4096, 8192, 16384, 32768), _LONG):
            yield Case(m, n, k, behind=behind)
        for m, (n, k) in product((32, 128, 512, 2048), ((768, 768), (3072, 768), (4096, 4096))):
            yield Case(m, n, k, behind=behind, tensor_maps=False)
        for m, (n, k) in product((17, 64, 256, 1024), ((1023, 1024), (4095, 256), (50257, 768))):
            yield Case(m, n, k, behind=behind)
        yield from _other_cases(behind)
    for m, (n, k) in product((2, 4, 8, 16, 32, 128, 512, 2048), ((256, 256), (1024, 1024), (3072, 768))):
        yield Case(m, n, k, "f32")
    for m, n in product((16, 128, 512), (256, 1024)):
        yield Case(m, n, n, "f64")


def _other_cases(behind: str) -> Iterator[Case]:
    """Rows that start anywhere, few columns, small products, short rows that are no lines, wide floats."""
    for m, (n, k) in product((17, 64, 256, 1024, 4096), _ANYWHERE):
        yield Case(m, n, k, behind=behind)
    for m, n, k in product((64, 1024, 65536), (8, 16, 32, 64), (64, 256, 1024, 4096)):
        yield Case(m, n, k, behind=behind)
    for m, n, k in product(_SMALL, repeat=3):
        yield Case(m, n, k, behind=behind)
    for m, n, k in product((256, 4096), (256, 1024), (8, 72)):
        yield Case(m, n, k, behind=behind)
    for m, (n, k) in product((2, 16, 128, 1024), _SQUARES):
        yield Case(m, n, k, "f32", behind)


def program(case: Case) -> str:
    """The case as a function on the kiln dialect."""
    t, size = case.dtype, f"{case.m}x{case.n}"
    head = f"%x: tensor<{case.m}x{case.k}x{t}>, %w: tensor<{case.n}x{case.k}x{t}>"
    lines = [
        '%p = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true} : '
        f"(tensor<{case.m}x{case.k}x{t}>, tensor<{case.n}x{case.k}x{t}>) -> tensor<{size}x{t}>"
    ]
    result = "%p"
    if case.behind == "relu":
        head += f", %b: tensor<{case.n}x{t}>"
        whole, columns = "affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> (j)>"
        loops = 'iterator_types = ["parallel", "parallel"]}'
        lines += [
            f'%e = "kiln.empty"() {{shape = affine_map<() -> ({case.m}, {case.n})>}} : () -> tensor<{size}x{t}>',
            f"%s = linalg.generic {{indexing_maps = [{whole}, {columns}, {whole}], {loops} "
            f"ins(%p, %b : tensor<{size}x{t}>, tensor<{case.n}x{t}>) outs(%e : tensor<{size}x{t}>) {{",
            f"^bb0(%a: {t}, %c: {t}, %o: {t}): %y = arith.addf %a, %c : {t} linalg.yield %y : {t}",
            f"}} -> tensor<{size}x{t}>",
            f"%r = linalg.generic {{indexing_maps = [{whole}, {whole}], {loops} "
            f"ins(%s : tensor<{size}x{t}>) outs(%e : tensor<{size}x{t}>) {{",
            f"^bb0(%a: {t}, %o: {t}): %z = arith.constant 0.0 : {t} %y = arith.maximumf %a, %z : {t} "
            f"linalg.yield %y : {t}",
            f"}} -> tensor<{size}x{t}>",
        ]
        result = "%r"
    body = "\n".join([*lines, f"return {result} : tensor<{size}x{t}>"])
    return f"func.func @main({head}) -> tensor<{size}x{t}> {{\n{body}\n}}"


def _times(case: Case, seconds: float) -> dict[str, float]:
    """Microseconds by the way that the product is computed: "own", "library", "parts"; none for a way there is not."""
    with create_context() as context, ir.Location.unknown(context):
        module = kiln.parse(program(case))
        options = DotOptions("sm_90", False, case.tensor_maps, False)
        judge = library.ProductJudge(TunedSchedules(), options, "cuda:0", seconds)

        def by_rule(fusion: ir.OpView) -> Found:
            return Found(from_attribute(fusion.operation.attributes["schedule"]), "default", 0.0, 0.0)

        judge.tuner.find = by_rule  # the schedule that a graph gets without tuning
        block = module.body.operations[0].regions[0].blocks[0]
        found = judge.case(next(op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul"))
        if found is None:
            return {}
        names = {"own": "own", "library 0": "library"}
        tried = judge.compare(found).tried
        ways = {names.get(t.label, "parts" if t.label.endswith("parts") else ""): t.seconds for t in tried}
        return {way: round(1e6 * time, 2) for way, time in ways.items() if way}


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a JSON file")
    parser.add_argument("--seconds", type=float, default=0.1, help="for all ways of one case, in each of two rounds")
    parser.add_argument("--part", default="0/1", help="of the cases: 3/8, say, to compile all in parallel first")
    parser.add_argument("--commit", default="unknown", help="that is measured")
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    rules = replace(library.rules_for(library.TuningRules), least_product=0)
    library.rules_for = lambda _: rules
    rows: list[dict[str, object]] = []
    for case in islice((c for c in cases() if c.m * c.n * c.k <= _MOST), part, None, parts):
        try:
            rows.append({**asdict(case), "times": _times(case, arguments.seconds)})
        except (KilnError, RuntimeError, AssertionError) as error:
            rows.append({**asdict(case), "times": {}, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
        print(json.dumps(rows[-1]), file=sys.stderr)
    report = {
        "suite": "gpu products",
        "machine": {"name": "h200", "processor": torch.cuda.get_device_name(0)},
        "versions": {"torch": torch.__version__, "triton": triton.__version__},
        "date": str(datetime.date.today()),
        "commit": arguments.commit,
        "unit": "us",
        "command": "python -m benchmarks.gpu.products OUT.json",
        "notes": [
            "own: Kiln's kernel by the rules' schedule; parts: split-K; library: cuBLAS, and a kernel behind it."
        ],
    }
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    arguments.out.write_text(json.dumps(report, indent=1)[:-2] + ',\n "rows": [\n' + lines + "\n ]\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
