# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Edits of a module that make it smaller and leave it well formed. Whether it is still broken is for others to say.

A value that something needs and nothing computes any more becomes an argument of its function, with what is known of
its sizes, so that every piece of a function is a function.
"""

from collections.abc import Iterable, Sequence

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op, ops_inside
from kiln.errors import KilnError
from kiln.tools.debugging import fusions

__all__ = [
    "FREE",
    "computing_ops",
    "cut",
    "entry_of",
    "erase_dead",
    "functions_of",
    "is_end",
    "is_tensor",
    "keep_arguments",
    "return_values",
    "size_of",
]

FREE = ("torch.constant.", "torch.prim.ListConstruct", "torch.derefine", "arith.constant", "kiln.empty", "llvm.mlir.")
"""Ops that say a number, a list or a size: no one counts them, and they stay where something needs them."""

_ENDS = ("kiln.yield", "scf.reduce", "llvm.br", "llvm.cond_br", "llvm.switch", "llvm.unreachable")


def functions_of(module: ir.Module) -> list[ir.Operation]:
    """The functions with a body: of tensors, of kernels, and of LLVM's dialect."""
    found = [
        op.operation for op in module.body.operations if op.operation.name in ("func.func", "tt.func", "llvm.func")
    ]
    return [op for op in found if len(op.regions[0].blocks)]


def entry_of(module: ir.Module) -> ir.Operation:
    """The first function with a body. Raises KilnError without any."""
    functions = functions_of(module)
    if not functions:
        raise KilnError("the module has no function with a body")
    return functions[0]


def size_of(module: ir.Module) -> int:
    """The number of ops that compute: those at any depth but constants, lists, and ends of blocks."""
    ops = (op for function in functions_of(module) for op in ops_inside(function))
    return sum(not op.name.startswith(FREE) and not is_end(op) for op in ops)


def is_end(op: ir.Operation) -> bool:
    """Whether an op ends a block."""
    return op.name.startswith(_ENDS) or op.name.endswith((".return", ".yield"))


def is_tensor(value: ir.Value) -> bool:
    """Whether a value is a tensor of the torch dialect, or a builtin one."""
    return isinstance(value.type, ir.RankedTensorType) or type_text(value.type).startswith("!torch.vtensor")


def computing_ops(function: ir.Operation) -> list[ir.Operation]:
    """The ops of the function's block and of its fusions' blocks, but their ends; a fusion stands behind its ops."""
    found: list[ir.Operation] = []
    for op in function.regions[0].blocks[0].operations:
        found += [*(fusions.body_of(op.operation)[:-1] if fusions.is_fusion(op.operation) else ()), op.operation]
    return found[:-1]


def cut(function: ir.Operation, doomed: Iterable[ir.Operation]) -> bool:
    """Makes arguments of the tensors that ops of the function or of a fusion in it compute, which are not needed then.

    Ops that only say a number or a size stay. Returns whether anything changed.
    """
    changed = False
    shapes = _Sizes(function)
    doomed = [op for op in doomed if not op.name.startswith(FREE)]
    given: dict[ir.Operation, list[tuple[ir.Value, ir.Value]]] = {}
    for op in doomed:
        fusion = op.parent.operation if op.parent is not None and op.parent.operation != function else None
        if fusion in doomed:
            continue
        for result in op.results:
            if is_tensor(result) and any(True for _ in result.uses):
                argument = _new_argument(function, result, shapes)
                if fusion is None:
                    result.replace_all_uses_with(argument)
                else:
                    given.setdefault(fusion, []).append((result, argument))
                changed = True
    for fusion, pairs in given.items():
        fusions.fed(fusion, pairs)
    erase_dead(function)
    return changed


def return_values(function: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Lets the function return these values, of its block or of a fusion in it, and drops what nothing needs then."""
    terminator = _terminator(function)
    values = _outside(function, values)
    given = list(ir.ArrayAttr(function.attributes["res_attrs"])) if "res_attrs" in function.attributes else None
    if given is not None:
        # A result's attributes are those of the value that is returned there now, as fusions may have been built anew.
        now = list(terminator.operands)
        kept = [given[now.index(v)] if v in now else ir.DictAttr.get({}) for v in values]
        function.attributes["res_attrs"] = ir.ArrayAttr.get(kept)
    with ir.InsertionPoint(terminator), terminator.location:
        ir.Operation.create(terminator.name, operands=list(values))
    terminator.erase()
    _retype(function)
    erase_dead(function)


def _outside(function: ir.Operation, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The values, with results of fusions for those of their bodies."""
    found = list(values)
    of: dict[ir.Operation, list[int]] = {}
    for number, value in enumerate(values):
        op = defining_op(value)
        if op is not None and fusions.is_fusion(op):
            of.setdefault(op, []).append(number)
        elif op is not None and op.parent is not None and op.parent.operation != function:
            of.setdefault(op.parent.operation, []).append(number)
    for fusion, numbers in of.items():
        for number, result in zip(numbers, fusions.with_results(fusion, [values[k] for k in numbers]), strict=True):
            found[number] = result
    return found


def keep_arguments(function: ir.Operation) -> None:
    """Drops arguments that nothing reads; sizes (index, !torch.int) stay, as maps may count them."""
    block = function.regions[0].blocks[0]
    given = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else None
    for number in reversed(range(len(block.arguments))):
        argument = block.arguments[number]
        if is_tensor(argument) and not any(True for _ in argument.uses):
            block.erase_argument(number)
            if given is not None:
                del given[number]
    if given is not None:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(given)
    _retype(function)


def erase_dead(function: ir.Operation) -> None:
    """Erases what nothing reads: ops at any depth, results and operands of fusions, arguments."""
    _erase_unread(function)
    while any(fusions.is_fusion(op) and fusions.pruned(op) for op in computing_ops(function)):
        _erase_unread(function)
    if function.name == "func.func" and any(is_tensor(v) for v in function.regions[0].blocks[0].arguments):
        keep_arguments(function)


def _erase_unread(function: ir.Operation) -> None:
    # What reads an op stands behind it or around it, so one walk from the end sees each after its readers are gone.
    for op in reversed(list(ops_inside(function))):
        only_writes = is_end(op) or not len(op.results)
        if not only_writes and not any(True for result in op.results for _ in result.uses):
            op.erase()


class _Sizes:
    """Sizes of values as maps over the function's symbols, for arguments that are made of them."""

    def __init__(self, function: ir.Operation) -> None:
        is_torch = "!torch." in str(function.attributes["function_type"])
        self._shapes = None if is_torch else SymbolicShapes(function)
        names = function.attributes["kiln.symbols"] if "kiln.symbols" in function.attributes else ()
        self._symbols = len(ir.ArrayAttr(names)) if names else 0

    def attributes(self, value: ir.Value) -> dict[str, ir.Attribute]:
        """``kiln.shape`` and ``kiln.strides`` of a result, as far as its op says."""
        if self._shapes is not None:
            type_ = ir.RankedTensorType(value.type)
            if type_.has_static_shape:
                return {}
            parent = value.owner.operation.parent
            if parent is not None and fusions.is_fusion(parent.operation):
                sizes = fusions.outer_shape(value, self._shapes)
            else:
                sizes = ir.AffineMap.get(0, len(self._shapes.symbols), list(self._shapes.dims(value)))
            return {"kiln.shape": ir.AffineMapAttr.get(sizes)}
        op, number = value.owner, ir.OpResult(value).result_number
        found: dict[str, ir.Attribute] = {}
        for key, name in (("kiln.shape", "kiln.shapes"), ("kiln.strides", "kiln.strides")):
            entries = list(ir.ArrayAttr(op.attributes[name])) if name in op.attributes else []
            if number < len(entries) and isinstance(entries[number], ir.AffineMapAttr):
                found[key] = entries[number]
        return found


def _new_argument(function: ir.Operation, value: ir.Value, shapes: _Sizes) -> ir.Value:
    attributes = shapes.attributes(value)
    block = function.regions[0].blocks[0]
    given = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else None
    if given is not None or attributes:
        given = given or [ir.DictAttr.get({})] * len(block.arguments)
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([*given, ir.DictAttr.get(attributes)])
    argument = block.add_argument(value.type, value.location)
    _retype(function)
    return argument


def _terminator(function: ir.Operation) -> ir.Operation:
    return list(function.regions[0].blocks[0].operations)[-1].operation


def _retype(function: ir.Operation) -> None:
    inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    results = [value.type for value in _terminator(function).operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
