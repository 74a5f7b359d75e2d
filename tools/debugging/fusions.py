# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Edits of fusions: values of a body become operands or results of the fusion; what nothing reads goes.

An op's operands and results are fixed, so each edit builds the fusion anew around the ops of its body.
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.kiln import opdef
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op

__all__ = ["body_of", "fed", "is_fusion", "kind_of", "outer_shape", "pruned", "with_results"]

_OPTIONAL = ("in_place", "writes", "unaligned")
"""Attributes that number tensors and that a fusion may be without."""


def is_fusion(op: ir.Operation) -> bool:
    """Whether an op is one kernel."""
    return op.name.startswith("kiln.fusion")


def body_of(fusion: ir.Operation) -> list[ir.Operation]:
    """The ops of its block; the last one yields."""
    return [op.operation for op in fusion.regions[0].blocks[0].operations]


def kind_of(fusion: ir.Operation) -> str:
    """The ``kind`` that ``fuse`` gives to a body with these ops."""
    ops = body_of(fusion)
    named = next((opdef(op).kind for op in ops if op.name.startswith("kiln.") and opdef(op).has_kernel), None)
    reduces = any("reduction" in str(op.attributes["iterator_types"]) for op in ops if op.name == "linalg.generic")
    return named or ("reduction" if reduces else "pointwise")


def outer_shape(value: ir.Value, outside: SymbolicShapes) -> ir.AffineMap:
    """Sizes of a value in a fusion's body, over the symbols of the function around it.

    Raises ValueError where they depend on data.
    """
    fusion = value.owner.parent
    shapes = SymbolicShapes(fusion)
    given = [outside.expr(v) for v in fusion.operands if isinstance(v.type, ir.IndexType)]
    dims = shapes.dims(value)
    if shapes.fresh:
        raise ValueError("the sizes depend on data")
    return ir.AffineMap.get(0, outside.n_symbols, [affine.substitute(d, (), given) for d in dims])


def pruned(fusion: ir.Operation) -> bool:
    """Drops results and operands that nothing reads and says of which kind its ops make it; whether that changed it."""
    values = (*fusion.results, *fusion.regions[0].blocks[0].arguments)
    is_lean = all(_is_read(v) for v in values if not isinstance(v.type, ir.IndexType))
    if is_lean and ir.StringAttr(fusion.attributes["kind"]).value == kind_of(fusion):
        return False
    _rebuilt(fusion, [], [])
    return True


def fed(fusion: ir.Operation, pairs: Sequence[tuple[ir.Value, ir.Value]]) -> None:
    """Makes operands of values of its body: each of ``pairs`` is one and the value outside that takes its place."""
    _rebuilt(fusion, pairs, [])


def with_results(fusion: ir.Operation, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The results of the fusion, built anew, that are these values of its body or results of it."""
    yields = list(body_of(fusion)[-1].operands)
    inner = [yields[ir.OpResult(v).result_number] if defining_op(v) == fusion else v for v in values]
    return _rebuilt(fusion, [], inner)


def _rebuilt(
    fusion: ir.Operation, pairs: Sequence[tuple[ir.Value, ir.Value]], wanted: Sequence[ir.Value]
) -> list[ir.Value]:
    """Builds it anew, with operands that are read or of ``pairs``, and results that are read or ``wanted``: these."""
    block, end = fusion.regions[0].blocks[0], body_of(fusion)[-1]
    yields, operands, arguments = list(end.operands), list(fusion.operands), list(block.arguments)
    kept = [k for k, result in enumerate(fusion.results) if _is_read(result)]
    yielded = list(dict.fromkeys([*(yields[k] for k in kept), *wanted]))
    sources = [yields.index(v) if v in yields else None for v in yielded]
    symbols = [k for k, v in enumerate(operands) if isinstance(v.type, ir.IndexType)]
    tensors = [k for k in range(len(operands)) if k not in symbols and _is_read(arguments[k])]
    attributes = _attributes(fusion, tensors, [v for v, _ in pairs], sources)
    outer = [*(operands[k] for k in tensors), *(v for _, v in pairs)]
    name = ir.StringAttr(fusion.attributes["name"]).value
    with ir.InsertionPoint(fusion), fusion.location:
        types = [v.type for v in yielded]
        new = kiln.fusion(outer, types, kind_of(fusion), name, [operands[k] for k in symbols]).operation
    given = list(new.regions[0].blocks[0].arguments)
    for k, argument in zip([*tensors, *symbols], [*given[: len(tensors)], *given[len(outer) :]], strict=True):
        arguments[k].replace_all_uses_with(argument)
    for (value, _), argument in zip(pairs, given[len(tensors) : len(outer)], strict=True):
        value.replace_all_uses_with(argument)
    for k in kept:
        fusion.results[k].replace_all_uses_with(new.results[yielded.index(yields[k])])
    ends = list(end.operands)  # with the new arguments among them
    with ir.InsertionPoint(new.regions[0].blocks[0]), fusion.location:
        values = [v if k is None else ends[k] for v, k in zip(yielded, sources, strict=True)]
        new_end = kiln.yield_(values).operation
    for op in body_of(fusion)[:-1]:
        op.move_before(new_end)
    for key, value in attributes.items():
        new.attributes[key] = value
    fusion.erase()
    return [new.results[yielded.index(v)] for v in wanted]


def _attributes(
    fusion: ir.Operation, tensors: Sequence[int], added: Sequence[ir.Value], results: Sequence[int | None]
) -> dict[str, ir.Attribute]:
    """What passes say of the fusion, for some of its operands and results; None stands for a new result.

    Raises ValueError where nothing can be said of an added operand or a new result.
    """
    found = {key: fusion.attributes[key] for key in fusion.attributes if key not in ("kind", "name", *_OPTIONAL)}
    old = [k for k in results if k is not None]
    if (added or len(old) < len(results)) and "layouts" in found:
        raise ValueError("layouts are assigned already")
    if "shapes" in found:
        shapes = SymbolicShapes(fusion)
        sizes = [shapes.shape_map(v) for v in added]
        if shapes.fresh:
            raise ValueError("the sizes depend on data")
        maps = list(ir.ArrayAttr(found["shapes"]))
        found["shapes"] = ir.ArrayAttr.get([*(maps[k] for k in tensors), *map(ir.AffineMapAttr.get, sizes)])
    elif any(not ir.RankedTensorType(v.type).has_static_shape for v in added):
        raise ValueError("the fusion says nothing of sizes")
    count = sum(not isinstance(v.type, ir.IndexType) for v in fusion.operands)
    for key in ("layouts", "offsets"):
        if key in found:
            maps = list(ir.ArrayAttr(found[key]))
            found[key] = ir.ArrayAttr.get([maps[k] for k in (*tensors, *(count + k for k in old))])
    if "parts" in found:
        _renumber_parts(found, results)
    return found


def _renumber_parts(found: dict[str, ir.Attribute], results: Sequence[int | None]) -> None:
    """Numbers the parts of a fusion with these results; it has one where a result is new."""
    numbers = list(ir.DenseI64ArrayAttr(found["parts"]))
    parts = [numbers[k] for k in results if k is not None]
    left = sorted(set(parts))
    if len(left) == len(set(numbers)) and len(parts) == len(results):
        found["parts"] = ir.DenseI64ArrayAttr.get(parts)
        return
    for key in ("parts", "waits"):
        found.pop(key, None)
    if len(left) > 1 and len(parts) == len(results):
        found["parts"] = ir.DenseI64ArrayAttr.get([left.index(part) for part in parts])


def _is_read(value: ir.Value) -> bool:
    return any(True for _ in value.uses)
