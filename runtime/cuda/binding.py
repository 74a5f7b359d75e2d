# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Bindings of plans for a GPU: launch tables as `kiln_run_cuda` reads them (lowering/host/cuda_launcher.py)."""

import array
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from kiln.runtime.binding import Binder, Binding, Segment, StateLayout
from kiln.runtime.cuda.cublaslt import BIAS_POINTER, Prepared, Problem
from kiln.runtime.cuda.cudnn import ConvolutionProblem, PreparedConvolution
from kiln.runtime.cuda.libraries import LibrarySettings, alignment, convolution_problem, product_problem
from kiln.runtime.memory import aligned
from kiln.runtime.plan import Convolution, Launch, Plan, Product, TensorMap

__all__ = [
    "BY_REFERENCE",
    "IN_PLACE",
    "Convolutions",
    "CudaBinder",
    "CudaLayout",
    "Entries",
    "Library",
    "SegmentLaunches",
]

IN_PLACE = 1 << 32
"""Flag of a slot: the parameter is what lies in the state from there on."""

BY_REFERENCE = 1 << 33
"""Flag of a slot: a function of the host gets the address of the parameter."""

_ALIGNMENT = 256
_CLEAR, _CALL, _CHANGE = 1, 2, 3
_CALL_PARAMETERS = 16
_MAP_WORDS, _MAP_ALIGNMENT = 16, 64
_ANY_STRIDE = 16  # elements
_PROMOTE_128_BYTES = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B

_serials = itertools.count(1)

Pair = tuple[int, int]
"""A slot of the state, and what is added to the word there."""


class CudaLayout(StateLayout):
    """The state's words, and behind them for each tensor descriptor the descriptor itself, at word
    `maps[segment, launch, pointer]`, and two words that tell what it was made from, at `records[...]`.
    """

    alignment = _MAP_ALIGNMENT

    def __init__(self, plan: Plan, parts: Sequence[Segment]) -> None:
        super().__init__(plan, parts)
        keys = [
            (k, i, descriptor.pointer)
            for k, part in enumerate(parts)
            for i, launch in enumerate(part.launches)
            for descriptor in launch.descriptors
        ]
        start = -(-self.words * 8 // _MAP_ALIGNMENT) * _MAP_ALIGNMENT // 8
        self.maps = {key: start + _MAP_WORDS * i for i, key in enumerate(keys)}
        self.records = {key: start + _MAP_WORDS * len(keys) + 2 * i for i, key in enumerate(keys)}
        if keys:
            self.words = start + (_MAP_WORDS + 2) * len(keys)


@dataclass
class SegmentLaunches:
    """Of a segment's table: what each entry is, for error messages, and which ones are calls of a library ("cuBLASLt",
    "cuDNN").
    """

    names: list[str] = field(default_factory=list[str])
    library: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class Entries:
    """Addresses of the driver's functions that tables name, and the context that they are called in."""

    launch: int = 0
    clear: int = 0
    set_context: int = 0
    context: int = 0
    encode: int = 0  # cuTensorMapEncodeTiled


@dataclass(frozen=True)
class Library:
    """cuBLASLt as tables use it: the addresses of cublasLtMatmul and cublasLtMatmulDescSetAttribute, its handle, and
    `prepare(problem, candidate)`.
    """

    matmul: int
    set_attribute: int
    handle: int
    prepare: Callable[[Problem, int], Prepared]
    settings: LibrarySettings = LibrarySettings()


@dataclass(frozen=True)
class Convolutions:
    """cuDNN as tables use it: the address of `kiln_execute_cudnn` and its record, and `prepare(problem)`."""

    execute: int
    record: int
    prepare: Callable[[ConvolutionProblem], PreparedConvolution]
    settings: LibrarySettings = LibrarySettings()


class CudaBinder(Binder):
    """Makes the bindings of a plan whose kernels are the device functions `functions`."""

    def __init__(
        self,
        plan: Plan,
        parts: Sequence[Segment],
        layout: CudaLayout,
        functions: Sequence[int],
        entries: Entries,
        library: Library | None = None,
        convolutions: Convolutions | None = None,
    ) -> None:
        super().__init__(plan, parts, layout, functions)
        self.maps, self.records, self.entries = layout.maps, layout.records, entries
        self.library, self.convolutions = library, convolutions

    @override
    def table(self, binding: Binding, epoch: int, part: int, threads: int) -> tuple[list[int], int]:
        words: list[int] = []
        most, needed = _CALL_PARAMETERS, 0
        found = binding.device[part] = SegmentLaunches()
        for i, launch in enumerate(self.parts[part].launches):
            pointers = [self._address(binding, launch, p) for p in range(len(launch.pointers))]
            if launch.product is not None:
                needed = max(needed, self._product(binding, epoch, launch, launch.product, pointers, words, found))
                continue
            if launch.convolution is not None:
                convolution = launch.convolution
                needed = max(needed, self._convolution(binding, epoch, launch, convolution, pointers, words, found))
                continue
            grid = [binding.values[e] for e in launch.grid]
            # Also in front of a launch that does nothing: nothing is added to zeros.
            for pointer, size in launch.clear:
                if binding.values[size]:
                    words += (_CLEAR, 5, *pointers[pointer], binding.values[size])
                    found.names.append(f"clearing a result of {launch.title}")
            if 0 in grid:
                continue
            params, scratch = self._params(binding, epoch, launch, list(pointers), grid)
            for number, descriptor in enumerate(launch.descriptors):
                key = part, i, descriptor.pointer
                form = self.plan.kernels[launch.kernel].tensor_maps[number]
                # Nothing is loaded from an empty tensor, but the driver takes no descriptor of one.
                sizes = [binding.values[e] or 1 for e in descriptor.shape]
                strides = [binding.values[e] or _ANY_STRIDE for e in descriptor.strides]
                words += (_CHANGE, 6, *pointers[descriptor.pointer], self.records[key], next(_serials))
                words += self._encoding(binding, form, self.maps[key], pointers[descriptor.pointer], sizes, strides)
                what = f"a tensor descriptor for sizes {tuple(sizes)} and strides {tuple(strides)} of {launch.title}"
                found.names += [what, what]
                params[descriptor.pointer] = (self.maps[key] | IN_PLACE, 0)
            kernel = self.plan.kernels[launch.kernel]
            flat = [word for pair in params for word in pair]
            words += (self.addresses[launch.kernel], 8 + len(flat), *grid, kernel.threads, kernel.shared, len(params))
            words += flat
            found.names.append(launch.title)
            most, needed = max(most, len(params)), max(needed, scratch)
        checks = self._inputs_of(part)
        e = self.entries
        return [most, e.launch, e.clear, e.set_context, e.context, len(checks), *checks, *words, 0], needed

    def _encoding(
        self,
        binding: Binding,
        form: TensorMap,
        place: int,
        address: Pair,
        sizes: Sequence[int],
        strides: Sequence[int],
    ) -> list[int]:
        """The call of cuTensorMapEncodeTiled that writes a descriptor to a place in the state.

        sizes, strides: elements, outermost dim first; the last stride is 1.
        """
        rank = len(sizes)
        wide = array.array("Q", [*reversed(sizes), *(form.item_bytes * s for s in reversed(strides[:-1])), 0])
        narrow = array.array("I", [*reversed(form.block), *([1] * rank)])
        binding.keep += [wide, narrow]
        sizes_at, blocks_at = wide.buffer_info()[0], narrow.buffer_info()[0]
        numbers = (0, form.swizzle, _PROMOTE_128_BYTES, 0)  # no interleaving; zeros out of bounds
        return _call(
            self.entries.encode,
            [
                (place | IN_PLACE, 0),
                (0, form.type),
                (0, rank),
                address,
                *((0, a) for a in (sizes_at, sizes_at + 8 * rank, blocks_at, blocks_at + 4 * rank)),
                *((0, number) for number in numbers),
            ],
        )

    def _product(
        self,
        binding: Binding,
        epoch: int,
        launch: Launch,
        product: Product,
        pointers: list[Pair],
        words: list[int],
        found: SegmentLaunches,
    ) -> int:
        """Adds the calls of a product to `words`; returns the bytes of scratch memory that it needs."""
        library = self.library
        assert library is not None, "a plan with products is bound with a library"
        batch, m, n, _ = (binding.values[e] for e in product.sizes)
        if not batch * m * n:
            return 0
        lhs, rhs, *bias, result = pointers

        alignments = [alignment(addend) for _, addend in pointers]
        problem = product_problem(product, binding.values, alignments, library.settings)
        made = library.prepare(problem, product.candidate)
        binding.keep.append(made)
        start = -(-binding.scratch // _ALIGNMENT) * _ALIGNMENT
        calls: list[list[int]] = []
        if bias:
            where = (bias[0][0] | BY_REFERENCE, bias[0][1])
            calls.append(_call(library.set_attribute, [(0, made.descriptor), (0, BIAS_POINTER), where, (0, 8)]))
        fixed = [(0, a) for a in (library.handle, made.descriptor, made.one)]
        matrices = [rhs, (0, made.rhs), lhs, (0, made.lhs), (0, made.zero), *([result, (0, made.result)] * 2)]
        workspace = (self.layout.WORKSPACE + epoch, start) if made.workspace else (0, 0)
        last = [(0, made.algorithm), workspace, (0, made.workspace)]
        calls.append(_call(library.matmul, [*fixed, *matrices, *last]))
        for call in calls:
            words += call
            found.library[len(found.names)] = "cuBLASLt"
            found.names.append(launch.title)
        return start - binding.scratch + made.workspace if made.workspace else 0

    def _convolution(
        self,
        binding: Binding,
        epoch: int,
        launch: Launch,
        convolution: Convolution,
        pointers: list[Pair],
        words: list[int],
        found: SegmentLaunches,
    ) -> int:
        """Adds the call of a convolution to `words`; returns the bytes of scratch memory that it needs."""
        library = self.convolutions
        assert library is not None, "a plan with convolutions is bound with a library"
        if any(not binding.values[e] for e in convolution.result):
            return 0
        alignments = [alignment(addend) for _, addend in pointers]
        problem = convolution_problem(convolution, binding.values, alignments, library.settings)
        made = library.prepare(problem)
        binding.keep.append(made)
        start = -(-binding.scratch // _ALIGNMENT) * _ALIGNMENT
        workspace = (self.layout.WORKSPACE + epoch, start) if made.workspace else (0, 0)
        words += _call(library.execute, [(0, library.record), (0, made.plan), *pointers, workspace])
        found.library[len(found.names)] = "cuDNN"
        found.names.append(launch.title)
        return start - binding.scratch + made.workspace if made.workspace else 0

    def _address(self, binding: Binding, launch: Launch, number: int) -> tuple[int, int]:
        """(slot, addend) of a pointer."""
        pointer = launch.pointers[number]
        buffer = self.plan.buffers[pointer.buffer]
        offset = binding.values[pointer.bytes]
        if buffer.kind == "workspace":
            return self.layout.WORKSPACE + buffer.epoch, binding.offset(pointer.buffer) + offset
        return self.layout.slots[pointer.buffer], offset

    def _params(
        self, binding: Binding, epoch: int, launch: Launch, pointers: list[Pair], grid: Sequence[int]
    ) -> tuple[list[tuple[int, int]], int]:
        """The parameters of a launch and its bytes of scratch memory.

        Triton's kernels take two more pointers than their source: memory for each program, and the profiler's.
        """
        start = -(-binding.scratch // _ALIGNMENT) * _ALIGNMENT
        mine = -(-aligned(binding.values[launch.scratch]) // _ALIGNMENT) * _ALIGNMENT if launch.has_scratch else 0
        each = self.plan.kernels[launch.kernel].program_scratch
        programs = grid[0] * grid[1] * grid[2] * each
        params = [*pointers, *((0, binding.values[s]) for s in launch.symbols)]
        base = self.layout.WORKSPACE + epoch
        if launch.has_scratch:
            params.append((base, start))
        params.append((base, start + mine) if each else (0, 0))
        params.append((0, 0))
        return params, (start - binding.scratch + mine + programs) if mine + programs else 0

    def _inputs_of(self, part: int) -> list[int]:
        """Slots of the graph's inputs that a segment reads first: nothing else may be unaligned."""
        fresh = self.layout.fresh[part]
        return [self.layout.slots[b] for b in fresh if self.plan.buffers[b].kind == "input"]


def _call(function: int, parameters: Sequence[Pair]) -> list[int]:
    """The entry of a call of the host."""
    return [_CALL, 4 + 2 * len(parameters), function, len(parameters), *(word for pair in parameters for word in pair)]
