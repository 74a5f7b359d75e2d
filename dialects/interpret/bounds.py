# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers with a bound of the error that a kernel may have computed them with: running error analysis in float64.

Every value has, beside its elements in float64, two distances per element:

- `error`: a bound that holds whatever the signs of the errors are; it adds up.
- `noise`: the size of roundings that are independent between elements; it adds up in squares where elements are
  summed (probabilistic rounding error analysis: N. J. Higham, T. Mary, SIAM J. Sci. Comput. 41, 2019). What is read
  at several indices is not independent there: its noise becomes error first. Nearly equal numbers are rounded alike:
  a sum may be off by all its terms' noise in one direction, too, and a recurrence by that of all its steps.

A kernel's result may be `error + CONFIDENCE * noise` off. Sums of n terms are rounded n times, in any order: their
noise is sqrt(n) roundoffs of the sum of magnitudes. Values of 16-bit types may be rounded or not after each op.
Where a comparison may come out either way, the result is either of its results; integers and booleans have a bound,
too, which is zero for all that does not depend on such a comparison or on the rounding of a float.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any, cast

import torch
from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.interpret.error_rules import TF32_UNIT, Format, added, format_of, propagated
from kiln.dialects.interpret.error_terms import alike, doubtful, is_repeated, plus, root_of_squares, zeros
from kiln.dialects.interpret.estimates import Call, estimated, row_major
from kiln.dialects.interpret.numbers import Numbers, element_type
from kiln.dialects.interpret.scalar_ops import FLOAT_OPS, INTEGER_OPS, OTHER_OPS
from kiln.dialects.interpret.types import Precision, dtype_of, is_float
from kiln.errors import UnsupportedError
from kiln.functions import Fn

__all__ = ["CONFIDENCE", "Bounded", "BoundedNumbers"]

CONFIDENCE = 4.0
"""Standard deviations, or more: a rounding is at most sqrt(3) of them."""

Tensor = torch.Tensor


@dataclass(frozen=True)
class Bounded:
    """Elements and bounds; None is zero everywhere."""

    value: Tensor
    error: Tensor | None = None
    noise: Tensor | None = None

    @property
    def total(self) -> Tensor | None:
        """How far off a kernel's elements may be."""
        return plus(self.error, None if self.noise is None else CONFIDENCE * self.noise)


class BoundedNumbers(Numbers):
    """Values are `Bounded`.  tf32: sums of products of f32 may round their operands to 11 bits."""

    def __init__(self, tf32: bool = False) -> None:
        super().__init__(Precision(torch.float64))
        self.tf32 = tf32

    # ------------------------------------------------------------------------------------------------------- values

    @override
    def lift(self, x: Tensor, element: ir.Type) -> Bounded:
        return Bounded(super().lift(x, element))

    @override
    def exact(self, x: Tensor) -> Bounded:
        return Bounded(x)

    @override
    def lower(self, value: Bounded) -> Tensor:
        return value.value

    @override
    def parts(self, value: Bounded) -> tuple[Tensor, ...]:
        return (value.value,)

    @override
    def move(self, function: Fn[Tensor, Tensor], *values: Bounded) -> Bounded:
        return Bounded(
            function(*(v.value for v in values)),
            self._moved(function, [v.error for v in values], values),
            self._moved(function, [v.noise for v in values], values),
        )

    def _moved(self, function: Fn[Tensor, Tensor], parts: list[Tensor | None], values: Any) -> Tensor | None:
        if all(p is None for p in parts):
            return None
        return function(*(zeros(v.value) if p is None else p for p, v in zip(parts, values, strict=True)))

    @override
    def store(self, out: Bounded, value: Bounded, place: Callable[[Tensor], Tensor]) -> Bounded:
        parts: list[Tensor | None] = []
        for target, source in ((out.value, value.value), (out.error, value.error), (out.noise, value.noise)):
            if target is None and source is not None:
                target = torch.zeros(out.value.shape, dtype=source.dtype, device=source.device)
            if target is not None:
                view = place(target)
                view.copy_((torch.zeros_like(view[..., :1]) if view.dim() else 0 * view) if source is None else source)
            parts.append(target)
        found = parts[0]
        assert found is not None
        return Bounded(found, parts[1], parts[2])

    @override
    def constant(self, number: Any, element: ir.Type) -> Bounded:
        return Bounded(super().constant(number, element))

    @override
    def call(
        self, wide: Call, own: Call, operands: Sequence[Bounded], given: Sequence[ir.Type], results: Sequence[ir.Type]
    ) -> list[Any]:
        tensors, dtypes = [row_major(v.value) for v in operands], [dtype_of(element) for element in given]
        formats = [format_of(element, tf32=self.tf32) if is_float(element) else None for element in given]
        return [Bounded(x, limit) for x, limit in estimated(wide, own, tensors, dtypes, formats, results)]

    @override
    def read_at(self, value: Bounded, indices: Sequence[Bounded]) -> Bounded:
        doubt = plus(*(i.error for i in indices))
        unknown = None if doubt is None else torch.where(doubt > 0, float("inf"), 0.0)
        return Bounded(value.value, plus(value.error, unknown), value.noise)

    # ---------------------------------------------------------------------------------------------------- arithmetic

    @override
    def scalar(self, op: Any, operands: Sequence[Bounded]) -> list[Bounded]:
        name = op.operation.name
        if name not in OTHER_OPS:
            return [self.apply(name, element_type(op), *operands)]
        if name == "arith.select":
            return [self.where(*operands)]
        if name in ("arith.extf", "arith.truncf"):
            source = op.operands[0].type
            return [self.cast(operands[0], source, element_type(op))]
        found = OTHER_OPS[name](op, self.precision, *(v.value for v in operands))
        results: list[Tensor] = cast(list[Tensor], found) if isinstance(found, list) else [found]
        moved = [v.total for v in operands]
        if all(m is None for m in moved):
            return [self._converted(op, r) for r in results]
        if name in ("arith.cmpf", "arith.cmpi"):
            return [Bounded(results[0], doubtful(*((v.value, v.total) for v in operands)).double())]
        if name in ("arith.fptosi", "arith.fptoui"):
            x, m = operands[0].value, operands[0].total
            assert m is not None
            ends = [OTHER_OPS[name](op, self.precision, x + s * m).double() for s in (-1, 1)]
            return [Bounded(results[0], torch.maximum(*((e - results[0].double()).abs() for e in ends)))]
        if name in ("arith.sitofp", "arith.uitofp", "arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci"):
            return [Bounded(results[0], moved[0])]
        doubt = plus(*moved)
        assert doubt is not None
        limit = torch.where(torch.isinf(doubt) if "math.is" in name else doubt > 0, float("inf"), 0.0)
        return [Bounded(r, limit.expand(r.shape)) for r in results]

    def _converted(self, op: Any, x: Tensor) -> Bounded:
        """A float from an exact integer, which may have more bits than the float."""
        element = element_type(op)
        if not is_float(element) or not op.operation.name.endswith("itofp"):
            return Bounded(x)
        form = format_of(element)
        return Bounded(x, None, torch.where(x.abs() * form.unit > 0.5, form.unit * x.abs(), 0.0))

    @override
    def apply(self, name: str, element: ir.Type, *operands: Bounded) -> Bounded:
        values = [v.value for v in operands]
        if name in INTEGER_OPS:
            return self._integers(name, operands, INTEGER_OPS[name](*values))
        if name not in FLOAT_OPS:
            raise UnsupportedError(name, "", "the interpreter has no such op")
        result = FLOAT_OPS[name](*values)
        form = format_of(element)
        single = [self._independent(v, result) for v in operands]
        error = propagated(name, values, result, [v.error for v in single])
        noises: list[Tensor | None] = []
        for i, v in enumerate(single):
            if v.noise is not None:
                alone = [v.noise if k == i else None for k in range(len(single))]
                noises.append(propagated(name, values, result, alone))
        bias, rounding = added(name, values, result, form.unit)
        return self._settled(result, plus(error, bias), root_of_squares(*noises, rounding), form, single)

    def _independent(self, v: Bounded, result: Tensor) -> Bounded:
        """Noise of what is read at several indices is an error that these share."""
        if v.noise is None or (v.noise.shape == result.shape and not is_repeated(v.noise)):
            return v
        return Bounded(v.value, v.total)

    def _settled(
        self, x: Tensor, error: Tensor | None, noise: Tensor | None, form: Format, operands: Sequence[Bounded]
    ) -> Bounded:
        """A result with what overflows, and bounds that are numbers."""
        if error is None and noise is None:
            return Bounded(x)
        error = torch.zeros_like(x) if error is None else error.expand(x.shape)
        noise = None if noise is None else torch.where(torch.isfinite(x), noise, 0.0).nan_to_num(0.0, posinf=0.0)
        size = x.abs()
        reach = size + error + (0 if noise is None else CONFIDENCE * noise)
        finite = torch.isfinite(x)
        open_ = torch.zeros((), dtype=torch.bool, device=x.device)
        for v in operands:
            if v.error is not None:
                open_ = open_ | torch.isinf(v.error)
        undecided = open_ | (finite & (torch.isnan(error) | (reach > form.largest)))
        if not form.is_short:
            # Beyond the type's range the result is infinite, unless it is near its end.
            over = finite & (size > form.largest) & ~torch.isinf(error)
            x = torch.where(over, torch.copysign(torch.full_like(x, float("inf")), x), x)
            undecided = undecided & ~over
        error = torch.where(undecided, float("inf"), torch.where(torch.isfinite(x), error, 0.0))
        return Bounded(x, error, noise)

    def _integers(self, name: str, operands: Sequence[Bounded], result: Tensor) -> Bounded:
        moved = [v.error for v in operands]
        if all(m is None for m in moved):
            return Bounded(result)
        d = [zeros(v.value).double() if m is None else m for m, v in zip(moved, operands, strict=True)]
        values = [v.value for v in operands]
        if result.dtype == torch.bool:
            doubt = torch.zeros(result.shape, dtype=torch.bool, device=result.device)
            for flips in ((True, False), (False, True), (True, True))[: 1 if len(d) == 1 else 3]:
                changed = [x ^ ((m > 0) & f) for x, m, f in zip(values, d, flips, strict=False)]
                doubt = doubt | (INTEGER_OPS[name](*changed) != result)
            return Bounded(result, doubt.double())
        if name in ("arith.addi", "arith.subi"):
            return Bounded(result, d[0] + d[1])
        if name == "arith.muli":
            a, b = (v.double().abs() for v in values)
            return Bounded(result, a * d[1] + b * d[0] + d[0] * d[1])
        if name[6:9] in ("max", "min"):
            return Bounded(result, torch.maximum(d[0], d[1]))
        open_ = plus(*d)
        assert open_ is not None
        return Bounded(result, torch.where(open_ > 0, float("inf"), 0.0))

    @override
    def where(self, condition: Any, a: Bounded, b: Bounded) -> Bounded:
        if not isinstance(condition, Bounded):
            condition = Bounded(condition)
        chosen = self.move(lambda x, y: torch.where(condition.value, x, y), a, b)
        if condition.error is None:
            return chosen
        apart = (a.value.double() - b.value.double()).abs().nan_to_num(float("inf"), posinf=float("inf"))
        both = plus(apart, a.total, b.total)
        assert both is not None
        error = zeros(chosen.value) if chosen.error is None else chosen.error
        return Bounded(chosen.value, torch.where(condition.error > 0, both, error), chosen.noise)

    # ---------------------------------------------------------------------------------------------------- reductions

    @override
    def reduce(self, name: str, value: Bounded, dims: Sequence[int], element: ir.Type) -> Bounded:
        if name == "arith.addf":
            return self._sum(value, tuple(dims), element)
        total, one_step = value.total, ("arith.maximumf", "arith.minimumf", "arith.maxsi", "arith.minsi", "arith.addi")
        if name in one_step and value.value.dtype != torch.bool:
            found = super().reduce(name, value.value, dims, element)
            if total is None:
                return Bounded(found)
            return Bounded(found, (torch.sum if name == "arith.addi" else torch.amax)(total, tuple(dims), keepdim=True))
        for d in dims:
            value = self._halve(name, element, value, d)
        return value

    def _halve(self, name: str, element: ir.Type, x: Bounded, dim: int) -> Bounded:
        while x.value.shape[dim] > 1:
            pairs = x.value.shape[dim] // 2 * 2
            index = torch.arange(0, pairs, 2, device=x.value.device)
            a = self.move(lambda p, i=index: p.index_select(dim, i), x)
            b = self.move(lambda p, i=index: p.index_select(dim, i + 1), x)
            rest = self.move(lambda p: p.narrow(dim, pairs, p.shape[dim] - pairs), x)  # noqa: B023 - called at once
            x = self.move(lambda p, q: torch.cat([p, q], dim), self.apply(name, element, a, b), rest)
        return x

    def _sum(self, x: Bounded, dims: tuple[int, ...], element: ir.Type) -> Bounded:
        if x.noise is not None and is_repeated(x.noise, dims):
            x = Bounded(x.value, x.total)
        form, terms = format_of(element), prod(x.value.shape[d] for d in dims)
        total = x.value.sum(dims, keepdim=True)
        error = None if x.error is None else x.error.sum(dims, keepdim=True)
        error = plus(error, None if x.noise is None else alike(x.value, x.noise).sum(dims, keepdim=True).abs())
        noise = None if x.noise is None else (x.noise * x.noise).sum(dims, keepdim=True).sqrt()
        rounding = form.unit * sqrt(terms) * x.value.abs().sum(dims, keepdim=True)
        return self._settled(total, error, root_of_squares(noise, rounding), form, [Bounded(total, error)])

    @override
    def bilinear(
        self, function: Callable[[Tensor, Tensor], Tensor], a: Bounded, b: Bounded, terms: int, element: ir.Type
    ) -> Bounded:
        form = format_of(element)
        result = function(a.value, b.value)
        sizes = [v.value.abs().nan_to_num(0.0, posinf=0.0) for v in (a, b)]
        squares = [s * s for s in sizes]
        magnitude = function(sizes[0], sizes[1])
        errors = [None if v.error is None else v.error.nan_to_num(0.0, posinf=0.0) for v in (a, b)]
        open_ = [None if v.error is None else torch.isinf(v.error).double() for v in (a, b)]
        error = plus(
            None if errors[1] is None else function(sizes[0], errors[1]),
            None if errors[0] is None else function(errors[0], sizes[1]),
            None if errors[0] is None or errors[1] is None else function(errors[0], errors[1]),
            None if a.noise is None else function(alike(a.value, a.noise), b.value.nan_to_num(0.0, 0.0, 0.0)).abs(),
            None if b.noise is None else function(a.value.nan_to_num(0.0, 0.0, 0.0), alike(b.value, b.noise)).abs(),
        )
        variance = (form.unit * sqrt(max(terms, 1)) * magnitude) ** 2
        if self.tf32 and str(element) == "f32":
            variance = variance + 2 * TF32_UNIT**2 * function(squares[0], squares[1])
        if a.noise is not None:
            variance = variance + function(a.noise * a.noise, squares[1])
        if b.noise is not None:
            variance = variance + function(squares[0], b.noise * b.noise)
        # One operand's elements are in many results.
        limit = plus(error, CONFIDENCE * variance.clamp(min=0.0).sqrt())
        assert limit is not None
        for mine, other, left in ((open_[0], sizes[1], True), (open_[1], sizes[0], False)):
            if mine is not None and bool(mine.any()):
                ones = torch.ones_like(other)
                hit = function(mine, ones) if left else function(ones, mine)
                limit = torch.where(hit > 0.5, float("inf"), limit)
        return self._settled(result, limit, None, form, [Bounded(result, limit)])

    @override
    def dependent(self, value: Bounded) -> Bounded:
        return Bounded(value.value, value.total)

    @override
    def scan(self, kind: str, value: Bounded, dim: int, element: ir.Type) -> Bounded:
        found = super().scan(kind, value.value, dim, element)
        if not is_float(element):
            return Bounded(found, None if value.error is None else value.error.cumsum(dim))
        form = format_of(element)
        unit = form.unit if not form.is_short else 2.0**-24
        count = torch.arange(1, found.shape[dim] + 1, device=found.device, dtype=found.dtype)
        count = count.view([-1 if d == dim else 1 for d in range(found.dim())]) if found.dim() else count.view(())
        total = torch.zeros_like(found) if value.total is None else value.total
        if kind == "sum":
            limit = total.cumsum(dim) + CONFIDENCE * unit * count.sqrt() * value.value.abs().cumsum(dim)
        elif kind == "prod":
            relative = (total / value.value.abs()).nan_to_num(0.0, posinf=float("inf")).cumsum(dim) + count * unit
            limit = (found.abs() * torch.expm1(relative)).nan_to_num(0.0, posinf=float("inf"))
        else:
            limit = total.cummax(dim)[0] + 4 * unit * (1 + count.log() + found.abs().nan_to_num(0.0, posinf=0.0))
        settled = self._settled(found, limit, None, form, [Bounded(found, limit)])
        return self._stored(settled, form)

    @override
    def scatter_sum(self, base: Bounded, position: Tensor, source: Bounded, element: ir.Type) -> Bounded:
        def add(x: Tensor | None, y: Tensor | None) -> Tensor | None:
            if x is None and y is None:
                return None
            x = torch.zeros_like(base.value, dtype=torch.float64) if x is None else x
            return x if y is None else x.scatter_add(0, position, y.expand(position.shape).double())

        found = base.value.scatter_add(0, position, source.value)
        if not is_float(element):
            return Bounded(found, add(base.error, source.error))
        form = format_of(element)
        count = add(None, torch.ones_like(source.value))
        magnitude = add(base.value.abs(), source.value.abs())
        limit = add(base.total, source.total)
        assert count is not None and magnitude is not None
        rounding = CONFIDENCE * form.unit * count.sqrt() * magnitude
        error = rounding if limit is None else limit + rounding
        # Where nothing is added, nothing is rounded.
        before = add(base.total, None)
        unmoved = torch.zeros_like(error) if before is None else before
        error = torch.where(count == 0, unmoved, error)
        return self._settled(found, error, None, form, [Bounded(found, error)])

    @override
    def scatter_reduce(self, base: Bounded, position: Tensor, source: Bounded, reduce: str) -> Bounded:
        found = super().scatter_reduce(base.value, position, source.value, reduce)
        if base.total is None and source.total is None and reduce != "prod":
            return Bounded(found)
        start, moved = (
            zeros(v.value).clone() if (total := v.total) is None else total.expand(v.value.shape)
            for v in (base, source)
        )
        if reduce == "prod":
            ones = torch.full_like(moved, 2.0**-8)
            return Bounded(found, start.scatter_add(0, position, ones) * found.abs().double() + start)
        return Bounded(found, start.scatter_reduce(0, position, moved, "amax"))

    @override
    def cast(self, value: Bounded, source: ir.Type, target: ir.Type) -> Bounded:
        form = format_of(target)
        narrower = format_of(source).unit < form.unit
        return self._stored(value, form) if narrower else value

    @override
    def maybe_rounded(self, value: Bounded, element: ir.Type) -> Bounded:
        return self._stored(value, format_of(element)) if format_of(element).is_short else value

    def _stored(self, x: Bounded, form: Format) -> Bounded:
        rounding = form.unit * x.value.abs().nan_to_num(0.0, posinf=0.0)
        return self._settled(x.value, x.error, root_of_squares(x.noise, rounding), form, [x])
