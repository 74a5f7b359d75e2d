# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random graphs planned with and without reused memory: the same values reach every kernel, and the same results."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch_mlir import ir

from kiln.dialects import create_context, kiln
from kiln.lowering.host.kernels import outline_kernels
from kiln.lowering.host.plan import build_plan
from kiln.passes import PassManager, parse_pipeline
from kiln.runtime.executor import Executor
from kiln.runtime.plan import Launch, Plan, Pointer
from kiln.runtime.statistics import memory_report

N = 12
T = f"tensor<{N}x{N}xf32>"
ID, ROW, SWAP = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d0)>", "affine_map<(d0, d1) -> (d1, d0)>"
SHAPE = f"shape = affine_map<() -> ({N}, {N})>"


def pointwise(reads: list[str]) -> str:
    """A body: sums of the operands, read with the given maps."""
    values = ", ".join(f"%a{i}" for i in range(len(reads)))
    types = ", ".join([T] * len(reads))
    arguments = ", ".join(f"%i{i}: f32" for i in range(len(reads)))
    lines = ["%c = arith.constant 0.5 : f32", "%v0 = arith.mulf %i0, %c : f32"]
    lines += [f"%v{i} = arith.subf %v{i - 1}, %i{i} : f32" for i in range(1, len(reads))]
    return (f'%e = "kiln.empty"() {{{SHAPE}}} : () -> {T}\n'
            f"%r = linalg.generic {{indexing_maps = [{', '.join([*reads, ID])}], "
            f'iterator_types = ["parallel", "parallel"]}} ins({values} : {types}) outs(%e : {T}) {{\n'
            f"^bb0({arguments}, %o: f32):\n" + "\n".join(lines) +
            f"\nlinalg.yield %v{len(reads) - 1} : f32\n}} -> {T}\n"
            f'"kiln.yield"(%r) : ({T}) -> ()')  # fmt: skip


ROWS = f"""%z = arith.constant dense<0.0> : tensor<{N}xf32>
%sum = linalg.generic {{indexing_maps = [{ID}, {ROW}], iterator_types = ["parallel", "reduction"]}}
  ins(%a0 : {T}) outs(%z : tensor<{N}xf32>) {{
^bb0(%i: f32, %o: f32):
  %s = arith.addf %i, %o : f32
  linalg.yield %s : f32
}} -> tensor<{N}xf32>
%e = "kiln.empty"() {{{SHAPE}}} : () -> {T}
%r = linalg.generic {{indexing_maps = [%FIRST%, {ROW}, {ID}], iterator_types = ["parallel", "parallel"]}}
  ins(%a0, %sum : {T}, tensor<{N}xf32>) outs(%e : {T}) {{
^bb0(%i: f32, %t: f32, %o: f32):
  %s = arith.subf %i, %t : f32
  linalg.yield %s : f32
}} -> {T}
"kiln.yield"(%r) : ({T}) -> ()"""


def graph(seed: int) -> str:
    """A random graph of 2 to 9 fusions on two arguments; some results are written to arguments at the end."""
    choose = random.Random(seed)
    values, lines = ["%x", "%y"], []
    for k in range(choose.randint(2, 9)):
        rows = choose.random() < 0.25
        operands = [choose.choice(values[-4:]) for _ in range(1 if rows else choose.randint(1, 3))]
        if choose.random() < 0.2:
            lines.append(f'%t{k} = "kiln.view"({operands[0]}) {{map = {SWAP}, {SHAPE}}} : ({T}) -> {T}')
            operands[0] = f"%t{k}"
        maps = [SWAP if choose.random() < 0.2 else ID for _ in operands]
        body = ROWS.replace("%FIRST%", maps[0]) if rows else pointwise(maps)
        types, names = ", ".join([T] * len(operands)), ", ".join(f"%a{i}: {T}" for i in range(len(operands)))
        lines.append(f'%{k} = "kiln.fusion"({", ".join(operands)}) ({{\n^bb0({names}):\n{body}\n}}) '
                     f'{{kind = "{"reduction" if rows else "pointwise"}", name = "f{k}"}} : ({types}) -> {T}')  # fmt: skip
        values.append(f"%{k}")
    computed = values[2:]
    returned = list(dict.fromkeys([computed[-1], *choose.sample(computed, min(len(computed), choose.randint(1, 2)))]))
    targets = choose.sample([0, 1], 2)[: choose.randint(0, min(2, len(returned)))]
    strides = f"kiln.strides = affine_map<() -> ({N}, 1)>"
    attributes = [f"{{{strides}, kiln.mutates = {t} : i64}}" for t in targets]
    attributes += [f"{{{strides}}}"] * (len(returned) - len(targets))
    results = ", ".join(f"{T} {a}" for a in attributes)
    return (f"func.func @main(%x: {T}, %y: {T}) -> ({results}) {{\n" + "\n".join(lines) +
            f"\nreturn {', '.join(returned)} : {', '.join([T] * len(returned))}\n}}")  # fmt: skip


KERNELS = "outline-kernels,emit-kernels,optimize-loops,expand-vector-math,lower-to-llvm,assemble"


def planned(text: str, pipeline: str) -> tuple[Plan, list[int]]:
    """The plan, and the argument that each result is written to (-1: none)."""
    context = create_context()
    with context, ir.Location.unknown():
        module = kiln.parse(text, context)
        PassManager(parse_pipeline(pipeline)).run(module)
        outline_kernels(module)
        function = next(op.operation for op in module.body if op.operation.name == "func.func")
        entries = [ir.DictAttr(a) for a in ir.ArrayAttr(function.attributes["res_attrs"])]
        targets = [ir.IntegerAttr(e["kiln.mutates"]).value if "kiln.mutates" in e else -1 for e in entries]
        inputs = [SimpleNamespace(kind="tensor", name="", index=i, dim=-1, expr=None) for i in range(2)]
        return build_plan(module, inputs), targets


def symbolic(plan: Plan) -> tuple[list[object], list[object]]:
    """Runs a plan on names instead of numbers: (what each launch reads, what each output is).

    A piece of memory holds the name that was written there last; reading what was partly overwritten is an error.
    """
    held: dict[tuple[str, int], tuple[int, str]] = {}
    for i, b in enumerate(plan.buffers):
        if b.kind == "input":
            held[f"b{i}", 0] = (int(b.bytes), f"input {b.index}")

    def place(buffer: int) -> tuple[str, int, int]:
        b = plan.buffers[buffer]
        if b.kind == "workspace":
            assert plan.offsets is not None
            return "workspace", plan.offsets[buffer], int(b.bytes)
        return f"b{buffer}", 0, int(b.bytes)

    def part(p: Pointer) -> tuple[str, int, int]:
        memory, start, size = place(p.buffer)
        return (memory, p.within[0], p.within[1] - p.within[0]) if p.within else (memory, start, size)

    def read(memory: str, start: int, size: int) -> str:
        found = held[memory, start]
        assert found[0] == size, f"{memory} was overwritten in part"
        return found[1]

    seen: list[object] = []
    for step in plan.steps:
        assert isinstance(step, Launch)
        names = [read(*part(p)) for p in step.pointers[: -step.results]]
        seen.append((step.name, names))
        for p in step.pointers[-step.results :]:
            memory, start, size = part(p)
            for key in [k for k, v in held.items() if k[0] == memory and k[1] < start + size and start < k[1] + v[0]]:
                del held[key]
            held[memory, start] = (size, step.name)
    return seen, [read(*place(o.tensor.buffer)) for o in plan.outputs if o.tensor is not None]


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_live_memory_is_overwritten(first, monkeypatch):
    for seed in range(first, first + 20):
        text = graph(seed)
        hosted, _ = planned(text, "assign-layouts")
        reused, _ = planned(text, "assign-layouts,reuse-buffers")
        with monkeypatch.context() as patch:
            patch.setattr("kiln.lowering.host.plan.host_in_tensors", lambda plan: None)
            plain, _ = planned(text, "assign-layouts")
        assert symbolic(plain) == symbolic(hosted) == symbolic(reused), f"seed {seed}"
        peaks = [memory_report(plan).peak for plan in (reused, hosted, plain)]
        assert peaks == sorted(peaks), f"seed {seed}"


@pytest.mark.parametrize("seed", [*range(8)])
def test_same_results(seed):
    """Bit by bit, arguments that are written to included."""
    text = graph(seed)
    generator = torch.Generator().manual_seed(seed)
    x = [torch.randn(N, N, generator=generator) for _ in range(2)]
    found = []
    for pipeline in ("assign-layouts", "assign-layouts,reuse-buffers"):
        plan, targets = planned(text, f"{pipeline},{KERNELS}")
        given = [t.clone() for t in x]
        results = Executor(plan)(given)
        values = [r.clone() for r in results]
        for target, result in zip(targets, values, strict=True):
            if target >= 0:
                given[target].copy_(result)
        found.append([*values, *given])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
