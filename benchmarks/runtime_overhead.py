# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a call of a compiled graph costs beside its kernels, and what a kernel costs to compile.

Run: ``python benchmarks/runtime_overhead.py``. Calls: the least of several repeats of the mean of many calls, one
thread, tensors of 16 elements. All in CPU time of this thread, so that other load counts less.
"""

import time
import timeit
from collections.abc import Callable

import torch
from torch_mlir import ir

from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.lowering.host.launcher import launcher_object
from kiln.runtime.executor import Executor
from kiln.runtime.loader import load
from kiln.runtime.plan import Buffer, Kernel, Launch, Operand, Output, Plan, Pointer, Symbol

ADD = """
func.func @add(%x: memref<?xf32>, %y: memref<?xf32>, %out: memref<?xf32>, %n: index,
               %scratch: memref<?xi8>, %tid: index, %nt: index) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %n step %c8 {
    %u = vector.load %x[%i] : memref<?xf32>, vector<8xf32>
    %v = vector.load %y[%i] : memref<?xf32>, vector<8xf32>
    %w = arith.addf %u, %v : vector<8xf32>
    vector.store %w, %out[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}
"""


def compiled() -> KernelObject:
    """The kernel out = x + y."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        module = ir.Module.parse(ADD)
        compile_kernel(module, "add")
        start = time.thread_time()
        kernel = compile_kernel(module, "add")
        print(f"{'compile one small kernel':44} {(time.thread_time() - start) * 1e3:8.1f} ms CPU")
    return kernel


def chain(kernel: KernelObject, inputs: int, size: int | str) -> Plan:
    """The sum of `inputs` vectors, one launch per addition; `size` is 16, or s0 read off the first input."""
    nbytes = 4 * size if isinstance(size, int) else f"{size} * 4"

    def buffer(kind: str, index: int = -1, step: int = -1) -> Buffer:
        return Buffer(kind, "float32", (size,), (1,), nbytes, index, step, step + 1)

    launches = inputs - 1
    buffers = [buffer("input", i) for i in range(inputs)]
    buffers += [buffer("workspace", step=i) for i in range(launches - 1)] + [buffer("tensor")]
    steps, left = [], 0
    for i in range(launches):
        pointers = (Pointer(left), Pointer(i + 1), Pointer(inputs + i))
        steps.append(Launch(0, pointers, (size,), work=size, name="add"))
        left = inputs + i
    return Plan(
        "chain",
        inputs,
        symbols=[] if isinstance(size, int) else [Symbol("s0", "size", 0, 0)],
        buffers=buffers,
        kernels=[Kernel("add", kernel.entry, 0, "pointwise", 3, 1)],
        steps=list(steps),
        outputs=[Output(Operand(left))],
        launcher=launcher_object(),
        objects=[kernel.object_bytes],
    )


def microseconds(call: Callable[[], object]) -> float:
    """The least mean time of a call."""
    number = 5000
    return min(timeit.repeat(call, timer=time.thread_time, number=number, repeat=15)) / number * 1e6


def main() -> None:
    torch.set_num_threads(1)
    kernel = compiled()
    load([kernel.object_bytes], [kernel.entry])
    start = time.perf_counter()
    load([kernel.object_bytes], [kernel.entry])
    print(f"{'load one object':44} {(time.perf_counter() - start) * 1e3:8.2f} ms")
    for inputs in (2, 3, 60):
        x = [torch.randn(16) for _ in range(inputs)]
        fixed = Executor(chain(kernel, inputs, 16)).run
        sized = Executor(chain(kernel, inputs, "s0")).run
        assert torch.equal(fixed(x)[0], sized(x)[0])
        name = f"{inputs} inputs, {inputs - 1} launches, 1 output"
        empty = microseconds(lambda x=x: x[0])
        print(f"{name + ', static':44} {microseconds(lambda x=x, f=fixed: f(x)) - empty:8.2f} us")
        print(f"{name + ', dynamic':44} {microseconds(lambda x=x, f=sized: f(x)) - empty:8.2f} us")
        eager = microseconds(lambda x=x: sum(x[1:], x[0]))
        print(f"{name + ', eager':44} {eager - empty:8.2f} us")


if __name__ == "__main__":
    main()
