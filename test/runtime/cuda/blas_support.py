# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""cuBLASLt that is none: the functions that Kiln calls, with products done by PyTorch on the CPU.

Matrices are read from memory as the library's documentation says: columns first, `ld` apart, transposed on request.
"""

import ctypes
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

_P = ctypes.c_void_p
_MATMUL = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, ctypes.c_size_t, _P)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, _P, ctypes.c_int, _P, ctypes.c_size_t)
_TYPES = {0: torch.float32, 1: torch.float64, 2: torch.float16, 14: torch.bfloat16}
_ITEM = {0: 4, 1: 8, 2: 2, 14: 2}


@dataclass
class _Layout:
    type: int
    rows: int
    columns: int
    ld: int
    batch: int = 1
    stride: int = 0

    def tensor(self, address: int) -> torch.Tensor:
        """[batch, rows, columns] on that memory."""
        assert self.ld >= self.rows and address % _ITEM[self.type] == 0
        last = (self.batch - 1) * self.stride + (self.columns - 1) * self.ld + self.rows
        raw = (ctypes.c_uint8 * (last * _ITEM[self.type])).from_address(address)
        flat = torch.frombuffer(raw, dtype=_TYPES[self.type])
        return flat.as_strided((self.batch, self.rows, self.columns), (self.stride, 1, self.ld))


@dataclass
class _Descriptor:
    sums: int
    scale: int
    attributes: dict[int, bytes] = field(default_factory=dict)

    def number(self, name: int) -> int:
        return int.from_bytes(self.attributes.get(name, b"\0"), "little")


class EmulatedLibrary:
    """`calls`: (m, n, k, biased) of the products done. `algorithms`: how many it ranks; `fails`: its next status."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int, bool]] = []
        self.streams: list[int | None] = []
        self.chosen: list[int] = []
        self.heuristics: list[dict[int, int]] = []
        self.algorithms, self.fails, self.workspace = 4, 0, 1000
        self.later: list[Callable[[], int]] | None = None
        """Where products are recorded in place of being done, with the bias that the descriptor has then."""
        self._things: dict[int, Any] = {}
        self._number = itertools.count(1 << 20, 16)
        self.cublasLtMatmul = _MATMUL(self._matmul)
        self.cublasLtMatmulDescSetAttribute = _SET(self._set)

    def _add(self, place: Any, thing: Any) -> int:
        place._obj.value = next(self._number)
        self._things[place._obj.value] = thing
        return 0

    def cublasLtCreate(self, place: Any) -> int:
        return self._add(place, "handle")

    def cublasLtMatmulDescCreate(self, place: Any, sums: int, scale: int) -> int:
        return self._add(place, _Descriptor(sums, scale))

    def cublasLtMatrixLayoutCreate(self, place: Any, type_: int, rows: Any, columns: Any, ld: Any) -> int:
        return self._add(place, _Layout(type_, rows.value, columns.value, ld.value))

    def cublasLtMatrixLayoutSetAttribute(self, layout: Any, name: int, value: Any, size: Any) -> int:
        assert (name, size.value) in ((5, 4), (6, 8))
        setattr(self._things[layout.value], {5: "batch", 6: "stride"}[name], value._obj.value)
        return 0

    def _set(self, descriptor: int, name: int, value: int, size: int) -> int:
        self._things[descriptor].attributes[name] = ctypes.string_at(value, size)
        return 0

    def cublasLtMatmulDescDestroy(self, descriptor: Any) -> int:
        del self._things[descriptor.value]
        return 0

    cublasLtMatrixLayoutDestroy = cublasLtMatmulDescDestroy

    def cublasLtMatmulPreferenceCreate(self, place: Any) -> int:
        return self._add(place, {})

    def cublasLtMatmulPreferenceSetAttribute(self, preference: Any, name: int, value: Any, size: Any) -> int:
        self._things[preference.value][name] = value._obj.value
        return 0

    def cublasLtMatmulPreferenceDestroy(self, preference: Any) -> int:
        self.heuristics.append(self._things.pop(preference.value))
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        results, returned = arguments[-2:]
        count = min(arguments[-3], self.algorithms)
        for i in range(count):
            results[i].algorithm[0], results[i].workspace, results[i].state = 100 + i, self.workspace, 0
        returned._obj.value = count
        return 0 if count else 15

    def _matmul(
        self, handle, descriptor, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d, algorithm,
        workspace, size, stream,
    ) -> int:  # fmt: skip
        if self.fails:
            return self.fails
        if self.later is not None:
            arguments = (handle, descriptor, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d, algorithm)
            self.later.append(functools.partial(self._replayed, dict(self._things[descriptor].attributes), *arguments,
                                                workspace, size, 77))  # fmt: skip
            return 0
        assert self._things[handle] == "handle" and c == d and layout_c == layout_d
        found: _Descriptor = self._things[descriptor]
        scale = ctypes.c_double if found.scale == 1 else ctypes.c_float
        assert (scale.from_address(alpha).value, scale.from_address(beta).value) == (1, 0)
        left, right, result = (
            self._things[layout].tensor(address) for layout, address in ((layout_a, a), (layout_b, b), (layout_d, d))
        )
        left = left.mT if found.number(3) else left
        right = right.mT if found.number(4) else right
        total = left.double() @ right.double()
        biased, epilogue = bool(found.number(7) & 4), found.number(7)
        assert epilogue in (1, 4, 36)
        if biased:
            rows = _Layout(self._things[layout_d].type, result.shape[1], 1, result.shape[1])
            total += rows.tensor(found.number(8)).double()
        if epilogue & 32:
            total = F.gelu(total, approximate="tanh")
        if size:
            ctypes.memset(workspace, 0xFF, size)  # the library may write anything there
        result.copy_(total.to(result.dtype))
        self.calls.append((result.shape[2], result.shape[1], left.shape[2], biased))
        self.chosen.append(ctypes.c_uint64.from_address(algorithm).value)
        self.streams.append(stream)
        return 0

    def _replayed(self, attributes: dict[int, bytes], handle: int, descriptor: int, *arguments: Any) -> int:
        """A recorded product: the descriptor's attributes are those of then."""
        thing: _Descriptor = self._things[descriptor]
        now, thing.attributes = thing.attributes, attributes
        try:
            return self._matmul(handle, descriptor, *arguments)
        finally:
            thing.attributes = now
