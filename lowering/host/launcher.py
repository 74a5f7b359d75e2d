# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native function that runs a sequence of kernel launches from a table.

A host function generated per graph would cost 10 ms and more of compilation and grow with the graph; a table costs
nothing and one function of 200 bytes runs them all. `void kiln_run(int64_t* state)` reads

    state = [0, table, words of state..., base addresses of buffers...]
    table = [offset of the launch block from `state` in words, launch..., 0]
    launch = [entry address, threads, number of words n, n x (slot, addend)]

and for each launch fills the block with ``state[slot] + addend`` (slot 0 holds 0, so constants are addends) and calls
``entry(block)``, directly or through ``GOMP_parallel`` if ``threads > 1``. The state and the block belong to one call,
the table is shared by all calls.
"""

import functools

from torch_mlir import ir

from kiln.lowering.cpu import jit

__all__ = ["LAUNCHER_SYMBOL", "launcher_module_text", "launcher_object"]

LAUNCHER_SYMBOL = "kiln_run"


def launcher_module_text() -> str:
    """The launcher in the LLVM dialect."""
    return """
llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func @kiln_run(%state: !llvm.ptr) {
  %c0 = llvm.mlir.constant(0 : i64) : i64
  %c1 = llvm.mlir.constant(1 : i64) : i64
  %c2 = llvm.mlir.constant(2 : i64) : i64
  %flags = llvm.mlir.constant(0 : i32) : i32
  %table_at = llvm.getelementptr %state[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %table = llvm.load %table_at : !llvm.ptr -> !llvm.ptr
  %block_at = llvm.load %table : !llvm.ptr -> i64
  %block = llvm.getelementptr %state[%block_at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %start = llvm.getelementptr %table[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^launch(%start : !llvm.ptr)
^launch(%at: !llvm.ptr):
  %entry = llvm.load %at : !llvm.ptr -> i64
  %more = llvm.icmp "ne" %entry, %c0 : i64
  llvm.cond_br %more, ^header, ^done
^header:
  %threads_at = llvm.getelementptr %at[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %threads = llvm.load %threads_at : !llvm.ptr -> i64
  %n_at = llvm.getelementptr %at[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %n = llvm.load %n_at : !llvm.ptr -> i64
  %pairs = llvm.getelementptr %at[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %words = llvm.mul %n, %c2 : i64
  %next = llvm.getelementptr %pairs[%words] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  llvm.br ^fill(%c0, %pairs : i64, !llvm.ptr)
^fill(%i: i64, %pair: !llvm.ptr):
  %left = llvm.icmp "ult" %i, %n : i64
  llvm.cond_br %left, ^word, ^call
^word:
  %slot = llvm.load %pair : !llvm.ptr -> i64
  %addend_at = llvm.getelementptr %pair[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %addend = llvm.load %addend_at : !llvm.ptr -> i64
  %base_at = llvm.getelementptr %state[%slot] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %base = llvm.load %base_at : !llvm.ptr -> i64
  %value = llvm.add %base, %addend : i64
  %to = llvm.getelementptr %block[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  llvm.store %value, %to : i64, !llvm.ptr
  %i1 = llvm.add %i, %c1 : i64
  %pair1 = llvm.getelementptr %pair[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^fill(%i1, %pair1 : i64, !llvm.ptr)
^call:
  %function = llvm.inttoptr %entry : i64 to !llvm.ptr
  %team = llvm.icmp "ugt" %threads, %c1 : i64
  llvm.cond_br %team, ^parallel, ^serial
^parallel:
  %count = llvm.trunc %threads : i64 to i32
  llvm.call @GOMP_parallel(%function, %block, %count, %flags) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  llvm.br ^launch(%next : !llvm.ptr)
^serial:
  llvm.call %function(%block) : !llvm.ptr, (!llvm.ptr) -> ()
  llvm.br ^launch(%next : !llvm.ptr)
^done:
  llvm.return
}
"""


@functools.cache
def launcher_object() -> bytes:
    """The compiled launcher (about 15 ms, once a process)."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        return jit.object_bytes(ir.Module.parse(launcher_module_text()), LAUNCHER_SYMBOL, opt_level=2)
