# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where each tensor of a function lies: sizes, strides and offset in the memory of the value that owns it.

`HostGraph` reads a function at the fused stage. All expressions are over the function's *symbols*: its index values,
numbered in order (index arguments, then index results of `kiln.aten`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import FusionOp, KernelOp, LaunchOp, name_of
from kiln.errors import InvalidIRError
from kiln.lowering.host.kernel_dims import KernelDims

__all__ = ["HostGraph", "Layout", "add", "constant", "contiguous_strides", "is_constant", "linear_strides", "mul"]

Exprs = tuple[ir.AffineExpr, ...]


@dataclass(frozen=True)
class Layout:
    """Element (d0, d1, ...) of a tensor is element ``offset + sum(d_i * strides[i])`` of the memory of `root`."""

    root: ir.Value
    shape: Exprs
    strides: Exprs
    offset: ir.AffineExpr

    def same_strides(self, strides: Sequence[ir.AffineExpr]) -> bool:
        """Whether the strides are these, for all sizes but 1 (and for tensors that are not empty)."""
        if any(is_constant(n, 0) for n in self.shape):
            return True
        pairs = zip(self.strides, strides, self.shape, strict=True)
        return all(a == b or is_constant(n, 1) or affine.equal(a, b) for a, b, n in pairs)


def is_constant(expr: ir.AffineExpr, value: int) -> bool:
    """Whether an expression is this number, as far as its form shows."""
    return affine.constant_of(expr) == value


def add(a: ir.AffineExpr, b: ir.AffineExpr) -> ir.AffineExpr:
    """`a + b`, folded."""
    # Downcast, since the bindings do not see that MLIR folded.
    return (a + b).maybe_downcast()


def mul(a: ir.AffineExpr, b: ir.AffineExpr) -> ir.AffineExpr:
    """`a * b`, folded."""
    return (a * b).maybe_downcast()


def constant(value: int) -> ir.AffineExpr:
    """The expression of a number."""
    return ir.AffineExpr.get_constant(value)


def contiguous_strides(shape: Exprs) -> Exprs:
    """Row-major strides in elements; a size of 0 counts as 1, as in PyTorch."""
    strides: list[ir.AffineExpr] = []
    step = constant(1)
    for size in reversed(shape):
        strides.append(step)
        step = step if is_constant(size, 0) else mul(step, size)
    return tuple(reversed(strides))


def linear_strides(address: ir.AffineExpr, shape: Exprs) -> tuple[ir.AffineExpr, Exprs] | None:
    """(offset, strides) of an address in a tensor of these sizes; None if it is not linear in the indices."""
    linear = affine.linear_coefficients(address)
    if linear is None:
        return None
    offset, coefficients = linear
    natural = contiguous_strides(shape)
    # Along a size of 1 nothing moves, and simplification drops the dim: PyTorch reports a stride all the same.
    return offset, tuple(
        natural[i] if is_constant(n, 1) and i not in coefficients else coefficients.get(i, constant(0))
        for i, n in enumerate(shape)
    )


class HostGraph:
    """Analysis of one function at the fused stage, or with launches of kernels.

    `assigned` overrides the strides of values (see assign-layouts).
    """

    def __init__(self, function: ir.OpView) -> None:
        self.function = function.operation
        self.block = self.function.regions[0].blocks[0]
        self.arguments = list(self.block.arguments)
        self.assigned: dict[ir.Value, Exprs] = {}
        self._shapes: dict[ir.Value, Exprs] = {}
        self._layouts: dict[ir.Value, Layout | None] = {}
        self._kernels: dict[ir.Operation, KernelDims] = {}
        self._symbols_of: dict[ir.Operation, dict[int, ir.AffineExpr]] = {}
        self._launched: dict[str, KernelOp] | None = None
        self.symbols: list[ir.Value] = [a for a in self.arguments if isinstance(a.type, ir.IndexType)]
        for op in self.block:
            if name_of(op) == "kiln.aten":
                self.symbols += [r for r in op.operation.results if isinstance(r.type, ir.IndexType)]
        self.position = {value: i for i, value in enumerate(self.symbols)}
        self.operations = list(self.block)[:-1]
        self.returned = list(list(self.block)[-1].operands)
        self._named = self._symbol_names()

    # -- attributes of the function ------------------------------------------------------------------

    def argument_attribute(self, index: int, name: str) -> ir.Attribute | None:
        """An attribute of the function's argument `index`; None without it."""
        return _entry(self.function, "arg_attrs", index, name)

    def result_attribute(self, index: int, name: str) -> ir.Attribute | None:
        """An attribute of the function's result `index`; None without it."""
        return _entry(self.function, "res_attrs", index, name)

    def symbol_name(self, position: int) -> str:
        """The name of a symbol: its argument's `kiln.symbol`, or u<i> for a result of `kiln.aten`."""
        return next((name for name, p in self._named.items() if p == position), f"s{position}")

    def _symbol_names(self) -> dict[str, int]:
        """Name in `kiln.symbols` -> position here."""
        names: dict[str, int] = {}
        for i, argument in enumerate(self.arguments):
            attribute = self.argument_attribute(i, "kiln.symbol")
            if attribute is not None and argument in self.position:
                names[ir.StringAttr(attribute).value] = self.position[argument]
        for op in self.block:
            if name_of(op) == "kiln.aten" and "unbacked_names" in op.operation.attributes:
                indices = [r for r in op.operation.results if r in self.position]
                given = ir.ArrayAttr(op.operation.attributes["unbacked_names"])
                names |= {ir.StringAttr(n).value: self.position[r] for n, r in zip(given, indices, strict=True)}
        return names

    def function_map(self, attribute: ir.Attribute) -> Exprs | None:
        """A map over the function's `kiln.symbols`, in this numbering; None if it uses a symbol without a value."""
        map_ = ir.AffineMapAttr(attribute).value
        used: set[int] = set()
        for e in map_.results:
            used |= affine.symbols_in(e)
        order = self.function.attributes["kiln.symbols"] if "kiln.symbols" in self.function.attributes else None
        names = [ir.StringAttr(n).value for n in order] if order is not None else list(self._named)
        replace: dict[int, ir.AffineExpr] = {}
        for i in used:
            if i >= len(names) or names[i] not in self._named:
                return None
            replace[i] = ir.AffineExpr.get_symbol(self._named[names[i]])
        return tuple(affine.substitute(e, {}, replace) for e in map_.results)

    def local_map(self, op: ir.Operation, map_: ir.AffineMap) -> Exprs:
        """A map over an op's trailing index operands (then, for kiln.aten, its index results), in this numbering."""
        replace = self._symbols_of.get(op)
        if replace is None:
            values = [v for v in op.operands if isinstance(v.type, ir.IndexType)]
            if name_of(op) == "kiln.aten":
                values += [r for r in op.results if isinstance(r.type, ir.IndexType)]
            replace = self._symbols_of[op] = {i: self.symbol(v) for i, v in enumerate(values)}
        return tuple(affine.substitute(e, {}, replace) for e in map_.results)

    def symbol(self, value: ir.Value) -> ir.AffineExpr:
        """An index value as an expression: a symbol, or the number that an arith.constant is."""
        if value in self.position:
            return ir.AffineExpr.get_symbol(self.position[value])
        owner = value.owner
        if isinstance(owner, (ir.Operation, ir.OpView)) and owner.operation.name == "arith.constant":
            return constant(ir.IntegerAttr(owner.operation.attributes["value"]).value)
        raise InvalidIRError(f"index value {value}: expected an argument, a result of kiln.aten or a constant")

    # -- sizes -----------------------------------------------------------------------------------------

    def shape(self, value: ir.Value) -> Exprs:
        """Sizes of a tensor value."""
        if value not in self._shapes:
            self._shapes[value] = self._shape(value)
        return self._shapes[value]

    def _shape(self, value: ir.Value) -> Exprs:
        type_ = ir.RankedTensorType(value.type)
        if type_.has_static_shape:
            return tuple(constant(n) for n in type_.shape)
        if isinstance(value.owner, ir.Block):
            attribute = self.argument_attribute(ir.BlockArgument(value).arg_number, "kiln.shape")
            shape = self.function_map(attribute) if attribute is not None else None
            if shape is None:
                raise InvalidIRError(f"argument {value}: a dynamic tensor needs the attribute kiln.shape")
            return shape
        op = value.owner.operation
        number = ir.OpResult(value).result_number
        if name_of(op) == "kiln.aten":
            return self.local_map(op, ir.AffineMapAttr(ir.ArrayAttr(op.attributes["shapes"])[number]).value)
        if isinstance(op.opview, FusionOp | LaunchOp):
            return self._fusion_shape(op, number)
        return self.local_map(op, ir.AffineMapAttr(op.attributes["shape"]).value)

    def _fusion_shape(self, op: ir.Operation, number: int) -> Exprs:
        from kiln.dialects.shapes import SymbolicShapes

        fusion = self.launched(op).fusion if name_of(op) == "kiln.launch" else op.opview
        terminator = list(fusion.regions[0].blocks[0])[-1]
        dims = SymbolicShapes(fusion).dims(terminator.operands[number])
        return self.local_map(op, ir.AffineMap.get(0, len(op.operands), list(dims)))

    def launched(self, launch: ir.Operation) -> KernelOp:
        """The kernel of a `kiln.launch`. Raises InvalidIRError where there is none."""
        if self._launched is None:
            module = self.function.parent
            ops = list(module.regions[0].blocks[0].operations) if module is not None else []
            self._launched = {op.symbol: op for op in ops if isinstance(op, KernelOp)}
        name = ir.StringAttr(launch.attributes["kernel"]).value
        if name not in self._launched:
            raise InvalidIRError(f"there is no kiln.kernel @{name}", str(launch.location))
        return self._launched[name]

    # -- layouts -------------------------------------------------------------------------------------------

    def layout(self, value: ir.Value) -> Layout | None:
        """The layout of a tensor; None for a view that no strides describe."""
        if value not in self._layouts:
            self._layouts[value] = self._layout(value)
        return self._layouts[value]

    def strided_layout(self, value: ir.Value) -> Layout:
        """The layout of a tensor, in IR whose layouts are assigned.

        Raises:
            InvalidIRError: a view that no strides describe.
        """
        layout = self.layout(value)
        if layout is None:
            raise InvalidIRError("a view that no strides describe; run assign-layouts first", str(value.location))
        return layout

    def assign(self, value: ir.Value, strides: Exprs) -> None:
        """Fixes the strides of a root value."""
        self.assigned[value] = strides
        self._drop(value)

    def forget(self, value: ir.Value) -> None:
        """Undo `assign`."""
        self.assigned.pop(value, None)
        self._drop(value)

    def _drop(self, value: ir.Value) -> None:
        """Forgets where a value lies, and the views of it."""
        pending = [value]
        while pending:
            value = pending.pop()
            self._layouts.pop(value, None)
            for use in value.uses:
                if name_of(use.owner) == "kiln.view":
                    pending += use.owner.operation.results

    def kernel(self, fusion: ir.Operation) -> KernelDims:
        """Where the dims of a fusion's operands are in its results."""
        found = self._kernels.get(fusion)
        if found is None:
            found = self._kernels[fusion] = KernelDims(fusion)
        return found

    def _layout(self, value: ir.Value) -> Layout | None:
        shape = self.shape(value)
        if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "kiln.view":
            return self._view_layout(value.owner.operation, shape)
        return Layout(value, shape, self.assigned.get(value) or self._own_strides(value, shape), constant(0))

    def _own_strides(self, value: ir.Value, shape: Exprs) -> Exprs:
        found: Exprs | None = None
        if isinstance(value.owner, ir.Block):
            attribute = self.argument_attribute(ir.BlockArgument(value).arg_number, "kiln.strides")
            found = self.function_map(attribute) if isinstance(attribute, ir.AffineMapAttr) else None
        elif isinstance(value.owner.operation.opview, FusionOp | LaunchOp):
            found = self._assigned_strides(value, shape)
        elif name_of(value.owner) == "kiln.aten":
            op = value.owner.operation
            attribute = ir.ArrayAttr(op.attributes["strides"])[ir.OpResult(value).result_number]
            if isinstance(attribute, ir.AffineMapAttr):
                found = self.local_map(op, attribute.value)
        return contiguous_strides(shape) if found is None else found

    def _assigned_strides(self, value: ir.Value, shape: Exprs) -> Exprs | None:
        """The strides of a fusion's result as its attribute `layouts` has them."""
        op = ir.OpResult(value).owner.operation
        if "layouts" not in op.attributes:
            return None
        tensors = sum(not isinstance(v.type, ir.IndexType) for v in op.operands)
        entry = ir.ArrayAttr(op.attributes["layouts"])[tensors + ir.OpResult(value).result_number]
        linear = linear_strides(self.local_map(op, ir.AffineMapAttr(entry).value)[0], shape)
        return linear[1] if linear is not None else None

    def _view_layout(self, op: ir.Operation, shape: Exprs) -> Layout | None:
        source = self.layout(op.operands[0])
        if source is None:
            return None
        if any(is_constant(n, 0) for n in shape):  # no element is addressed: a flip would start before the memory
            return Layout(source.root, shape, contiguous_strides(shape), constant(0))
        indices = self.local_map(op, ir.AffineMapAttr(op.attributes["map"]).value)
        address = source.offset
        for index, stride in zip(indices, source.strides, strict=True):
            address = add(address, mul(index, stride))
        linear = linear_strides(affine.simplify(address, shape), shape)
        if linear is None:
            return None
        offset, strides = linear
        return Layout(source.root, shape, strides, offset)


def _entry(op: ir.Operation, group: str, index: int, name: str) -> ir.Attribute | None:
    if group not in op.attributes:
        return None
    entry = ir.DictAttr(ir.ArrayAttr(op.attributes[group])[index])
    return entry[name] if name in entry else None
