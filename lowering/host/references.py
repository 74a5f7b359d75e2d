# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a step of a plan computes, as IR of its own: for checked execution, and for running the step alone.

A reference is a module with a function @main that holds one `kiln.fusion` or `kiln.aten`, with its locations. Its
arguments are the op's tensor operands, then its index operands; an operand that is a packed constant is packed inside.
In a plan it returns the results that anything reads.
"""

import re
from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects import affine
from kiln.dialects.kiln import name_of, to_text
from kiln.dialects.walk import defining_op

__all__ = ["argument_marks", "arranged", "is_checked_call", "is_checked_name", "reference_text"]

_NOT_UNIQUE = re.compile(r"svd|linalg_(eig|qr|lu|ldl|lstsq)|geqrf|ormqr|lobpcg|_lu_with_info|lu_unpack")
"""Decompositions: signs, bases and orders of their results are a library's choice."""
_OF_ONE_TYPE = re.compile(
    r"empty|resize|view\.dtype|nextafter|frexp|nan_to_num|_rnn|_lstm|_gru|quantize|_weight_int|_ctc"
)
"""Memory that nothing wrote (of some results, parts), bits and limits of a type, libraries' own memory."""


def is_checked_name(op: str) -> bool:
    """Whether an op of PyTorch's ("aten.topk.default") has one right result, in any type."""
    return op.startswith("aten.") and not _NOT_UNIQUE.search(op) and not _OF_ONE_TYPE.search(op)


def is_checked_call(op: ir.Operation) -> bool:
    """Whether a `kiln.aten` can be compared with the same call on other tensors.

    Not compared: ops of other libraries, which may count their calls; what draws random numbers, writes to an operand
    or has sizes that only the call knows; complex and unsigned numbers; and what another type computes otherwise.
    """
    if not is_checked_name(ir.StringAttr(op.attributes["op"]).value):
        return False
    if not op.attributes["pure"].value or "elsewhere" in op.attributes:
        return False
    unsigned = list(op.attributes["operand_dtypes"]) if "operand_dtypes" in op.attributes else []
    tensors = [v.type for v in [*op.operands, *op.results] if isinstance(v.type, ir.RankedTensorType)]
    return (
        not any(ir.StringAttr(d).value.startswith("uint") for d in unsigned)
        and all(isinstance(r.type, ir.RankedTensorType) for r in op.results)
        and not any(isinstance(t.element_type, ir.ComplexType) for t in tensors)
    )


def reference_text(op: ir.Operation, results: Sequence[int] | None = None, *, debug_info: bool = True) -> str | None:
    """The reference of an op of a function, with its locations if `debug_info`; None for an op that does not verify by
    itself.

    That is a call whose type knows less than its sizes: constants were folded into these.
    results: the numbers of those that it returns, by default all.
    """
    with op.context, ir.Location.unknown(op.context):
        module = ir.Module.create()
        packs = [_pack_of(v) for v in op.operands]
        sources = [v if p is None else p.operands[0] for v, p in zip(op.operands, packs, strict=True)]
        returned = range(len(op.results)) if results is None else results
        types = [v.type for v in sources]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", (types, [op.results[i].type for i in returned]))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            values: list[ir.Value] = []
            for argument, pack in zip(block.arguments, packs, strict=True):
                values.append(argument if pack is None else _clone(pack, [argument]).results[0])
            made = _clone(op, values)
            func.ReturnOp([made.results[i] for i in returned], loc=op.location)
        if "writes" in made.attributes:
            del made.attributes["writes"]  # numbers of arguments of the function that it comes from
        _mark_arguments(function, packs)
        try:
            module.operation.verify()
        except ir.MLIRError:
            return None
        return to_text(module, enable_debug_info=debug_info)


def _clone(op: ir.Operation, operands: Sequence[ir.Value]) -> ir.Operation:
    made = op.clone().operation
    for i, value in enumerate(operands):
        made.operands[i] = value
    return made


def _pack_of(value: ir.Value) -> ir.Operation | None:
    op = defining_op(value)
    return op if op is not None and name_of(op) == "kiln.pack" else None


def _mark_arguments(function: func.FuncOp, packs: Sequence[ir.Operation | None]) -> None:
    """Names of the symbols, and which arguments are constants."""
    marks: list[ir.Attribute] = []
    symbols: list[ir.Attribute] = []
    for i, (argument, pack) in enumerate(zip(function.arguments, packs, strict=True)):
        own: dict[str, ir.Attribute] = {}
        if isinstance(argument.type, ir.IndexType):
            own["kiln.symbol"] = ir.StringAttr.get(f"s{len(symbols)}")
            symbols.append(own["kiln.symbol"])
        if pack is not None:
            own["kiln.constant"] = ir.StringAttr.get(f"c{i}")
        marks.append(ir.DictAttr.get(own))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(marks)
    function.attributes["kiln.symbols"] = ir.ArrayAttr.get(symbols)


def arranged(
    module: ir.Module,
    operands: Sequence[tuple[Sequence[int], Sequence[int]]],
    results: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> None:
    """Writes the sizes and strides of a call, in elements, to a reference's function, so that it can be planned."""
    function = module.body.operations[0].operation
    with module.context, ir.Location.unknown():
        function.attributes["arg_attrs"] = _arrangement(argument_marks(function), operands)
        function.attributes["res_attrs"] = _arrangement([ir.DictAttr.get({})] * len(results), results)
        for op in function.regions[0].blocks[0]:
            if "layouts" in op.attributes:
                _turn(op.operation, operands)


def _turn(fusion: ir.Operation, operands: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
    """Layouts that a call reads backwards become those of the tensors that it was given, which cannot be."""
    maps = list(ir.ArrayAttr(fusion.attributes["layouts"]))
    for i, (shape, strides) in enumerate(operands):
        line = affine.linear_coefficients(ir.AffineMapAttr(maps[i]).value.results[0])
        if line is None or all((affine.constant_of(step) or 0) >= 0 for step in line[1].values()):
            continue
        address = ir.AffineExpr.get_constant(0)
        for d, (size, step) in enumerate(zip(shape, strides, strict=True)):
            address = address + ir.AffineExpr.get_dim(d) * (step if size > 1 else 0)
        found = ir.AffineMapAttr(maps[i]).value
        maps[i] = ir.AffineMapAttr.get(ir.AffineMap.get(found.n_dims, found.n_symbols, [address]))
    fusion.attributes["layouts"] = ir.ArrayAttr.get(maps)


def argument_marks(function: ir.Operation) -> list[ir.DictAttr]:
    """The attributes of each argument, which text leaves out where there are none at all."""
    if "arg_attrs" not in function.attributes:
        return [ir.DictAttr.get({}, function.context)] * len(function.regions[0].blocks[0].arguments)
    return [ir.DictAttr(m) for m in ir.ArrayAttr(function.attributes["arg_attrs"])]


def _arrangement(marks: Sequence[ir.DictAttr], tensors: Sequence[tuple[Sequence[int], Sequence[int]]]) -> ir.ArrayAttr:
    found: list[ir.Attribute] = []
    for i, own in enumerate(marks):
        entries = {named.name: named.attr for named in own}
        if i < len(tensors):
            for name, numbers in zip(("kiln.shape", "kiln.strides"), tensors[i], strict=True):
                exprs = [ir.AffineExpr.get_constant(n) for n in numbers]
                entries[name] = ir.AffineMapAttr.get(ir.AffineMap.get(0, 0, exprs))
        found.append(ir.DictAttr.get(entries))
    return ir.ArrayAttr.get(found)
