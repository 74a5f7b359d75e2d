# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Any torch op as ``kiln.aten``: the way that always exists.

The torch dialect has forgotten what PyTorch's schema knows (a ScalarType is an int there), so arguments are written
by the type that the schema gives them. ``kiln.runtime.aten_call`` reads them back.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.dtypes import DType, dtype_from_code
from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op, tensors_among
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.runtime.strided import DENSE, IN_MEMORY, OWN

from .reshape import same_size
from .shape_ops import list_unpack
from .sizes import Expr, as_expr, constant_of
from .torch_values import ELSEWHERE, NOT_CONSTANT, list_elements, number_of, op_name, python_value

if TYPE_CHECKING:
    from .context import LoweringContext

__all__ = ["aten_name", "convert_to_aten", "is_row_major", "op_strides"]

_TAKEN = paths.group("any calls", "operands with eager's strides", "memory of its own")
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
# Types that only come as a tensor's dtype or an argument; c10::ScalarType numbers.
_OTHER_DTYPES = {12: "qint8", 13: "quint8", 14: "qint32", 44: "float8_e8m0fnu", 45: "float4_e2m1fn_x2"}


def aten_name(name: str) -> str:
    """``aten.add.Tensor`` of ``torch.aten.add.Tensor``; the overload of ``torch.aten.relu`` is ``default``."""
    parts = name.removeprefix(ELSEWHERE).removeprefix("torch.").split(".")
    return ".".join(parts if len(parts) > 2 else [*parts, "default"])


def convert_to_aten(cx: "LoweringContext", reason: str) -> list[ir.Value | None]:
    """Emit ``kiln.aten`` for ``cx.op``; one value per torch result, None for what is no tensor.

    A list result stands for its pieces, which are returned in place of it. Symbols that the op defines
    (``kiln.unbacked``) become index results and are bound. ``reason`` goes to the attribute of that name.

    Raises UnsupportedError if an argument cannot be written: a number computed from data, a generator.
    """
    return _Call(cx).emit(reason)


class _Call:
    def __init__(self, cx: "LoweringContext") -> None:
        self.cx, self.state, self.op = cx, cx.state, cx.op
        called = aten_name(op_name(cx.op))
        self.name = IN_MEMORY.get(called, called)
        self.tensors: list[ir.Value] = []
        self.symbols: list[int] = []  # positions in the function's symbols, in order of first use
        self.strides = self._eager_strides()

    # -- arguments

    def _tensor(self, value: ir.Value) -> dict[str, Any]:
        if value not in self.tensors:
            self.tensors.append(value)
        return {"operand": self.tensors.index(value)}

    def _eager_strides(self) -> dict[ir.Value, list[Expr]]:
        """What ``kiln.operand_strides`` says of the operands."""
        name = "kiln.operand_strides"
        entries = list(ir.ArrayAttr(self.op.attributes[name])) if _has(self.op, name) else []
        values = tensors_among(self.op.operands)
        return {
            v: list(entry.value.results)
            for v, entry in zip(values, entries, strict=False)
            if isinstance(entry, ir.AffineMapAttr)
        }

    def _integer(self, expr: Expr) -> Any:
        """An int, ``{"sym": k}`` or ``{"expr": text}`` over the symbols of this call."""
        known = constant_of(expr)
        if known is not None:
            return known
        expr = self._local(expr).maybe_downcast()
        if isinstance(expr, ir.AffineSymbolExpr):
            return {"sym": expr.position}
        return {"expr": str(expr)}

    def _local(self, expr: Expr) -> Expr:
        """``expr`` over the trailing operands of the call in place of the function's symbols."""
        from kiln.dialects.affine import substitute, symbols_in

        expr = expr.maybe_downcast()  # arithmetic that folds leaves a wrong wrapper class
        for position in sorted(symbols_in(expr)):
            if position not in self.symbols:
                self.symbols.append(position)
        table = {old: ir.AffineExpr.get_symbol(new) for new, old in enumerate(self.symbols)}
        return substitute(expr, {}, table)

    def value(self, value: ir.Value, kind: str) -> Any:
        """The JSON form of an operand whose schema type is ``kind``."""
        cx = self.cx
        kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
        found = self.state.values.get(value)
        if found is not None:
            strides = self.strides.get(value)
            wanted = {"strides": [self._integer(s) for s in strides]} if strides else {}
            return {**self._tensor(found), **wanted}
        elements = list_elements(value)
        if elements is not None:
            inner = kind.removeprefix("List[").removesuffix("]") if kind.startswith("List[") else kind
            return [self.value(element, inner) for element in elements]
        if value in self.state.lists:
            return [self._tensor(piece) for piece in self.state.lists[value] if piece is not None]
        constant = python_value(value)
        if constant is not NOT_CONSTANT:
            return _constant(cx, constant, kind)
        source = defining_op(value)
        if source is not None and source.name == "torch.derefine":
            return self.value(source.operands[0], kind)
        number = number_of(value)
        if number is not None:
            return self._number_as_tensor(value, number)
        if type_text(value.type) == "!torch.int":
            return self._integer(cx.index_of(value))
        if source is not None and source.name in ("torch.aten.Float.Scalar", "torch.aten.Float.int"):
            return self.value(source.operands[0], kind)
        if source is not None and source.name == "torch.aten.div.int":
            return {"div": [self.value(operand, "int") for operand in source.operands]}
        cx.unsupported(f"an argument of type {value.type} that is known only at run time")

    def _number_as_tensor(self, value: ir.Value, number: ir.Value) -> Any:
        """A 0-d tensor that the importer made of a number: computed by Kiln, and passed as a tensor."""
        cx, constant = self.cx, python_value(number)
        info = self.state.result_info(defining_op(value), 0)  # type: ignore[arg-type] - an op made the tensor
        if info is None:
            cx.unsupported("a number of unknown type stands for a tensor")
        if isinstance(constant, int | float):
            return self._tensor(cx.full(constant, [], info.dtype))
        expr, dtype = cx.index_of(number), info.dtype
        out = cx.empty([], dtype)
        size = cx.generic([], [], [out], [[]], "", lambda b, _: b.cast(b.size(expr, self.state.symbol_value), dtype))
        return self._tensor(size[0])

    def arguments(self, schema: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments; trailing ones that have their default are left out."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, operand in zip(schema.arguments, self.op.operands, strict=False):
            if parameter.alias_info is not None and parameter.alias_info.is_write:
                self.strides.pop(operand, None)  # a copy would be written to
            encoded = self.value(operand, str(parameter.real_type))
            if parameter.kwarg_only:
                if encoded is not None or parameter.default_value is not None:
                    kwargs[parameter.name] = encoded
            else:
                args.append(encoded)
        return args, kwargs

    # -- results

    def emit(self, reason: str) -> list[ir.Value | None]:
        """Create the op."""
        op, name, state = self.op, self.name, self.state
        target = _overload(self.cx, name)
        args, kwargs = self.arguments(target._schema)
        _TAKEN.those({"operands with eager's strides": self.strides, "memory of its own": name == OWN})
        # A list result is typed by the op that unpacks it.
        source = op
        if len(op.results) == 1 and type_text(op.results[0].type).startswith("!torch.list"):
            unpack = list_unpack(op.results[0])
            if unpack is None:
                self.cx.unsupported("its list of tensors is not unpacked")
            source = unpack
        unbacked = [ir.StringAttr(n).value for n in op.attributes["kiln.unbacked"]] if _has(op, "kiln.unbacked") else []
        # A symbol of a result's own size is no operand yet: it counts after the operands, as the op's index results.
        infos = [state.result_info(source, k) for k in range(len(source.results))]
        strides = [None if name in DENSE else op_strides(source, k) for k in range(len(source.results))]
        own = [state.symbol_names.index(name) for name in unbacked]
        for info, stride in zip(infos, strides, strict=True):
            for expr in [*(info.shape if info is not None else ()), *(stride or ())]:
                self._reserve(expr, own)
        operands = [state.symbol_value(position) for position in self.symbols]
        count = len(self.symbols) + len(own)
        self.symbols += own
        types: list[ir.Type] = []
        shapes: list[ir.AffineMap | None] = []
        layouts: list[ir.AffineMap | None] = []
        slots: list[int | None] = []
        for k, (info, stride) in enumerate(zip(infos, strides, strict=True)):
            if info is None:
                if type_text(source.results[k].type) not in ("!torch.none", "!torch.int"):
                    self.cx.unsupported(f"result {k} of type {source.results[k].type}")
                slots.append(None)
                continue
            slots.append(len(types))
            types.append(state.tensor_type(info.shape, info.dtype))
            shapes.append(ir.AffineMap.get(0, count, [self._local(size) for size in info.shape]))
            contiguous = stride is None or is_row_major(stride, info.shape)
            layouts.append(None if contiguous else ir.AffineMap.get(0, count, [self._local(s) for s in stride or ()]))
        types += [ir.IndexType.get()] * len(own)
        shapes += [None] * len(own)
        layouts += [None] * len(own)
        pure = _is_pure(target)
        created = kiln.aten(
            name, self.tensors, args, kwargs, types, shapes, layouts, operands, pure=pure, reason=reason
        ).operation
        self._annotate(created, source, own)
        results = list(created.results)
        for symbol, value in zip(unbacked, results[len(results) - len(own) :], strict=True):
            state.bind(symbol, value)
        self._bind_integers(source, own)
        out: list[ir.Value | None] = []
        for slot, info in zip(slots, infos, strict=True):
            value = results[slot] if slot is not None else None
            if value is not None and info is not None:
                state.set_info(value, info.shape, info.dtype)
            out.append(value)
        made = [info.dtype for slot, info in zip(slots, infos, strict=True) if slot is not None and info is not None]
        if any(dtype.kind == "u" for dtype in made):
            created.attributes["result_dtypes"] = _names(made)
        return out

    def _reserve(self, expr: Expr, own: list[int]) -> None:
        from kiln.dialects.affine import symbols_in

        for position in sorted(symbols_in(expr.maybe_downcast())):
            if position not in self.symbols and position not in own:
                self.symbols.append(position)

    def _annotate(self, created: ir.Operation, source: ir.Operation, own: list[int]) -> None:
        """What the op's own attributes have no place for: signs of integers, and where new sizes are read off."""
        dtypes = [self.state.info(tensor).dtype for tensor in self.tensors]
        if any(dtype.kind == "u" for dtype in dtypes):
            created.attributes["operand_dtypes"] = _names(dtypes)
        if op_name(self.op).startswith(ELSEWHERE):
            created.attributes["elsewhere"] = ir.UnitAttr.get()
        if own:
            created.attributes["unbacked"] = ir.ArrayAttr.get(
                [self._unbacked_source(source, own, position) for position in own]
            )
            names = [ir.StringAttr.get(self.state.symbol_names[position]) for position in own]
            created.attributes["unbacked_names"] = ir.ArrayAttr.get(names)

    def _bind_integers(self, source: ir.Operation, own: list[int]) -> None:
        """The op's integer results are new symbols, or have no readers: the importer writes sizes that inputs decide
        where they are read.
        """
        symbols = self._integer_symbols(source, own)
        for number, result in enumerate(_integer_results(source)):
            if number in symbols:
                self.state.sizes[result] = ir.AffineExpr.get_symbol(symbols[number])
            elif list(result.uses):
                self.cx.unsupported("an integer result that is no symbol")

    def _integer_symbols(self, source: ir.Operation, own: list[int]) -> dict[int, int]:
        """The new symbols that are integer results, by the number of these. Without ``kiln.unbacked_results``, which
        says where each new symbol was read off, all are, in order, that are no tensor's size.
        """
        numbers = {result: number for number, result in enumerate(_integer_results(source))}
        if _has(self.op, "kiln.unbacked_results"):
            places = list(ir.DenseI64ArrayAttr(self.op.attributes["kiln.unbacked_results"]))
            results = [source.results[place] for place in places]
            return {numbers[r]: symbol for r, symbol in zip(results, own, strict=True) if r in numbers}
        return dict(enumerate(p for p in own if self._tensor_size(source, p) is None))

    def _unbacked_source(self, source: ir.Operation, own: list[int], position: int) -> ir.Attribute:
        """``[tensor result, dim]`` that has the new symbol as its size, or ``[integer result]``."""
        size = self._tensor_size(source, position)
        if size is not None:
            return ir.DenseI64ArrayAttr.get(list(size))
        number = next((n for n, p in self._integer_symbols(source, own).items() if p == position), None)
        if number is None:
            self.cx.unsupported("a symbol that no result has as a size")
        return ir.DenseI64ArrayAttr.get([number])

    def _tensor_size(self, source: ir.Operation, position: int) -> tuple[int, int] | None:
        """The tensor result and the dim that has a symbol as its size."""
        tensor = 0
        for k in range(len(source.results)):
            info = self.state.result_info(source, k)
            if info is None:
                continue
            for d, expr in enumerate(info.shape):
                size = expr.maybe_downcast()
                if isinstance(size, ir.AffineSymbolExpr) and size.position == position:
                    return tensor, d
            tensor += 1
        return None


def _names(dtypes: "Sequence[DType]") -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(dtype.name) for dtype in dtypes])


def _integer_results(op: ir.Operation) -> list[ir.Value]:
    return [result for result in op.results if type_text(result.type) == "!torch.int"]


def _has(op: ir.Operation, name: str) -> bool:
    return name in op.attributes


def is_row_major(strides: Sequence[Expr], shape: Sequence[Expr]) -> bool:
    """Whether ``strides`` are those of a contiguous tensor (where a dim has more than one element)."""
    step = as_expr(1)
    for stride, size in zip(reversed(strides), reversed(shape), strict=True):
        if constant_of(size) != 1 and not same_size(stride, step):
            return False
        step = step * (1 if constant_of(size) == 0 else size)
    return True


def op_strides(op: ir.Operation, number: int) -> list[Expr] | None:
    """Eager's strides of a result, from ``kiln.strides``; None if they are not given."""
    if not _has(op, "kiln.strides"):
        return None
    entry = ir.ArrayAttr(op.attributes["kiln.strides"])[number]
    return list(entry.value.results) if isinstance(entry, ir.AffineMapAttr) else None


def _overload(cx: "LoweringContext", name: str) -> Any:
    """The operator in this process; its schema names the arguments."""
    from kiln.errors import KilnError
    from kiln.runtime.aten_call import resolve_op

    try:
        return resolve_op(name)
    except KilnError as error:
        raise UnsupportedError(name, str(cx.op.location), str(error)) from error


def _is_pure(target: Any) -> bool:
    """False for ops that write to an operand, draw random numbers, or have no result or registered effects."""
    import torch
    from torch._higher_order_ops import effects

    schema = target._schema
    if schema.is_mutable or not schema.returns or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    has_effects = getattr(effects, "has_effects", None)
    return not (has_effects is not None and has_effects(target))


def _constant(cx: "LoweringContext", value: Any, kind: str) -> Any:
    """JSON of a Python constant of schema type ``kind``."""
    if value is None:
        return None
    if kind == "ScalarType":
        return {"dtype": _dtype_name(cx, value)}
    if kind == "Layout":
        return {"layout": _LAYOUTS[int(value)]}
    if kind == "MemoryFormat":
        return {"memory_format": _MEMORY_FORMATS[int(value)]}
    if kind == "Device":
        return {"device": value}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if kind == "bool" and isinstance(value, int):
        return bool(value)
    return value


def _dtype_name(cx: "LoweringContext", code: int) -> str:
    """The dtype with ScalarType number ``code``.

    torch-mlir's importer writes complex64 as 10, which is complex128 elsewhere: a complex result tells them apart.
    """
    if code in (9, 10):
        for number in range(len(cx.op.results)):
            info = cx.state.result_info(cx.op, number)
            if info is not None and info.dtype.name.startswith("complex"):
                return info.dtype.name
    found: DType | None = dtype_from_code(code)
    if found is not None:
        return found.name
    if code in _OTHER_DTYPES:
        return _OTHER_DTYPES[code]
    cx.unsupported(f"the element type with ScalarType number {code}")
