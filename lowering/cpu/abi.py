# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The calling convention between the launcher and a compiled CPU kernel.

The vector stage writes a kernel as

    func.func @NAME(%p0: memref<?xf32>, ..., %s0: index, ..., %scratch: memref<?xi8>, %tid: index, %nt: index)

and the launcher calls ``void NAME_entry(int64_t* blk)`` with 64-bit words

    blk = [one pointer per memref, one word per symbol, scratch base, scratch bytes per thread, parallel]

``parallel`` is 0 for a direct call (the kernel then runs as thread 0 of 1). Under ``GOMP_parallel`` it is 1, or n > 1
where only the first n threads of the team shall work; thread number and team size come from the OpenMP runtime. The
team may be smaller than what was asked for.

`wrap_kernel` turns the first form into the second: the kernel becomes an internal function of bare pointers, each
marked ``noalias`` (no two tensors of a launch overlap unless both are only read), so that LLVM can keep values in
registers across stores; the entry unpacks the block and calls it. Those that ``kiln.shared = array<i64: memref, ...>``
of the function lists are not marked: a result that is written over an operand, or one that another thread reads.

Functions that the kernel calls with memrefs are parts of it (`tile/parts.py`), which take what it takes itself, in the
same places. They become functions of bare pointers too.

A kernel whose threads wait for each other calls `wait_for_team` where all of them come by, and says how often in
``kiln.barriers = n : i64``: the entry waits as often on behalf of the threads of the team that have no share.
"""

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects.func import CallOp, FuncOp

from kiln.dialects.walk import enclosing
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.builder import Builder, Index

__all__ = ["KernelSignature", "kernel_signature", "wait_for_team", "wrap_kernel"]

_DESCRIPTOR = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"
_OPENMP = ("omp_get_thread_num", "omp_get_num_threads")
_BARRIER = "GOMP_barrier"
_TRAILING = 3  # scratch, tid, nt


@dataclass(frozen=True)
class KernelSignature:
    """How many pointers and symbols a kernel takes; `words` is the length of its block."""

    pointers: int
    symbols: int

    @property
    def words(self) -> int:
        """How many 8-byte words a kernel is called with: pointers, symbols, thread, thread count, scratch."""
        return self.pointers + self.symbols + 3


def kernel_signature(func: ir.Operation, name: str) -> KernelSignature:
    """Checks the argument list of a vector-stage kernel.

    Raises InvalidIRError unless it is memrefs, then indices, then (memref<?xi8>, index, index), without results.
    """
    function_type = ir.FunctionType(ir.TypeAttr(func.attributes["function_type"]).value)
    kinds = "".join(
        "p" if isinstance(t, ir.MemRefType) else "s" if isinstance(t, ir.IndexType) else "?"
        for t in function_type.inputs
    )
    pointers = len(kinds) - len(kinds.lstrip("p"))
    symbols = len(kinds) - pointers - _TRAILING
    if kinds[-_TRAILING:] == "pss" and symbols < 0:  # no symbols: the run of memrefs includes the scratch
        pointers, symbols = len(kinds) - _TRAILING, 0
    well_formed = kinds == "p" * pointers + "s" * max(symbols, 0) + "pss"
    if not well_formed or function_type.results:
        raise InvalidIRError(
            f"kernel @{name} has type {function_type}; expected (memrefs..., symbols: index..., scratch: memref<?xi8>, "
            "tid: index, nt: index) -> ()",
            str(func.location),
        )
    for type_ in list(function_type.inputs)[:pointers]:
        memref = ir.MemRefType(type_)
        if memref.rank != 1 or memref.has_static_shape or str(memref.element_type) == "i1":
            raise InvalidIRError(
                f"kernel @{name} takes {memref}; expected a 1-D memref<?xT> of byte-sized elements (i1 as i8)",
                str(func.location),
            )
    return KernelSignature(pointers, symbols)


def wrap_kernel(module: ir.Module, name: str) -> KernelSignature:
    """Rewrites func @name to bare noalias pointers and adds @name_entry(ptr). In place; returns the signature."""
    func = _find(module, name)
    signature = kernel_signature(func, name)
    shared: set[int] = set()
    if "kiln.shared" in func.attributes:
        shared = set(ir.DenseI64ArrayAttr(func.attributes["kiln.shared"]))
        del func.attributes["kiln.shared"]
    barriers = 0
    if "kiln.barriers" in func.attributes:
        barriers = ir.IntegerAttr(func.attributes["kiln.barriers"]).value
        del func.attributes["kiln.barriers"]
    pointers = _take_pointers(func, signature, shared)
    types = [argument.type for argument in func.regions[0].blocks[0].arguments]
    for part in _hand_on(func, pointers):
        _take_pointers(_find(module, part), signature, shared)
    _add_entry(module, name, signature, types, barriers)
    return signature


def _hand_on(func: ir.Operation, pointers: dict[ir.Value, ir.Value]) -> list[str]:
    """Has calls get pointers in place of the memrefs that these are. The functions that are called so."""
    found: dict[str, None] = {}
    for call in [op.operation for op in func.regions[0].blocks[0] if op.operation.name == "func.call"]:
        for i, operand in enumerate(call.operands):
            if operand in pointers:
                call.operands[i] = pointers[operand]
                found[ir.FlatSymbolRefAttr(call.attributes["callee"]).value] = None
    return list(found)


def _take_pointers(func: ir.Operation, signature: KernelSignature, shared: set[int]) -> dict[ir.Value, ir.Value]:
    """Makes the memrefs that a function takes pointers, and the function private. Memref in its body -> pointer."""
    block = func.regions[0].blocks[0]
    pointer = ir.Type.parse("!llvm.ptr")
    noalias = ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()})
    plain = ir.DictAttr.get({})
    attributes: list[ir.Attribute] = []
    found: dict[Any, Any] = {}
    with ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
        for index, argument in enumerate(block.arguments):
            is_pointer = isinstance(argument.type, ir.MemRefType)
            attributes.append(noalias if is_pointer and index < signature.pointers and index not in shared else plain)
            if is_pointer:
                found[_as_pointer(argument, pointer)] = argument
    types = [argument.type for argument in block.arguments]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    func.attributes["sym_visibility"] = ir.StringAttr.get("private")
    return found


def wait_for_team(b: Builder, nt: Index) -> None:
    """Waits until all `nt` threads of the kernel are here. Not inside of a loop or branch that some do not take."""
    body = enclosing(b.entry, "builtin.module").regions[0].blocks[0]
    if not any("sym_name" in op.attributes and _symbol(op) == _BARRIER for op in body):
        with ir.InsertionPoint.at_block_begin(body):
            FuncOp(_BARRIER, ([], []), visibility="private")
    # A kernel that runs alone may do so beside others of its team.
    b.if_(b.cmpi("sgt", nt, 1), lambda: CallOp([], _BARRIER, []) and None)


def _symbol(op: ir.OpView) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _find(module: ir.Module, name: str) -> ir.Operation:
    for op in module.body:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op.operation
    raise InvalidIRError(f"the module holds no func.func @{name}")


def _add_entry(module: ir.Module, name: str, signature: KernelSignature, types: list[ir.Type], barriers: int) -> None:
    """Appends @name_entry, and the OpenMP declarations that it needs, to the module."""
    declared = {ir.StringAttr(op.attributes["sym_name"]).value for op in module.body if "sym_name" in op.attributes}
    kernel = f"func.func private @{name}({', '.join(str(t) for t in types)})"
    runtime = "\n".join(f"func.func private @{symbol}() -> i32" for symbol in _OPENMP)
    if barriers:
        runtime += f"\nfunc.func private @{_BARRIER}()"
    parsed = ir.Module.parse(f"{kernel}\n{runtime}\n{_entry(name, signature, barriers)}")
    for op in list(parsed.body):
        symbol = ir.StringAttr(op.attributes["sym_name"]).value
        if symbol not in declared:
            module.body.append(op.detach_from_parent())


def _as_pointer(argument: ir.BlockArgument, pointer: ir.Type) -> ir.Value:
    """Makes a memref argument a pointer argument; returns the memref that it was inside of the body."""
    memref = argument.type
    argument.set_type(pointer)
    found, readers = _memref_of(argument, memref)
    argument.replace_all_uses_except(found, readers)
    return found


def memref_of(pointer: ir.Value, type_: ir.Type) -> ir.Value:
    """A 1-D memref from an address on, of no known size."""
    return _memref_of(pointer, type_)[0]


def _memref_of(pointer: ir.Value, type_: ir.Type) -> tuple[ir.Value, list[ir.Operation]]:
    """The memref, and the ops that read the pointer."""
    descriptor = ir.Type.parse(_DESCRIPTOR)
    undefined = ir.Operation.create("llvm.mlir.poison", results=[descriptor]).result

    def insert(into: ir.Value, value: ir.Value, *position: int) -> ir.Operation:
        where = ir.DenseI64ArrayAttr.get(list(position))
        return ir.Operation.create(
            "llvm.insertvalue", results=[descriptor], operands=[into, value], attributes={"position": where}
        )

    i64 = ir.IntegerType.get_signless(64)
    zero = ir.Operation.create(
        "llvm.mlir.constant", results=[i64], attributes={"value": ir.IntegerAttr.get(i64, 0)}
    ).result
    allocated = insert(undefined, pointer, 0)
    aligned = insert(allocated.result, pointer, 1)
    filled = insert(aligned.result, zero, 2)
    cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[filled.result])
    return cast.result, [allocated, aligned]


def _entry(name: str, signature: KernelSignature, barriers: int) -> str:
    """Text of @name_entry."""
    waits = f"func.call @{_BARRIER}() : () -> ()\n  " * barriers
    idle, idle_block = ("idle", f"\n^idle:\n  {waits}llvm.br ^done") if barriers else ("done", "")
    lines: list[str] = []
    operands: list[tuple[str, str]] = []
    pointers, words = signature.pointers, signature.words
    for i in range(words):
        type_ = "!llvm.ptr" if i < pointers or i == words - 3 else "i64"
        lines.append(f"%g{i} = llvm.getelementptr inbounds %blk[{i}] : (!llvm.ptr) -> !llvm.ptr, i64")
        lines.append(f"%w{i} = llvm.load %g{i} {{alignment = 8 : i64}} : !llvm.ptr -> {type_}")
        if pointers <= i < words - 3:
            lines.append(f"%s{i} = builtin.unrealized_conversion_cast %w{i} : i64 to index")
            operands.append((f"%s{i}", "index"))
        elif i < pointers:
            operands.append((f"%w{i}", "!llvm.ptr"))
    operands += [("%scratch", "!llvm.ptr"), ("%tidx", "index"), ("%ntx", "index")]
    body = "\n  ".join(lines)
    values, types = ", ".join(o for o, _ in operands), ", ".join(t for _, t in operands)
    return f"""llvm.func @{name}_entry(%blk: !llvm.ptr) {{
  {body}
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %parallel = llvm.icmp "ne" %w{words - 1}, %zero : i64
  llvm.cond_br %parallel, ^team, ^run(%zero, %one : i64, i64)
^team:
  %t32 = func.call @omp_get_thread_num() : () -> i32
  %n32 = func.call @omp_get_num_threads() : () -> i32
  %t64 = llvm.sext %t32 : i32 to i64
  %n64 = llvm.sext %n32 : i32 to i64
  %limited = llvm.icmp "ugt" %w{words - 1}, %one : i64
  %least = llvm.intr.umin(%w{words - 1}, %n64) : (i64, i64) -> i64
  %working = llvm.select %limited, %least, %n64 : i1, i64
  %mine = llvm.icmp "ult" %t64, %working : i64
  llvm.cond_br %mine, ^run(%t64, %working : i64, i64), ^{idle}{idle_block}
^run(%tid: i64, %nt: i64):
  %offset = llvm.mul %tid, %w{words - 2} : i64
  %scratch = llvm.getelementptr %w{words - 3}[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  %tidx = builtin.unrealized_conversion_cast %tid : i64 to index
  %ntx = builtin.unrealized_conversion_cast %nt : i64 to index
  func.call @{name}({values}) : ({types}) -> ()
  llvm.br ^done
^done:
  llvm.return
}}"""
