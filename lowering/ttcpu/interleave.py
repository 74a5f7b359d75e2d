# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Programs that are under way at the same time: one goes on where another one stops, at accesses to memory.

Programs that share counters or locks are right or wrong by what happens between two accesses, which no order of whole
programs shows. So a program of a kernel with atomics is a coroutine (`makecontext`) with a stack and blocks of its own.
It stops in front of each access and behind each atomic, where the program of the highest priority goes on. Priorities
are random and change now and then, so that some programs are delayed until all others have ended: that finds more than
an even choice at each stop [Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
ASPLOS 2010]. One thread runs them all, so that a seed always gives the same run.

The scheduler's memory is `[its context][slot of a program]...`, a slot is `[words][context][stack][blocks]`, and the
words are: turn, whether there is no program in it, address of the kernel's own words, address of the blocks, the
scheduler's context, its own context, priority, whether it stopped behind an atomic.
"""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.lowering.cpu.abi import memref_of
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.ttcpu.functions import call

__all__ = [
    "BLOCKS",
    "HEADER",
    "SLOT",
    "TURN",
    "WORDS",
    "bytes_at",
    "has_ended",
    "interleaved",
    "slot_of",
    "slot_word",
    "stop",
]

TURN, _ENDED, WORDS, BLOCKS = range(4)
"""Words of a slot."""
HEADER = 8192
"""Bytes in front of the first slot: room for a `ucontext_t`, which has 968 bytes on x86-64 and 4,560 on AArch64."""
_STACK = 65536
"""Bytes: blocks do not lie on it, spilled registers and what functions of libm need do."""
_CONTEXT_AT = 64
_STACK_AT = 8192
SLOT = _STACK_AT + _STACK
"""Bytes of a slot in front of the blocks."""
_PATIENCE = 1 << 23
"""Programs that go on without one that ends: then none of those under way ever will."""

_SWAP = "func.func private @swapcontext(!llvm.ptr, !llvm.ptr) -> i32"

_STOP = f"""
func.func private @kiln_stop(%slot: !llvm.ptr, %is_told: i64) {{
  %told_at = llvm.getelementptr %slot[7] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %is_told, %told_at : i64, !llvm.ptr
  %main_at = llvm.getelementptr %slot[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %own_at = llvm.getelementptr %slot[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %main = llvm.load %main_at : !llvm.ptr -> !llvm.ptr
  %own = llvm.load %own_at : !llvm.ptr -> !llvm.ptr
  %0 = func.call @swapcontext(%own, %main) : (!llvm.ptr, !llvm.ptr) -> i32
  return
}}
{_SWAP}
"""

_RUN = f"""
{_SWAP}
llvm.func @makecontext(!llvm.ptr, !llvm.ptr, i32, ...)
func.func private @getcontext(!llvm.ptr) -> i32

func.func private @kiln_begin(%slot: !llvm.ptr, %program: !llvm.ptr, %turn: i64) {{
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i32
  %size = arith.constant {_STACK} : i64
  %done_at = llvm.getelementptr %slot[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %turn, %slot : i64, !llvm.ptr
  llvm.store %c0, %done_at : i64, !llvm.ptr
  %own_at = llvm.getelementptr %slot[5] : (!llvm.ptr) -> !llvm.ptr, i64
  %main_at = llvm.getelementptr %slot[4] : (!llvm.ptr) -> !llvm.ptr, i64
  %own = llvm.load %own_at : !llvm.ptr -> !llvm.ptr
  %main = llvm.load %main_at : !llvm.ptr -> !llvm.ptr
  %0 = func.call @getcontext(%own) : (!llvm.ptr) -> i32
  %stack = llvm.getelementptr %slot[{_STACK_AT}] : (!llvm.ptr) -> !llvm.ptr, i8
  %link_at = llvm.getelementptr %own[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %stack_at = llvm.getelementptr %own[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %size_at = llvm.getelementptr %own[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %main, %link_at : !llvm.ptr, !llvm.ptr
  llvm.store %stack, %stack_at : !llvm.ptr, !llvm.ptr
  llvm.store %size, %size_at : i64, !llvm.ptr
  %address = llvm.ptrtoint %slot : !llvm.ptr to i64
  %half = arith.constant 32 : i64
  %high64 = arith.shrui %address, %half : i64
  %low = arith.trunci %address : i64 to i32
  %high = arith.trunci %high64 : i64 to i32
  %count = arith.constant 2 : i32
  llvm.call @makecontext(%own, %program, %count, %low, %high) vararg(!llvm.func<void (ptr, ptr, i32, ...)>)
    : (!llvm.ptr, !llvm.ptr, i32, i32, i32) -> ()
  return
}}

func.func private @kiln_interleave(%memory: !llvm.ptr, %stride: i64, %slots: i64, %program: !llvm.ptr,
                                   %words: !llvm.ptr, %total: i64, %seed: i64) -> i1 {{
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %header = arith.constant {HEADER} : i64
  %a = arith.constant 6364136223846793005 : i64
  %c = arith.constant 1442695040888963407 : i64
  %upper = arith.constant 33 : i64
  %rarely = arith.constant 7 : i64
  %few = arith.constant 5 : i64
  %none = arith.constant -1 : i64
  %patience = arith.constant {_PATIENCE} : i64
  %most = arith.minsi %slots, %total : i64
  scf.for %i = %c0 to %most step %c1 : i64 {{
    %before = arith.muli %i, %stride : i64
    %at = arith.addi %before, %header : i64
    %slot = llvm.getelementptr %memory[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    %words_at = llvm.getelementptr %slot[2] : (!llvm.ptr) -> !llvm.ptr, i64
    %blocks_at = llvm.getelementptr %slot[3] : (!llvm.ptr) -> !llvm.ptr, i64
    %main_at = llvm.getelementptr %slot[4] : (!llvm.ptr) -> !llvm.ptr, i64
    %own_at = llvm.getelementptr %slot[5] : (!llvm.ptr) -> !llvm.ptr, i64
    %priority_at = llvm.getelementptr %slot[6] : (!llvm.ptr) -> !llvm.ptr, i64
    %mixed = arith.addi %i, %seed : i64
    %product = arith.muli %mixed, %a : i64
    %half31 = arith.shrui %product, %upper : i64
    %priority = arith.shrui %half31, %few : i64
    llvm.store %priority, %priority_at : i64, !llvm.ptr
    %blocks = llvm.getelementptr %slot[{SLOT}] : (!llvm.ptr) -> !llvm.ptr, i8
    %own = llvm.getelementptr %slot[{_CONTEXT_AT}] : (!llvm.ptr) -> !llvm.ptr, i8
    llvm.store %words, %words_at : !llvm.ptr, !llvm.ptr
    llvm.store %blocks, %blocks_at : !llvm.ptr, !llvm.ptr
    llvm.store %memory, %main_at : !llvm.ptr, !llvm.ptr
    llvm.store %own, %own_at : !llvm.ptr, !llvm.ptr
    func.call @kiln_begin(%slot, %program, %i) : (!llvm.ptr, !llvm.ptr, i64) -> ()
  }}
  %start = arith.muli %seed, %c : i64
  %end:4 = scf.while (%live = %most, %begun = %most, %state = %start, %idle = %c0)
      : (i64, i64, i64, i64) -> (i64, i64, i64, i64) {{
    %is_left = arith.cmpi sgt, %live, %c0 : i64
    %is_patient = arith.cmpi slt, %idle, %patience : i64
    %goes_on = arith.andi %is_left, %is_patient : i1
    scf.condition(%goes_on) %live, %begun, %state, %idle : i64, i64, i64, i64
  }} do {{
  ^bb0(%live: i64, %begun: i64, %state: i64, %idle: i64):
    %place, %priority = scf.for %k = %c0 to %most step %c1 iter_args(%best = %c0, %highest = %none)
        -> (i64, i64) : i64 {{
      %before = arith.muli %k, %stride : i64
      %at = arith.addi %before, %header : i64
      %slot = llvm.getelementptr %memory[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i8
      %done_at = llvm.getelementptr %slot[1] : (!llvm.ptr) -> !llvm.ptr, i64
      %priority_at = llvm.getelementptr %slot[6] : (!llvm.ptr) -> !llvm.ptr, i64
      %done = llvm.load %done_at : !llvm.ptr -> i64
      %here = llvm.load %priority_at : !llvm.ptr -> i64
      %is_there = arith.cmpi eq, %done, %c0 : i64
      %is_higher = arith.cmpi sgt, %here, %highest : i64
      %is_better = arith.andi %is_there, %is_higher : i1
      %best1 = arith.select %is_better, %k, %best : i64
      %highest1 = arith.select %is_better, %here, %highest : i64
      scf.yield %best1, %highest1 : i64, i64
    }}
    %before = arith.muli %place, %stride : i64
    %at = arith.addi %before, %header : i64
    %slot = llvm.getelementptr %memory[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i8
    %own = llvm.getelementptr %slot[{_CONTEXT_AT}] : (!llvm.ptr) -> !llvm.ptr, i8
    %0 = func.call @swapcontext(%memory, %own) : (!llvm.ptr, !llvm.ptr) -> i32
    %scaled = arith.muli %state, %a : i64
    %next = arith.addi %scaled, %c : i64
    %random = arith.shrui %next, %upper : i64
    %choice = arith.andi %random, %rarely : i64
    %told_at = llvm.getelementptr %slot[7] : (!llvm.ptr) -> !llvm.ptr, i64
    %told = llvm.load %told_at : !llvm.ptr -> i64
    %is_told = arith.cmpi ne, %told, %c0 : i64
    %is_chosen = arith.cmpi eq, %choice, %c0 : i64
    %changes = arith.ori %is_told, %is_chosen : i1
    scf.if %changes {{
      %priority_at = llvm.getelementptr %slot[6] : (!llvm.ptr) -> !llvm.ptr, i64
      %drawn = arith.shrui %random, %few : i64
      llvm.store %drawn, %priority_at : i64, !llvm.ptr
    }}
    %done_at = llvm.getelementptr %slot[1] : (!llvm.ptr) -> !llvm.ptr, i64
    %done = llvm.load %done_at : !llvm.ptr -> i64
    %has_ended = arith.cmpi ne, %done, %c0 : i64
    %are_left = arith.cmpi slt, %begun, %total : i64
    %begins = arith.andi %has_ended, %are_left : i1
    scf.if %begins {{
      %priority_at = llvm.getelementptr %slot[6] : (!llvm.ptr) -> !llvm.ptr, i64
      %drawn = arith.shrui %random, %few : i64
      llvm.store %drawn, %priority_at : i64, !llvm.ptr
      func.call @kiln_begin(%slot, %program, %begun) : (!llvm.ptr, !llvm.ptr, i64) -> ()
    }}
    %one_more = arith.extui %begins : i1 to i64
    %ended = arith.extui %has_ended : i1 to i64
    %begun1 = arith.addi %begun, %one_more : i64
    %live1 = arith.subi %live, %ended : i64
    %live2 = arith.addi %live1, %one_more : i64
    %idle1 = arith.addi %idle, %c1 : i64
    %idle2 = arith.select %has_ended, %c0, %idle1 : i64
    scf.yield %live2, %begun1, %next, %idle2 : i64, i64, i64, i64
  }}
  %is_stuck = arith.cmpi sgt, %end#0, %c0 : i64
  return %is_stuck : i1
}}
"""


def stop(b: Builder, slot: ir.Value, is_told: bool) -> None:
    """Another program may go on. slot: of the program that is emitted. is_told: others can know that it got here."""
    call(b, "kiln_stop", _STOP, [slot, b.int_(int(is_told), b.i64)])


def slot_of(b: Builder, low: ir.Value, high: ir.Value) -> ir.Value:
    """A program's slot, of what its function is given."""
    upper = arith.shli(arith.extui(b.i64, high), b.int_(32, b.i64))
    return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.ori(upper, arith.extui(b.i64, low)))


def has_ended(b: Builder, slot: ir.Value) -> None:
    """Marks the slot of a program as free."""
    llvm.store(b.int_(1, b.i64), _at(b, slot, _ENDED))


def bytes_at(pointer: ir.Value) -> ir.Value:
    """A memref of bytes from an address on."""
    return memref_of(pointer, ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8)))


def slot_word(b: Builder, slot: ir.Value, number: int, type_: ir.Type) -> ir.Value:
    """A word of a slot."""
    return llvm.load(type_, _at(b, slot, number))


def interleaved(
    b: Builder, memory: ir.Value, stride: ir.Value, slots: int, program: str, words: Sequence[ir.Value], seed: int
) -> ir.Value:
    """Runs as many programs as the last of `words` says, at most `slots` of them under way at a time.

    program: the name of a function that runs a program; it takes two i32, the halves of its slot's address. words: i64
    that it finds in memory. memory: an address; stride: bytes of a slot, i64. Returns an i1, whether all that are under
    way wait for ever.
    """
    pointer = ir.Type.parse("!llvm.ptr")
    place = arith.addi(llvm.ptrtoint(b.i64, memory), b.int_(HEADER - 8 * len(words), b.i64))
    given = llvm.inttoptr(pointer, place)
    for i, word in enumerate(words):
        llvm.store(word, _at(b, given, i))
    type_ = ir.FunctionType.get([b.i32, b.i32], [])
    attributes: dict[str, ir.Attribute] = {"value": ir.FlatSymbolRefAttr.get(program)}
    constant = ir.Operation.create("func.constant", results=[type_], attributes=attributes).result
    cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[pointer], operands=[constant])
    operands = [memory, stride, b.int_(slots, b.i64), cast.result, given, words[-1], b.int_(seed + 1, b.i64)]
    return call(b, "kiln_interleave", _RUN, operands, [b.i1])[0]


def _at(b: Builder, start: ir.Value, number: int) -> ir.Value:
    attributes = {"elem_type": ir.TypeAttr.get(b.i64), "rawConstantIndices": ir.DenseI32ArrayAttr.get([number])}
    return ir.Operation.create(
        "llvm.getelementptr", results=[start.type], operands=[start], attributes=attributes
    ).result
