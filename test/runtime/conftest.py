# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Hand-made kernels and plans, and a look at checkers, for tests of the runtime."""

import pytest
from torch_mlir import ir

from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.lowering.host.launcher import launcher_object
from kiln.runtime.checked.checker import LaunchChecker
from kiln.runtime.plan import Buffer, Kernel, Launch, Plan, Pointer

# out[i] = x[i] + y[i] for i < n, split over the threads; each thread notes its number in its scratch and reads it back.
_ADD = """
func.func @add(%x: memref<?xf32>, %y: memref<?xf32>, %out: memref<?xf32>, %n: index,
               %scratch: memref<?xi8>, %tid: index, %nt: index)
    attributes {kiln.scratch_bytes = affine_map<()[s0] -> (8)>, kiln.work = affine_map<()[s0] -> (s0)>} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %mine = memref.view %scratch[%c0][%c1] : memref<?xi8> to memref<?xindex>
  memref.store %tid, %mine[%c0] : memref<?xindex>
  %me = memref.load %mine[%c0] : memref<?xindex>
  %next = arith.addi %me, %c1 : index
  %a = arith.muli %me, %n : index
  %lo = arith.divui %a, %nt : index
  %b = arith.muli %next, %n : index
  %hi = arith.divui %b, %nt : index
  scf.for %i = %lo to %hi step %c1 {
    %u = memref.load %x[%i] : memref<?xf32>
    %v = memref.load %y[%i] : memref<?xf32>
    %w = arith.addf %u, %v : f32
    memref.store %w, %out[%i] : memref<?xf32>
  }
  return
}
"""


@pytest.fixture(scope="session")
def add_kernel() -> KernelObject:
    """The kernel `add`: (x, y, out, n)."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        return compile_kernel(ir.Module.parse(_ADD), "add")


@pytest.fixture
def chain_plan(add_kernel):
    """Makes the plan of out = (x + y) + y for [rows, cols] tensors: int sizes, or expressions over given symbols."""

    def make(rows, cols, symbols=(), **changes) -> Plan:
        both = [str(e) for e in (rows, cols)]
        count = rows * cols if all(isinstance(e, int) for e in (rows, cols)) else " * ".join(both)
        size = 4 * count if isinstance(count, int) else f"{count} * 4"

        def buffer(kind, index=-1, first=-1, last=-1):
            return Buffer(kind, "float32", (rows, cols), (cols, 1), size, index, first, last)

        def launch(*buffers):
            return Launch(0, tuple(Pointer(b, 0, size) for b in buffers), (count,), scratch=8, work=count, name="add")

        return Plan(
            "chain",
            2,
            symbols=list(symbols),
            buffers=[buffer("input", 0), buffer("input", 1), buffer("workspace", -1, 0, 1), buffer("tensor")],
            kernels=[Kernel("add", add_kernel.entry, 0, "pointwise", 3, 1)],
            steps=[launch(0, 1, 2), launch(2, 1, 3)],
            launcher=launcher_object(),
            objects=[add_kernel.object_bytes],
            **changes,
        )

    return make


@pytest.fixture
def checkers(monkeypatch: pytest.MonkeyPatch) -> list[LaunchChecker]:
    """What checks graphs, of those that are made while the test runs."""
    found: list[LaunchChecker] = []
    made = LaunchChecker.__post_init__

    def record(checker: LaunchChecker) -> None:
        made(checker)
        found.append(checker)

    monkeypatch.setattr(LaunchChecker, "__post_init__", record)
    return found
