# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""cuDNN through ctypes: convolutions prepared once, so that a launch table can start them.

Source: cuDNN's backend API (graph API), whose numbers versions 8 and 9 share; the steps and the choice of an engine
are those of PyTorch's `Conv_v8.cpp`: the library's heuristics for the same operation, filtered by the same settings.
Nothing is compiled or linked against CUDA: the library is the one that PyTorch has loaded.
"""

import array
import collections
import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kiln.runtime.cuda.cublaslt import LibraryError
from kiln.runtime.cuda.loaded import loaded_library

__all__ = ["ConvolutionProblem", "Cudnn", "PreparedConvolution", "cudnn", "cudnn_status_text"]

_LEAST_VERSION = 8900
_INT64, _FLOAT, _DOUBLE, _VOID_PTR = 3, 4, 5, 6  # cudnnBackendAttributeType_t
_HANDLE, _DATA_TYPE, _CONVOLUTION_MODE, _HEUR_MODE, _NOTE, _DESCRIPTOR = 0, 1, 7, 8, 11, 15
_CONVOLUTION, _ENGINE, _ENGINE_CONFIG, _HEURISTICS, _PLAN = 1, 2, 3, 4, 5  # cudnnBackendDescriptorType_t
_FORWARD, _GRAPH, _TENSOR = 10, 15, 17
_CROSS_CORRELATION = 1
_INSTANT, _MODE_B, _FALLBACK = 0, 1, 2  # cudnnBackendHeurMode_t
_TENSOR_CORE, _DOWN_CONVERT, _NONDETERMINISTIC = 0, 1, 4  # cudnnBackendNumericalNote_t
_KNOWN_NOTES = 10
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
_RECENT = 64
_UIDS = (ord("x"), ord("w"), ord("y"))
_MOST_ELEMENTS = (1 << 31) - 1
"""Elements of a tensor from which on PyTorch takes a convolution apart."""

_P, _I, _L = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_PROTOTYPES: dict[str, list[Any]] = {
    "cudnnCreate": [_P],
    "cudnnSetStream": [_P, _P],
    "cudnnBackendCreateDescriptor": [_I, _P],
    "cudnnBackendSetAttribute": [_P, _I, _I, _L, _P],
    "cudnnBackendGetAttribute": [_P, _I, _I, _L, _P, _P],
    "cudnnBackendFinalize": [_P],
    "cudnnBackendExecute": [_P, _P, _P],
    "cudnnBackendDestroyDescriptor": [_P],
}
_EXECUTION = ("SetStream", "BackendCreateDescriptor", "BackendSetAttribute", "BackendFinalize", "BackendExecute",
              "BackendDestroyDescriptor")  # fmt: skip
_STATUS = {1: "not initialized", 2: "bad parameter", 3: "not supported", 4: "internal error", 5: "execution failed"}


def cudnn_status_text(status: int) -> str:
    """What a cudnnStatus_t means; its thousands are the category."""
    return f"{_STATUS.get(status // 1000, 'unknown error')} (status {status})"


@dataclass(frozen=True)
class ConvolutionProblem:
    """result = image * weight (a cross-correlation), all dense in one order: channels last, or planar.

    image, weight, result: [batch, channels, spatial dims...]. alignments: bytes of which the addresses are multiples.
    tf32: whether tensor cores may round f32 operands. deterministic: whether sums must be added up in one order.
    """

    dtype: str
    image: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    channels_last: bool
    alignments: tuple[int, int, int] = (16, 16, 16)
    tf32: bool = False
    deterministic: bool = False


@dataclass
class PreparedConvolution:
    """A convolution ready to start: the address of the library's plan, and bytes of workspace that it needs."""

    plan: int
    workspace: int
    keep: list[Any] = field(default_factory=list[Any])


class Cudnn:
    """The library, with what it has prepared so far. `lock` guards its handles, which have one stream at a time.

    Raises LibraryError for a library that lacks a function, or is too old.
    """

    def __init__(self, library: Any) -> None:
        try:
            version = int(library.cudnnGetVersion())
            self._functions = {name: getattr(library, name) for name in _PROTOTYPES}
        except AttributeError as error:
            raise LibraryError(f"no cuDNN with the graph API: {error}") from error
        if version < _LEAST_VERSION:
            raise LibraryError(f"cuDNN {version} is too old: {_LEAST_VERSION} is needed")
        for name, function in self._functions.items():
            function.argtypes, function.restype = _PROTOTYPES[name], _I
        self.lock = threading.Lock()
        self._making = threading.Lock()
        self._records: dict[int, array.array[int]] = {}
        self._known: weakref.WeakValueDictionary[tuple[int, ConvolutionProblem], PreparedConvolution]
        self._known = weakref.WeakValueDictionary()
        self.recent: collections.deque[PreparedConvolution] = collections.deque(maxlen=_RECENT)
        """Prepared ahead of their first user: they stay until so many others are."""

    def record(self, device: int) -> int:
        """The address of what `kiln_execute_cudnn` reads for a GPU, whose context is current: handle, the stream that
        it has now, addresses of functions, and the tensors' numbers (lowering/host/cuda_launcher.py).
        """
        with self._making:
            if device not in self._records:
                made = ctypes.c_void_p()
                self._check(self._functions["cudnnCreate"](ctypes.byref(made)), f"cudnnCreate on GPU {device}")
                addresses = [ctypes.cast(self._functions[f"cudnn{name}"], _P).value or 0 for name in _EXECUTION]
                self._records[device] = array.array("q", [made.value or 0, -1, *addresses, *_UIDS])
            return self._records[device].buffer_info()[0]

    def prepare(self, device: int, problem: ConvolutionProblem) -> PreparedConvolution:
        """The convolution with the engine that the library's heuristics rank first, of those that can do it.

        Equal problems share a plan, which goes with the last user of the result. Raises LibraryError if none can.
        """
        self.record(device)
        with self._making:
            key = (device, problem)
            made = self._known.get(key)
            if made is None:
                made = self._known[key] = self._prepare(self._records[device][0], problem)
            return made

    def _prepare(self, handle: int, p: ConvolutionProblem) -> PreparedConvolution:
        if max(torch.Size(t).numel() for t in (p.image, p.result)) > _MOST_ELEMENTS:
            raise LibraryError("cuDNN: the tensors of a convolution have too many elements for one call")
        made: list[int] = []
        searched: list[int] = []
        try:
            graph = self._graph(made, handle, p)
            modes = (_MODE_B if os.environ.get("TORCH_CUDNN_USE_HEURISTIC_MODE_B") == "1" else _INSTANT, _FALLBACK)
            for mode in modes:
                for config in self._configurations(searched, graph, mode):
                    if self._is_excluded(searched, config, p):
                        continue
                    plan = self._new(_PLAN, searched)
                    self._set(plan, 400, _HANDLE, [handle])
                    self._set(plan, 401, _DESCRIPTOR, [config])
                    if self._functions["cudnnBackendFinalize"](plan):
                        continue
                    workspace = self._numbers(plan, 402, _INT64, 1)[0]
                    # What a plan was made from stays for as long as it does.
                    made += [config, plan]
                    result = PreparedConvolution(plan, workspace)
                    # Not when the process ends: CUDA may be gone by then.
                    weakref.finalize(result, self._destroy, made).atexit = False
                    return result
            self._destroy(made)
        except LibraryError:
            self._destroy(made)
            raise
        finally:
            self._destroy([d for d in searched if d not in made])
        raise LibraryError(f"none of cuDNN's engines takes {p}")

    def _destroy(self, descriptors: list[int]) -> None:
        for descriptor in reversed(descriptors):
            self._functions["cudnnBackendDestroyDescriptor"](descriptor)

    def _graph(self, made: list[int], handle: int, p: ConvolutionProblem) -> int:
        """The operation graph of one convolution."""
        # As in PyTorch, one spatial dim is two, the first of size 1.
        flat = len(p.image) == 3
        shapes = [(*t[:2], 1, *t[2:]) if flat else t for t in (p.image, p.weight, p.result)]
        lead = (1,) if flat else ()
        tensors: list[int] = []
        for uid, shape, alignment in zip(_UIDS, shapes, p.alignments, strict=True):
            tensor = self._new(_TENSOR, made)
            self._set(tensor, 901, _DATA_TYPE, [_TYPES[p.dtype]])
            self._set(tensor, 902, _INT64, shape)
            self._set(tensor, 903, _INT64, _strides(shape, p.channels_last))
            self._set(tensor, 906, _INT64, [uid])
            self._set(tensor, 900, _INT64, [alignment])
            self._finalize(tensor, f"a tensor of {shape}")
            tensors.append(tensor)
        image, weight, result = tensors
        wide = p.dtype == "float64"
        convolution = self._new(_CONVOLUTION, made)
        padding = (*((0,) if flat else ()), *p.padding)
        self._set(convolution, 100, _DATA_TYPE, [_TYPES["float64" if wide else "float32"]])
        self._set(convolution, 101, _CONVOLUTION_MODE, [_CROSS_CORRELATION])
        self._set(convolution, 106, _INT64, [len(padding)])
        for name, values in ((102, (*lead, *p.dilation)), (103, (*lead, *p.stride)), (104, padding), (105, padding)):
            self._set(convolution, name, _INT64, values)
        self._finalize(convolution, "a convolution")
        operation = self._new(_FORWARD, made)
        for name, value in ((702, convolution), (703, weight), (704, image), (705, result)):
            self._set(operation, name, _DESCRIPTOR, [value])
        for name, scale in ((700, 1.0), (701, 0.0)):
            self._set(operation, name, _DOUBLE if wide else _FLOAT, [scale])
        self._finalize(operation, "the operation of a convolution")
        graph = self._new(_GRAPH, made)
        self._set(graph, 800, _HANDLE, [handle])
        self._set(graph, 801, _DESCRIPTOR, [operation])
        self._finalize(graph, "the graph of a convolution")
        return graph

    def _configurations(self, made: list[int], graph: int, mode: int) -> list[int]:
        """The library's engines with their knobs, best first; none where the mode finds none."""
        heuristics = self._new(_HEURISTICS, made)
        self._set(heuristics, 201, _DESCRIPTOR, [graph])
        self._set(heuristics, 200, _HEUR_MODE, [mode])
        if self._functions["cudnnBackendFinalize"](heuristics):
            return []
        get, count = self._functions["cudnnBackendGetAttribute"], ctypes.c_int64(0)
        if get(heuristics, 202, _DESCRIPTOR, 0, ctypes.byref(count), None):
            return []
        found = (ctypes.c_void_p * max(count.value, 1))(*(self._new(_ENGINE_CONFIG, made) for _ in range(count.value)))
        if get(heuristics, 202, _DESCRIPTOR, count.value, ctypes.byref(count), found):
            return []
        return [d for d in list(found)[: count.value] if d]

    def _is_excluded(self, made: list[int], config: int, p: ConvolutionProblem) -> bool:
        """Whether PyTorch's settings rule out the engine of a configuration."""
        if not p.deterministic and p.dtype != "float32":
            return False
        engine = self._new(_ENGINE, made)
        count, place = ctypes.c_int64(0), (ctypes.c_void_p * 1)(engine)
        get = self._functions["cudnnBackendGetAttribute"]
        if get(config, 300, _DESCRIPTOR, 1, ctypes.byref(count), place):
            return True
        many = ctypes.c_int64(0)
        unknown = get(place[0], 1303, _NOTE, 0, ctypes.byref(many), None)
        notes = self._numbers(place[0] or engine, 1303, _NOTE, _KNOWN_NOTES if unknown else many.value)
        if p.deterministic and _NONDETERMINISTIC in notes:
            return True
        return p.dtype == "float32" and (_DOWN_CONVERT in notes or (not p.tf32 and _TENSOR_CORE in notes))

    # -- descriptors ---------------------------------------------------------------------------------

    def _new(self, kind: int, made: list[int]) -> int:
        descriptor = ctypes.c_void_p()
        code = self._functions["cudnnBackendCreateDescriptor"](kind, ctypes.byref(descriptor))
        self._check(code, f"a descriptor of type {kind}")
        made.append(descriptor.value or 0)
        return descriptor.value or 0

    def _set(self, descriptor: int, name: int, type_: int, values: Sequence[Any]) -> None:
        elements = (_ELEMENTS[type_] * len(values))(*values)
        code = self._functions["cudnnBackendSetAttribute"](descriptor, name, type_, len(values), elements)
        self._check(code, f"attribute {name}")

    def _numbers(self, descriptor: int, name: int, type_: int, most: int) -> list[int]:
        elements, count = (_ELEMENTS[type_] * most)(), ctypes.c_int64(0)
        get = self._functions["cudnnBackendGetAttribute"]
        self._check(get(descriptor, name, type_, most, ctypes.byref(count), elements), f"attribute {name}")
        return [int(x) for x in list(elements)[: min(count.value, most)]]

    def _finalize(self, descriptor: int, what: str) -> None:
        self._check(self._functions["cudnnBackendFinalize"](descriptor), what)

    def _check(self, status: int, what: str) -> None:
        if status:
            raise LibraryError(f"{what}: cuDNN says: {cudnn_status_text(status)}")


_ELEMENTS: dict[int, Any] = {
    _INT64: ctypes.c_int64, _FLOAT: ctypes.c_float, _DOUBLE: ctypes.c_double, _HANDLE: ctypes.c_void_p,
    _DATA_TYPE: ctypes.c_int, _CONVOLUTION_MODE: ctypes.c_int, _HEUR_MODE: ctypes.c_int, _NOTE: ctypes.c_int,
    _DESCRIPTOR: ctypes.c_void_p,
}  # fmt: skip


def _strides(shape: Sequence[int], channels_last: bool) -> list[int]:
    """Strides in elements of a dense tensor of [batch, channels, spatial dims...]."""
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= shape[dim]
    return strides


@functools.cache
def cudnn() -> Cudnn:
    """The process's library: the one that PyTorch calls.

    Raises LibraryError when there is none.
    """
    name = f"libcudnn.so.{(torch.backends.cudnn.version() or 90000) // 10000}"
    try:
        return Cudnn(ctypes.CDLL(loaded_library("libcudnn") or name))
    except OSError as error:
        raise LibraryError(f"no cuDNN: {error}") from error
