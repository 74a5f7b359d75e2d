# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel with one schedule after another, run on operands of its real sizes and layouts."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import KilnError, UnsupportedError
from kiln.lowering.cpu.codegen import KernelObject, compile_kernel
from kiln.lowering.cpu.emit import emit_kernel
from kiln.lowering.cpu.schedule_attr import to_attribute
from kiln.lowering.cpu.tile.body import FusionBody
from kiln.lowering.cpu.tile.kernel import fusion_layouts
from kiln.lowering.cpu.tile.packed import packed_operands
from kiln.lowering.host.constants import constant_name
from kiln.runtime.binding import WORK_PER_THREAD
from kiln.runtime.loader import LoadedCode, load
from kiln.runtime.packing import packed
from kiln.runtime.threads import symbol_address

__all__ = ["Trial"]

_DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16,
           "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.bool}  # fmt: skip
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2
_MAX_BYTES = 1 << 30
_PERIOD = 1 << 20
"""Random elements that are made; larger operands repeat them."""


class Trial:
    """Buffers for the operands and results of a `kiln.fusion` of known sizes, shared by all candidates.

    Floats are normally distributed, integers 0 (an index that is always in bounds), booleans random.

    Raises:
        UnsupportedError: the kernel cannot be run by itself, with the reason.
    """

    def __init__(self, fusion: ir.OpView, threads: int) -> None:
        self.fusion, self.threads = fusion, threads
        self.body = FusionBody(fusion)
        self.layouts = fusion_layouts(fusion, self.body)
        tensors = [*self.body.tensors, *self.body.roots]
        if self.body.symbols or not all(ir.RankedTensorType(v.type).has_static_shape for v in tensors):
            raise _no_trial(fusion, "sizes that are known at run time only")
        self.types = [ir.RankedTensorType(v.type) for v in tensors]
        if any(n == 0 for t in self.types for n in t.shape):
            raise _no_trial(fusion, "there is nothing to compute")
        sizes = [_elements(fusion, t, m) for t, m in zip(self.types, self.layouts, strict=True)]
        if sum(n * _dtype(fusion, t).itemsize for n, t in zip(sizes, self.types, strict=True)) > _MAX_BYTES:
            raise _no_trial(fusion, "operands of more than 1 GiB")
        self._generator = torch.Generator()
        self._generator.seed()
        count = len(self.body.tensors)
        self.buffers = [self._random(n, _dtype(fusion, t)) for n, t in zip(sizes, self.types[:count], strict=False)]
        self.results = [
            torch.zeros(n, dtype=_dtype(fusion, t)) for n, t in zip(sizes[count:], self.types[count:], strict=True)
        ]
        self._expected: list[torch.Tensor] | None = None

    def prepare(self, schedule: dict[str, Any]) -> Callable[[], None]:
        """Compile the kernel with a schedule, and check what it computes. The result runs it once.

        The results of the first schedule are those that others are compared with.

        Raises:
            KilnError: it does not compile, or computes something else.
        """
        buffers, layouts = self._packed(schedule)
        attributes = self.fusion.operation.attributes
        saved = {name: attributes[name] for name in ("schedule", "layouts") if name in attributes}
        attributes["schedule"] = to_attribute(schedule)
        attributes["layouts"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in layouts])
        try:
            kind = ir.StringAttr(attributes["kind"]).value
            kernel = compile_kernel(emit_kernel(self.fusion, "trial"), "trial", kind=kind)
        finally:
            del attributes["layouts"]
            for name, value in saved.items():
                attributes[name] = value
        if kernel.checks:
            raise _no_trial(self.fusion, "it reports indices out of range to the host")
        code = load([kernel.object_bytes], [kernel.entry])
        work = _number(kernel.work)
        threads = self.threads if work < 0 else max(1, min(self.threads, work // WORK_PER_THREAD))
        run = self._bound(code, kernel, buffers, threads)
        self._check(run)
        return run

    def _bound(
        self, code: LoadedCode, kernel: KernelObject, buffers: Sequence[torch.Tensor], threads: int
    ) -> Callable[[], None]:
        """A call of the kernel's entry; see lowering/cpu/abi.py for its block."""
        stride = -(-max(_number(kernel.scratch_bytes), 0) // 64) * 64
        memory = torch.empty(stride * threads + 64, dtype=torch.uint8)
        base = -(-memory.data_ptr() // 64) * 64
        team = threads if threads > 1 else 0
        # Sizes are known, so that a symbol is the address where indices out of range are reported.
        flag = torch.zeros(1, dtype=torch.int64)
        symbols = [flag.data_ptr()] * kernel.symbols
        words = [*(t.data_ptr() for t in [*buffers, *self.results]), *symbols, base, stride, team]
        block = (ctypes.c_int64 * len(words))(*words)
        at, address = ctypes.addressof(block), code[kernel.entry]
        kept = (code, memory, buffers, block, flag)
        if threads == 1:
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
            return lambda: call(at) if kept else None
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(
            symbol_address("GOMP_parallel")
        )
        return lambda: parallel(address, at, threads, 0) if kept else None

    def _check(self, run: Callable[[], None]) -> None:
        for result in self.results:
            result.zero_()
        run()
        if self._expected is None:
            self._expected = [result.clone() for result in self.results]
            return
        for mine, expected in zip(self.results, self._expected, strict=True):
            if not _close(mine, expected):
                raise KilnError("it computes something else than the default")

    def _packed(self, schedule: dict[str, Any]) -> tuple[list[torch.Tensor], list[ir.AffineMap]]:
        """The operands and all layouts, with constants in the order that the schedule wants them in."""
        buffers, layouts = list(self.buffers), list(self.layouts)
        for position, layout, elements in packed_operands(self.body, self.layouts, schedule):
            if constant_name(self.fusion.operation.operands[position]) is None:
                continue
            linear = affine.linear_coefficients(self.layouts[position].results[0])
            assert linear is not None, "sizes were counted with it"
            shape = list(self.types[position].shape)
            strides = [_value(linear[1].get(d)) for d in range(len(shape))]
            source = self.buffers[position].as_strided(shape, strides, _value(linear[0]))
            symbols = {i: ir.AffineExpr.get_symbol(i) for i in range(len(shape))}
            text = str(affine.substitute(layout.results[0], symbols))
            buffers[position], layouts[position] = packed(source, text, elements), layout
        return buffers, layouts

    def _random(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        period = min(count, _PERIOD)
        if dtype == torch.bool:
            values = torch.randint(0, 2, (period,), generator=self._generator).bool()
        elif dtype.is_floating_point:
            values = torch.randn(period, generator=self._generator).to(dtype)
        else:
            values = torch.zeros(period, dtype=dtype)
        return values.repeat(-(-count // max(period, 1)))[:count].contiguous()


def _no_trial(fusion: ir.OpView, reason: str) -> UnsupportedError:
    return UnsupportedError("kiln.fusion", str(fusion.operation.location), reason)


def _dtype(fusion: ir.OpView, type_: ir.RankedTensorType) -> torch.dtype:
    name = str(type_.element_type)
    if name not in _DTYPES:
        raise _no_trial(fusion, f"elements of type {name}")
    return _DTYPES[name]


def _value(expr: ir.AffineExpr | None) -> int:
    return 0 if expr is None else affine.constant_of(expr) or 0


def _elements(fusion: ir.OpView, type_: ir.RankedTensorType, layout: ir.AffineMap) -> int:
    """Elements of the memory that a tensor of known sizes lies in, from its pointer on."""
    linear = affine.linear_coefficients(layout.results[0])
    if linear is None:
        raise _no_trial(fusion, "an operand that is not strided")
    steps = [(_value(linear[1].get(d)), n) for d, n in enumerate(type_.shape)]
    if _value(linear[0]) < 0 or any(step < 0 for step, _ in steps):
        raise _no_trial(fusion, "an operand that is walked backwards")
    return _value(linear[0]) + sum(step * max(n - 1, 0) for step, n in steps) + 1


def _number(text: str | None) -> int:
    """The value of an affine map without symbols; -1 without one."""
    if text is None:
        return -1
    value = affine.constant_of(ir.AffineMapAttr(ir.Attribute.parse(text)).value.results[0])
    return -1 if value is None else value


def _close(mine: torch.Tensor, expected: torch.Tensor) -> bool:
    if not mine.dtype.is_floating_point:
        return True if mine.dtype == torch.bool else bool((mine == expected).all())
    x, y = mine.double(), expected.double()
    finite = x.isfinite() & y.isfinite()
    scale = max(1e-30, float(y[finite].abs().max())) if bool(finite.any()) else 1.0
    near = (x - y).abs() <= _TOLERANCE.get(mine.dtype, _HALF_TOLERANCE) * scale
    return bool((near | (x == y) | (x.isnan() & y.isnan())).all())
