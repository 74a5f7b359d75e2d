# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel with one schedule after another, run on operands of its real sizes and layouts."""

import ctypes
import itertools
from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.schedules import Schedule, to_attribute
from kiln.errors import KilnError
from kiln.lowering.cpu.codegen import compile_kernel
from kiln.lowering.cpu.emit import emit_kernel
from kiln.lowering.cpu.kernel_object import KernelObject
from kiln.lowering.cpu.tile.packed import packed_operands
from kiln.lowering.cpu.tune.guarded import Guarded
from kiln.lowering.cpu.tune.residence import copies_of, outside, reach_of
from kiln.lowering.host.constants import constant_name
from kiln.lowering.tune.operands import KnownTensors, is_close, no_trial, random_values, value_of
from kiln.runtime.binding import WORK_PER_THREAD
from kiln.runtime.loader import LoadedCode, load
from kiln.runtime.packing import packed
from kiln.runtime.threads import symbol_address

__all__ = ["Trial"]

_MAX_BYTES = 1 << 30


class Trial:
    """Buffers for the operands and results of a `kiln.fusion` of known sizes, shared by all candidates.

    What is in them: see `random_values`. Operands that come from outside of the graph have copies, which calls read in
    turn (residence.py).

    Raises:
        UnsupportedError: the kernel cannot be run by itself, with the reason.
    """

    def __init__(self, fusion: ir.OpView, threads: int) -> None:
        self.fusion, self.threads = fusion, threads
        known = KnownTensors.of(fusion, _MAX_BYTES)
        self.body, self.layouts, self.types = known.body, known.layouts, known.types
        generator = torch.Generator()
        generator.seed()
        count = len(self.body.tensors)
        sizes = list(zip(known.elements, known.dtypes, strict=True))
        self.buffers = [random_values(n, dtype, generator) for n, dtype in sizes[:count]]
        self._guarded = [Guarded(n * dtype.itemsize) for n, dtype in sizes[count:]]
        self.results = [g.bytes.view(d).zero_() for g, (_, d) in zip(self._guarded, sizes[count:], strict=True)]
        self.reach = reach_of(fusion)
        self._copies: dict[tuple[int, int], list[torch.Tensor]] = {}
        self._expected: list[torch.Tensor] | None = None

    def prepare(self, schedule: Schedule) -> Callable[[], None]:
        """Compile the kernel with a schedule, and check what it computes. The result runs it once.

        The results of the first schedule are those that others are compared with.

        Raises:
            KilnError: it does not compile, computes something else, or writes where it must not.
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
            raise no_trial(self.fusion, "it reports indices out of range to the host")
        code = load([kernel.object_bytes], [kernel.entry])
        work = _number(kernel.work)
        threads = self.threads if work < 0 else max(1, min(self.threads, work // WORK_PER_THREAD))
        stride = -(-max(_number(kernel.scratch_bytes), 0) // 64) * 64
        scratch = Guarded(stride * threads)
        run = self._bound(code, kernel, buffers, threads, scratch.bytes)
        self._check(run, scratch)
        return run

    def _bound(
        self,
        code: LoadedCode,
        kernel: KernelObject,
        buffers: Sequence[torch.Tensor],
        threads: int,
        scratch: torch.Tensor,
    ) -> Callable[[], None]:
        """A call of the kernel's entry; see lowering/cpu/abi.py for its block."""
        base, stride = scratch.data_ptr(), len(scratch) // threads
        team = threads if threads > 1 else 0
        # Sizes are known, so that a symbol is the address where indices out of range are reported.
        flag = torch.zeros(1, dtype=torch.int64)
        symbols = [flag.data_ptr()] * kernel.symbols
        sets = self._sets(buffers)
        blocks: list[ctypes.Array[ctypes.c_int64]] = []
        for operands in sets:
            words = [*(t.data_ptr() for t in [*operands, *self.results]), *symbols, base, stride, team]
            blocks.append((ctypes.c_int64 * len(words))(*words))
        following = itertools.cycle([ctypes.addressof(block) for block in blocks]).__next__
        address = code[kernel.entry]
        kept = (code, scratch, sets, self.results, blocks, flag)
        if threads == 1:
            call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
            return lambda: call(following()) if kept else None
        parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(
            symbol_address("GOMP_parallel")
        )
        return lambda: parallel(address, following(), threads, 0) if kept else None

    def _sets(self, buffers: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The operands of one call after the other, which has copies of those from outside."""
        copies = [[buffer] for buffer in buffers]
        for i in outside(self.fusion):
            count = copies_of(buffers[i].nbytes, self.reach)
            key = (buffers[i].data_ptr(), buffers[i].numel())
            if key not in self._copies:
                self._copies[key] = [buffers[i], *(buffers[i].clone() for _ in range(count - 1))]
            copies[i] = self._copies[key]
        return [[of[n % len(of)] for of in copies] for n in range(max(map(len, copies), default=1))]

    def _check(self, run: Callable[[], None], scratch: Guarded) -> None:
        for result in self.results:
            result.zero_()
        run()
        if not all(memory.is_intact() for memory in [*self._guarded, scratch]):
            raise KilnError("it writes beyond its memory")
        if self._expected is None:
            self._expected = [result.clone() for result in self.results]
            return
        for mine, expected in zip(self.results, self._expected, strict=True):
            if not is_close(mine, expected):
                raise KilnError("it computes something else than the default")

    def _packed(self, schedule: Schedule) -> tuple[list[torch.Tensor], list[ir.AffineMap]]:
        """The operands and all layouts, with constants in the order that the schedule wants them in."""
        buffers, layouts = list(self.buffers), list(self.layouts)
        for position, layout, elements in packed_operands(self.body, self.layouts, schedule):
            if constant_name(self.fusion.operation.operands[position]) is None:
                continue
            linear = affine.linear_coefficients(self.layouts[position].results[0])
            assert linear is not None, "sizes were counted with it"
            shape = list(self.types[position].shape)
            strides = [value_of(linear[1].get(d)) for d in range(len(shape))]
            source = self.buffers[position].as_strided(shape, strides, value_of(linear[0]))
            symbols = {i: ir.AffineExpr.get_symbol(i) for i in range(len(shape))}
            text = str(affine.substitute(layout.results[0], symbols))
            buffers[position], layouts[position] = packed(source, text, elements), layout
        return buffers, layouts


def _number(text: str | None) -> int:
    """The value of an affine map without symbols; -1 without one."""
    if text is None:
        return -1
    value = affine.constant_of(ir.AffineMapAttr(ir.Attribute.parse(text)).value.results[0])
    return -1 if value is None else value
