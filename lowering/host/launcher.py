# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native function that runs a sequence of kernel launches from a table.

A host function generated per graph would cost 10 ms and more of compilation and grow with the graph; a table costs
nothing and one function of a few hundred bytes runs them all. `void kiln_run(int64_t* state)` reads

    state = [0, table, words of state..., base addresses of buffers...]
    table = [words of the largest launch block, group..., 0]
    group = [threads, words of the group, launch..., 0]
    launch = [entry address, mode, number of words n, n x (slot, addend)]

A group with more than one thread is one ``GOMP_parallel`` region. Each thread walks all launches of its group: where
bit 0 of the mode is set it waits for the others first (``GOMP_barrier``), where bit 1 is set only thread 0 goes on.
It fills a block of its own with ``state[slot] + addend`` (slot 0 holds 0, so constants are addends) and calls
``entry(block)``. The state belongs to one call, the table is shared by all calls.
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
llvm.func @GOMP_barrier()
llvm.func @omp_get_thread_num() -> i32
llvm.func @kiln_run(%state: !llvm.ptr) {
  %c0 = llvm.mlir.constant(0 : i64) : i64
  %c1 = llvm.mlir.constant(1 : i64) : i64
  %c3 = llvm.mlir.constant(3 : i64) : i64
  %flags = llvm.mlir.constant(0 : i32) : i32
  %context = llvm.alloca %c3 x i64 : (i64) -> !llvm.ptr
  %launches_at = llvm.getelementptr %context[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %words_at = llvm.getelementptr %context[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %table_at = llvm.getelementptr %state[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %table = llvm.load %table_at : !llvm.ptr -> !llvm.ptr
  %words = llvm.load %table : !llvm.ptr -> i64
  llvm.store %state, %context : !llvm.ptr, !llvm.ptr
  llvm.store %words, %words_at : i64, !llvm.ptr
  %first = llvm.getelementptr %table[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^group(%first : !llvm.ptr)
^group(%at: !llvm.ptr):
  %threads = llvm.load %at : !llvm.ptr -> i64
  %more = llvm.icmp "ne" %threads, %c0 : i64
  llvm.cond_br %more, ^start, ^done
^start:
  %length_at = llvm.getelementptr %at[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %length = llvm.load %length_at : !llvm.ptr -> i64
  %launches = llvm.getelementptr %at[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %launches, %launches_at : !llvm.ptr, !llvm.ptr
  %next = llvm.getelementptr %at[%length] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %is_team = llvm.icmp "ugt" %threads, %c1 : i64
  llvm.cond_br %is_team, ^parallel, ^serial
^parallel:
  %count = llvm.trunc %threads : i64 to i32
  %team = llvm.mlir.addressof @kiln_team : !llvm.ptr
  llvm.call @GOMP_parallel(%team, %context, %count, %flags) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  llvm.br ^group(%next : !llvm.ptr)
^serial:
  llvm.call @kiln_group(%context, %c0) : (!llvm.ptr, i64) -> ()
  llvm.br ^group(%next : !llvm.ptr)
^done:
  llvm.return
}
llvm.func internal @kiln_team(%context: !llvm.ptr) {
  %number = llvm.call @omp_get_thread_num() : () -> i32
  %thread = llvm.sext %number : i32 to i64
  llvm.call @kiln_group(%context, %thread) : (!llvm.ptr, i64) -> ()
  llvm.return
}
llvm.func internal @kiln_group(%context: !llvm.ptr, %thread: i64) attributes {no_inline} {
  %c0 = llvm.mlir.constant(0 : i64) : i64
  %c1 = llvm.mlir.constant(1 : i64) : i64
  %c2 = llvm.mlir.constant(2 : i64) : i64
  %state = llvm.load %context : !llvm.ptr -> !llvm.ptr
  %launches_at = llvm.getelementptr %context[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %launches = llvm.load %launches_at : !llvm.ptr -> !llvm.ptr
  %words_at = llvm.getelementptr %context[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %words = llvm.load %words_at : !llvm.ptr -> i64
  %block = llvm.alloca %words x i64 : (i64) -> !llvm.ptr
  %is_first = llvm.icmp "eq" %thread, %c0 : i64
  llvm.br ^launch(%launches : !llvm.ptr)
^launch(%at: !llvm.ptr):
  %entry = llvm.load %at : !llvm.ptr -> i64
  %more = llvm.icmp "ne" %entry, %c0 : i64
  llvm.cond_br %more, ^header, ^done
^header:
  %mode_at = llvm.getelementptr %at[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %mode = llvm.load %mode_at : !llvm.ptr -> i64
  %n_at = llvm.getelementptr %at[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %n = llvm.load %n_at : !llvm.ptr -> i64
  %pairs = llvm.getelementptr %at[3] : (!llvm.ptr) -> !llvm.ptr, i64
  %pair_words = llvm.mul %n, %c2 : i64
  %next = llvm.getelementptr %pairs[%pair_words] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %wait_bit = llvm.and %mode, %c1 : i64
  %waits = llvm.icmp "ne" %wait_bit, %c0 : i64
  llvm.cond_br %waits, ^barrier, ^choose
^barrier:
  llvm.call @GOMP_barrier() : () -> ()
  llvm.br ^choose
^choose:
  %single_bit = llvm.and %mode, %c2 : i64
  %is_shared = llvm.icmp "eq" %single_bit, %c0 : i64
  %goes_on = llvm.or %is_first, %is_shared : i1
  llvm.cond_br %goes_on, ^fill(%c0, %pairs : i64, !llvm.ptr), ^launch(%next : !llvm.ptr)
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
