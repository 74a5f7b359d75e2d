# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The native function that launches the kernels of a segment of a plan on a GPU, from a table.

``int64_t kiln_run_cuda(int64_t* state, CUstream stream)`` reads

    state  = [0, table, words of state...]
    table  = [most parameters of an entry (16 at least), cuLaunchKernel, cuMemsetD8Async, cuCtxSetCurrent, context,
              number of checks, slots to check..., entries..., 0]
    launch = [function, words of the entry, grid x, y, z, threads of a program, shared bytes, n, n x (slot, addend)]
    clear  = [1, words of the entry, slot, addend, bytes]
    call   = [2, words of the entry, function, n, n x (slot, addend)]
    change = [3, words of the entry, slot, addend, record, serial]

A parameter is ``state[slot] + addend``, passed by value. With bit 32 of the slot set (`IN_PLACE`) the parameter is what
lies in the state from the slot on: a kernel gets it (a tensor descriptor), a call its address. A call is one of a
function of the host, of at most 15 integers or pointers, to which the stream is added as the last; with bit 33
(`BY_REFERENCE`) it gets the address of the parameter. A change skips the next entry if the words at ``record`` in the
state are ``state[slot] + addend`` and ``serial``, and else makes them so.

Before anything is launched the words in the slots to check must be multiples of 16; else the function returns -1 and
has done nothing. The result is 0, or the error code of the function that failed plus 2^32 times its entry's number.

As on the CPU (launcher.py), a table costs nothing to make, while code for each graph would have to be compiled.

A function of the host that tables call is here, too, since cuDNN takes addresses in descriptors that are made anew for
each of its calls. ``int32_t kiln_execute_cudnn(int64_t* record, plan, x, w, y, workspace, CUstream stream)`` executes a
plan for one convolution on the image, the weight and the result at these addresses:

    record = [handle, the stream that it has, cudnnSetStream, cudnnBackendCreateDescriptor, cudnnBackendSetAttribute,
              cudnnBackendFinalize, cudnnBackendExecute, cudnnBackendDestroyDescriptor, numbers of x, w and y]

Its result is the first status that is not success, or 0. Two calls with one record must not run at once.
"""

import functools
import re

from torch_mlir import ir

from kiln.lowering.cpu import jit

__all__ = ["CUDA_LAUNCHER_SYMBOL", "cuda_launcher_object"]

CUDA_LAUNCHER_SYMBOL = "kiln_run_cuda"

_TEXT = """
llvm.func @kiln_run_cuda(%state: !llvm.ptr, %stream: !llvm.ptr) -> i64 {
  %c0 = llvm.mlir.constant(0 : i64) : i64
  %c1 = llvm.mlir.constant(1 : i64) : i64
  %c2 = llvm.mlir.constant(2 : i64) : i64
  %c15 = llvm.mlir.constant(15 : i64) : i64
  %c32 = llvm.mlir.constant(32 : i64) : i64
  %failed = llvm.mlir.constant(-1 : i64) : i64
  %in_place = llvm.mlir.constant(4294967296 : i64) : i64
  %by_reference = llvm.mlir.constant(8589934592 : i64) : i64
  %low_bits = llvm.mlir.constant(4294967295 : i64) : i64
  %zero = llvm.mlir.constant(0 : i32) : i32
  %one = llvm.mlir.constant(1 : i32) : i32
  %byte = llvm.mlir.constant(0 : i8) : i8
  %null = llvm.mlir.zero : !llvm.ptr
  %table = field state[1] : !llvm.ptr
  %most = llvm.load %table : !llvm.ptr -> i64
  %values = llvm.alloca %most x i64 : (i64) -> !llvm.ptr
  %params = llvm.alloca %most x !llvm.ptr : (i64) -> !llvm.ptr
  %arguments = llvm.alloca %most x i64 : (i64) -> !llvm.ptr
  %launch = field table[1] : !llvm.ptr
  %memset = field table[2] : !llvm.ptr
  %set = field table[3] : !llvm.ptr
  %context = field table[4] : !llvm.ptr
  %checks = field table[5] : i64
  %slots = llvm.getelementptr %table[6] : (!llvm.ptr) -> !llvm.ptr, i64
  %entries = llvm.getelementptr %slots[%checks] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  llvm.br ^check(%c0 : i64)
^check(%k: i64):
  %unchecked = llvm.icmp "ult" %k, %checks : i64
  llvm.cond_br %unchecked, ^look, ^start
^look:
  %checked = field slots[%k] : i64
  %word = field state[%checked] : i64
  %rest = llvm.and %word, %c15 : i64
  %is_aligned = llvm.icmp "eq" %rest, %c0 : i64
  %k1 = llvm.add %k, %c1 : i64
  llvm.cond_br %is_aligned, ^check(%k1 : i64), ^return(%failed : i64)
^start:
  %set_code = llvm.call %set(%context) : !llvm.ptr, (!llvm.ptr) -> i32
  llvm.br ^next(%set_code, %entries, %c0, %c0 : i32, !llvm.ptr, i64, i64)
^next(%code: i32, %at: !llvm.ptr, %number: i64, %done: i64):
  %is_good = llvm.icmp "eq" %code, %zero : i32
  llvm.cond_br %is_good, ^entry, ^error
^error:
  %wide = llvm.zext %code : i32 to i64
  %where = llvm.shl %done, %c32 : i64
  %result = llvm.or %wide, %where : i64
  llvm.br ^return(%result : i64)
^entry:
  %function = llvm.load %at : !llvm.ptr -> i64
  %length_at = llvm.getelementptr %at[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %number1 = llvm.add %number, %c1 : i64
  llvm.switch %function : i64, ^kernel [
    0: ^return(%c0 : i64),
    1: ^clear,
    2: ^host,
    3: ^change
  ]
^clear:
  %clear_length = llvm.load %length_at : !llvm.ptr -> i64
  %clear_next = llvm.getelementptr %at[%clear_length] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %start = address at[2]
  %bytes = field at[4] : i64
  %clear_code = llvm.call %memset(%start, %byte, %bytes, %stream) : !llvm.ptr, (i64, i8, i64, !llvm.ptr) -> i32
  llvm.br ^next(%clear_code, %clear_next, %number1, %number : i32, !llvm.ptr, i64, i64)
^change:
  %change_length = llvm.load %length_at : !llvm.ptr -> i64
  %guarded = llvm.getelementptr %at[%change_length] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %now = address at[2]
  %record_slot = field at[4] : i64
  %serial = field at[5] : i64
  %record = llvm.getelementptr %state[%record_slot] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %record_serial = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %before = llvm.load %record : !llvm.ptr -> i64
  %before_serial = llvm.load %record_serial : !llvm.ptr -> i64
  %same = llvm.icmp "eq" %before, %now : i64
  %same_serial = llvm.icmp "eq" %before_serial, %serial : i64
  %is_known = llvm.and %same, %same_serial : i1
  llvm.store %now, %record : i64, !llvm.ptr
  llvm.store %serial, %record_serial : i64, !llvm.ptr
  llvm.cond_br %is_known, ^skip, ^next(%zero, %guarded, %number1, %number : i32, !llvm.ptr, i64, i64)
^skip:
  %skipped = field guarded[1] : i64
  %behind = llvm.getelementptr %guarded[%skipped] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %number2 = llvm.add %number, %c2 : i64
  llvm.br ^next(%zero, %behind, %number2, %number1 : i32, !llvm.ptr, i64, i64)
^host:
  %host_n = field at[3] : i64
  %host_pairs = llvm.getelementptr %at[4] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^fill(%c0, %host_pairs, %host_n : i64, !llvm.ptr, i64)
^kernel:
  %n = field at[7] : i64
  %pairs = llvm.getelementptr %at[8] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^fill(%c0, %pairs, %n : i64, !llvm.ptr, i64)
^fill(%i: i64, %pair: !llvm.ptr, %count: i64):
  %left = llvm.icmp "ult" %i, %count : i64
  llvm.cond_br %left, ^param, ^filled
^param:
  %flagged = llvm.load %pair : !llvm.ptr -> i64
  %slot = llvm.and %flagged, %low_bits : i64
  %place_flag = llvm.and %flagged, %in_place : i64
  %reference_flag = llvm.and %flagged, %by_reference : i64
  %addend = field pair[1] : i64
  %base_at = llvm.getelementptr %state[%slot] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %base = llvm.load %base_at : !llvm.ptr -> i64
  %value = llvm.add %base, %addend : i64
  %value_at = llvm.getelementptr %values[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  llvm.store %value, %value_at : i64, !llvm.ptr
  %is_value = llvm.icmp "eq" %place_flag, %c0 : i64
  %param = llvm.select %is_value, %value_at, %base_at : i1, !llvm.ptr
  %param_at = llvm.getelementptr %params[%i] : (!llvm.ptr, i64) -> !llvm.ptr, !llvm.ptr
  llvm.store %param, %param_at : !llvm.ptr, !llvm.ptr
  %flags = llvm.or %place_flag, %reference_flag : i64
  %is_plain = llvm.icmp "eq" %flags, %c0 : i64
  %address = llvm.ptrtoint %param : !llvm.ptr to i64
  %argument = llvm.select %is_plain, %value, %address : i1, i64
  %argument_at = llvm.getelementptr %arguments[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  llvm.store %argument, %argument_at : i64, !llvm.ptr
  %i1 = llvm.add %i, %c1 : i64
  %pair1 = llvm.getelementptr %pair[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.br ^fill(%i1, %pair1, %count : i64, !llvm.ptr, i64)
^filled:
  %length = llvm.load %length_at : !llvm.ptr -> i64
  %following = llvm.getelementptr %at[%length] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %is_call = llvm.icmp "eq" %function, %c2 : i64
  llvm.cond_br %is_call, ^call, ^launch
^call:
  %last_at = llvm.getelementptr %arguments[%count] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %stream_word = llvm.ptrtoint %stream : !llvm.ptr to i64
  llvm.store %stream_word, %last_at : i64, !llvm.ptr
  %called = field at[2] : !llvm.ptr
@LOADS@
  %call_code = llvm.call %called(@NAMES@)
    : !llvm.ptr, (@TYPES@) -> i32
  llvm.br ^next(%call_code, %following, %number1, %number : i32, !llvm.ptr, i64, i64)
^launch:
  %gx = field at[2] : i32
  %gy = field at[3] : i32
  %gz = field at[4] : i32
  %threads = field at[5] : i32
  %shared = field at[6] : i32
  %kernel = llvm.inttoptr %function : i64 to !llvm.ptr
  %launch_code = llvm.call %launch(%kernel, %gx, %gy, %gz, %threads, %one, %one, %shared, %stream, %params, %null)
    : !llvm.ptr, (!llvm.ptr, i32, i32, i32, i32, i32, i32, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  llvm.br ^next(%launch_code, %following, %number1, %number : i32, !llvm.ptr, i64, i64)
^return(%status: i64):
  llvm.return %status : i64
}
"""

_CUDNN_TEXT = """
llvm.func @kiln_execute_cudnn(%record: !llvm.ptr, %plan: !llvm.ptr, %x: i64, %w: i64, %y: i64, %workspace: i64,
    %stream: !llvm.ptr) -> i32 {
  %zero = llvm.mlir.constant(0 : i32) : i32
  %one = llvm.mlir.constant(1 : i64) : i64
  %three = llvm.mlir.constant(3 : i64) : i64
  %type_int64 = llvm.mlir.constant(3 : i32) : i32
  %type_pointer = llvm.mlir.constant(6 : i32) : i32
  %variant_pack = llvm.mlir.constant(16 : i32) : i32
  %unique_ids = llvm.mlir.constant(1000 : i32) : i32
  %data_pointers = llvm.mlir.constant(1001 : i32) : i32
  %its_workspace = llvm.mlir.constant(1003 : i32) : i32
  %pointers = llvm.alloca %three x i64 : (i64) -> !llvm.ptr
  %workspace_at = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
  %pack_at = llvm.alloca %one x !llvm.ptr : (i64) -> !llvm.ptr
  llvm.store %x, %pointers : i64, !llvm.ptr
  %second = llvm.getelementptr %pointers[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %w, %second : i64, !llvm.ptr
  %third = llvm.getelementptr %pointers[2] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %y, %third : i64, !llvm.ptr
  llvm.store %workspace, %workspace_at : i64, !llvm.ptr
@FIELDS@
  %numbers = llvm.getelementptr %record[8] : (!llvm.ptr) -> !llvm.ptr, i64
  %is_set = llvm.icmp "eq" %field1, %stream : !llvm.ptr
  llvm.cond_br %is_set, ^create, ^stream
^stream:
  %stream_code = llvm.call %field2(%field0, %stream) : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i32
  go %stream_code, ^keep, ^return
^keep:
  %stream_at = llvm.getelementptr %record[1] : (!llvm.ptr) -> !llvm.ptr, i64
  llvm.store %stream, %stream_at : !llvm.ptr, !llvm.ptr
  llvm.br ^create
^create:
  %create_code = llvm.call %field3(%variant_pack, %pack_at) : !llvm.ptr, (i32, !llvm.ptr) -> i32
  go %create_code, ^ids, ^return
^ids:
  %pack = llvm.load %pack_at : !llvm.ptr -> !llvm.ptr
  %ids_code = llvm.call %field4(%pack, %unique_ids, %type_int64, %three, %numbers)
    : !llvm.ptr, (!llvm.ptr, i32, i32, i64, !llvm.ptr) -> i32
  go %ids_code, ^pointers, ^destroy
^pointers:
  %pointers_code = llvm.call %field4(%pack, %data_pointers, %type_pointer, %three, %pointers)
    : !llvm.ptr, (!llvm.ptr, i32, i32, i64, !llvm.ptr) -> i32
  go %pointers_code, ^workspace, ^destroy
^workspace:
  %workspace_code = llvm.call %field4(%pack, %its_workspace, %type_pointer, %one, %workspace_at)
    : !llvm.ptr, (!llvm.ptr, i32, i32, i64, !llvm.ptr) -> i32
  go %workspace_code, ^finalize, ^destroy
^finalize:
  %final_code = llvm.call %field5(%pack) : !llvm.ptr, (!llvm.ptr) -> i32
  go %final_code, ^execute, ^destroy
^execute:
  %execute_code = llvm.call %field6(%field0, %plan, %pack) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
  llvm.br ^destroy(%execute_code : i32)
^destroy(%code: i32):
  %ignored = llvm.call %field7(%pack) : !llvm.ptr, (!llvm.ptr) -> i32
  llvm.br ^return(%code : i32)
^return(%status: i32):
  llvm.return %status : i32
}
"""

_ARGUMENTS = 16
"""Arguments of every call. More than a function takes are harmless: the caller removes them."""


def _text() -> str:
    """Both functions in the LLVM dialect."""
    numbers = range(_ARGUMENTS)
    arguments = "\n".join(f"  %argument{i} = field arguments[{i}] : i64" for i in numbers)
    fields = "\n".join(f"  %field{i} = field record[{i}] : !llvm.ptr" for i in range(8))
    return _expanded(
        _CUDNN_TEXT.replace("@FIELDS@", fields)
        + _TEXT.replace("@LOADS@", arguments)
        .replace("@NAMES@", ", ".join(f"%argument{i}" for i in numbers))
        .replace("@TYPES@", ", ".join(["i64"] * _ARGUMENTS))
    )


def _expanded(text: str) -> str:
    """The text with its three abbreviations written out:

    - `%x = field base[i] : type`: word i of what %base points to;
    - `%x = address at[2]`: what the slot and the addend there say, the slot's word plus the addend;
    - `go %status, ^next, ^failed`: to the one, or with a status that is not 0 to the other.
    """
    for pattern, meaning in _ABBREVIATIONS.items():
        text = re.sub(pattern, meaning, text)
    return text


_ABBREVIATIONS = {
    r"%(\w+) = address (\w+)\[2\]": (
        r"%\1_slot = field \2[2] : i64\n  %\1_addend = field \2[3] : i64\n  %\1_base = field state[%\1_slot] : i64\n"
        r"  %\1 = llvm.add %\1_base, %\1_addend : i64"
    ),
    r"%(\w+) = field (\w+)\[(%\w+)\] : (\S+)": (
        r"%\1_at = llvm.getelementptr %\2[\3] : (!llvm.ptr, i64) -> !llvm.ptr, i64\n"
        r"  %\1 = llvm.load %\1_at : !llvm.ptr -> \4"
    ),
    r"%(\w+) = field (\w+)\[(\d+)\] : (\S+)": (
        r"%\1_at = llvm.getelementptr %\2[\3] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        r"  %\1 = llvm.load %\1_at : !llvm.ptr -> \4"
    ),
    r"go %(\w+), (\^\w+), (\^\w+)": (
        r'%\1_is_good = llvm.icmp "eq" %\1, %zero : i32\n  llvm.cond_br %\1_is_good, \2, \3(%\1 : i32)'
    ),
}
"""In this order: an address has fields."""


@functools.cache
def cuda_launcher_object() -> bytes:
    """The compiled functions (about 15 ms, once a process)."""
    context = ir.Context()
    context.enable_multithreading(False)
    with context, ir.Location.unknown():
        return jit.object_bytes(ir.Module.parse(_text()), CUDA_LAUNCHER_SYMBOL, opt_level=2)
