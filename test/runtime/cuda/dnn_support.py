# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""cuDNN that is none: the functions of the graph API that Kiln calls, with convolutions done by PyTorch on the CPU.

Descriptors are checked as the library does: attributes have their types, and are read only from finalized ones.
"""

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_TYPES = {0: torch.float32, 1: torch.float64, 2: torch.float16, 9: torch.bfloat16}
_BYTES = {0: 8, 1: 4, 3: 8, 4: 4, 5: 8, 6: 8, 7: 4, 8: 4, 11: 4, 15: 8}
_BAD, _NOT_SUPPORTED = 2000, 3000
# attribute -> (kind of descriptor, type)
_KNOWN = {
    100: (1, 1), 101: (1, 7), 102: (1, 3), 103: (1, 3), 104: (1, 3), 105: (1, 3), 106: (1, 3),
    200: (4, 8), 201: (4, 15), 400: (5, 0), 401: (5, 15), 700: (10, 4), 701: (10, 4), 702: (10, 15), 703: (10, 15),
    704: (10, 15), 705: (10, 15), 800: (15, 0), 801: (15, 15), 900: (17, 3), 901: (17, 1), 902: (17, 3), 903: (17, 3),
    906: (17, 3), 1000: (16, 3), 1001: (16, 6), 1003: (16, 6),
}  # fmt: skip


@dataclass
class _Descriptor:
    kind: int
    attributes: dict[int, bytes] = field(default_factory=dict)
    is_final: bool = False
    engine: int = -1
    operation: Any = None

    def integers(self, name: int, size: int = 8) -> list[int]:
        data = self.attributes[name]
        return [int.from_bytes(data[i : i + size], "little", signed=True) for i in range(0, len(data), size)]


class EmulatedCudnn:
    """`calls`: (image, weight, engine) of the convolutions done. `engines`: their notes, best first; those in `refused`
    cannot be planned. `fails`: the status of the next executions."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], tuple[int, ...], int]] = []
        self.streams: list[int] = []
        self.strides: list[list[int]] = []
        self.engines: list[list[int]] = [[0], [], [0, 4]]
        self.refused: set[int] = set()
        self.fails, self.workspace, self.stream = 0, 1000, -2
        self.things: dict[int, _Descriptor] = {}
        self.later: list[Callable[[], int]] | None = None
        """Where convolutions are recorded in place of being done."""
        self._number = itertools.count(1 << 24, 16)
        self.cudnnCreate = ctypes.CFUNCTYPE(_I, _P)(self._create_handle)
        self.cudnnSetStream = ctypes.CFUNCTYPE(_I, _P, _P)(self._set_stream)
        self.cudnnBackendCreateDescriptor = ctypes.CFUNCTYPE(_I, _I, _P)(self._create)
        self.cudnnBackendSetAttribute = ctypes.CFUNCTYPE(_I, _P, _I, _I, _L, _P)(self._set)
        self.cudnnBackendGetAttribute = ctypes.CFUNCTYPE(_I, _P, _I, _I, _L, _P, _P)(self._get)
        self.cudnnBackendFinalize = ctypes.CFUNCTYPE(_I, _P)(self._finalize)
        self.cudnnBackendExecute = ctypes.CFUNCTYPE(_I, _P, _P, _P)(self._execute)
        self.cudnnBackendDestroyDescriptor = ctypes.CFUNCTYPE(_I, _P)(self._destroy)

    def cudnnGetVersion(self) -> int:
        return 91900

    def _create_handle(self, place: int) -> int:
        ctypes.c_int64.from_address(place).value = 4242
        return 0

    def _set_stream(self, handle: int, stream: int | None) -> int:
        self.stream = stream or 0
        return 0 if handle == 4242 else _BAD

    def _create(self, kind: int, place: int) -> int:
        number = next(self._number)
        self.things[number] = _Descriptor(kind)
        ctypes.c_int64.from_address(place).value = number
        return 0

    def _destroy(self, descriptor: int) -> int:
        del self.things[descriptor]
        return 0

    def _set(self, descriptor: int, name: int, type_: int, count: int, values: int) -> int:
        thing = self.things[descriptor]
        kind, expected = _KNOWN[name]
        if name in (700, 701) and type_ == 5:
            expected = 5
        if thing.kind != kind or type_ != expected or thing.is_final:
            return _BAD
        thing.attributes[name] = ctypes.string_at(values, count * _BYTES[type_])
        if type_ == 15 and not all(self.things[d].is_final for d in thing.integers(name)):
            return _BAD
        return 0

    def _finalize(self, descriptor: int) -> int:
        thing = self.things[descriptor]
        if thing.kind == 4 and thing.integers(200, 4) not in ([0], [2]):
            return _NOT_SUPPORTED
        if thing.kind == 5:
            config = self.things[thing.integers(401)[0]]
            # What a plan was made from may be destroyed.
            thing.engine, thing.operation = config.engine, self._operation(config)
            if thing.engine in self.refused:
                return _NOT_SUPPORTED
        thing.is_final = True
        return 0

    def _get(self, descriptor: int, name: int, type_: int, most: int, count: int, place: int | None) -> int:
        thing, returned = self.things[descriptor], ctypes.c_int64.from_address(count)
        if name == 202:  # engine configurations, all of them without knobs
            found = self.engines if thing.integers(200, 4) == [0] else []
            returned.value = len(found)
            for i in range(min(most, len(found))):
                config = self.things[ctypes.c_int64.from_address((place or 0) + 8 * i).value]
                config.engine, config.is_final = i, True
                config.attributes[201] = thing.attributes[201]
            return 0
        if name == 300:
            self.things[ctypes.c_int64.from_address(place or 0).value].engine = thing.engine
            returned.value = 1
            return 0
        if name == 1303:
            notes = self.engines[thing.engine]
            returned.value = len(notes)
            for i, note in enumerate(notes[:most]):
                ctypes.c_int32.from_address((place or 0) + 4 * i).value = note
            return 0
        if name == 402 and thing.is_final:
            ctypes.c_int64.from_address(place or 0).value = self.workspace
            returned.value = 1
            return 0
        return _BAD

    def _execute(self, handle: int, plan: int, pack: int) -> int:
        if self.fails:
            return self.fails
        made, given = self.things[plan], self.things[pack]
        if not made.is_final or not given.is_final or handle != 4242:
            return _BAD
        if self.later is not None:  # the addresses may be destroyed when it is replayed
            self.later.append(lambda: self._convolve(made, given, 77))
            return 0
        return self._convolve(made, given, self.stream)

    def _convolve(self, made: _Descriptor, given: _Descriptor, stream: int) -> int:
        memory = dict(zip(given.integers(1000), given.integers(1001), strict=True))
        tensors, convolution = made.operation
        image, weight, result = (self._tensor(t, memory[t.integers(906)[0]]) for t in tensors)
        spatial = convolution.integers(106)[0]
        before, after = convolution.integers(104), convolution.integers(105)
        assert before == after and len(before) == spatial == image.dim() - 2 and convolution.integers(101, 4) == [1]
        stride, dilation = convolution.integers(103), convolution.integers(102)
        run = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[spatial]
        if self.workspace:
            ctypes.memset(given.integers(1003)[0], 0xFF, self.workspace)  # the library may write anything there
        groups = image.shape[1] // weight.shape[1]
        result.copy_(run(image.double(), weight.double(), None, stride, before, dilation, groups))
        self.calls.append((tuple(image.shape), tuple(weight.shape), made.engine))
        self.strides.append(list(image.stride()))
        self.streams.append(stream)
        return 0

    def _operation(self, config: _Descriptor) -> tuple[list[_Descriptor], _Descriptor]:
        graph = self.things[config.integers(201)[0]]
        operation = self.things[graph.integers(801)[0]]
        return [self.things[operation.integers(n)[0]] for n in (704, 703, 705)], self.things[operation.integers(702)[0]]

    def _tensor(self, thing: _Descriptor, address: int) -> torch.Tensor:
        dtype, shape, strides = _TYPES[thing.integers(901, 4)[0]], thing.integers(902), thing.integers(903)
        assert address % thing.integers(900)[0] == 0
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1
        raw = (ctypes.c_uint8 * (last * dtype.itemsize)).from_address(address)
        return torch.frombuffer(raw, dtype=dtype).as_strided(shape, strides)
