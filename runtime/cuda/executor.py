# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a plan on one NVIDIA GPU, in PyTorch's current stream and with memory from PyTorch's allocator."""

import ctypes
import importlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kiln.runtime.binding import Binding, Segment, StateLayout
from kiln.runtime.cuda.aten_calls import through_aten
from kiln.runtime.cuda.binding import Convolutions, CudaBinder, CudaLayout, Entries, Library, SegmentLaunches
from kiln.runtime.cuda.cublaslt import CublasLt, LibraryError, cublaslt, status_text
from kiln.runtime.cuda.cudnn import Cudnn, cudnn, cudnn_status_text
from kiln.runtime.cuda.driver import CudaError, driver
from kiln.runtime.cuda.libraries import LibrarySettings
from kiln.runtime.cuda.ranges import launched_in_ranges
from kiln.runtime.cuda.replays import LEAST_LAUNCHES, LaunchReplays
from kiln.runtime.executor import Checker, Executor
from kiln.runtime.loader import load
from kiln.runtime.plan import Launch, Plan

__all__ = ["CudaExecutor"]

log = logging.getLogger("kiln")

_MISALIGNED = -1
_PLAIN_POINTERS = 3
"""Pointers of a product without a bias."""


class _Misaligned(Exception):
    """An input does not start at a multiple of 16 bytes, as kernels assume; nothing has run yet."""


class CudaExecutor(Executor):
    """A callable that runs one plan on the GPU that the plan names; see :class:`kiln.runtime.executor.Executor`.

    All launches between two ATen calls are one native call, products of cuBLASLt and convolutions of cuDNN among them;
    without these libraries, or where they refuse, these are ATen calls. A call returns before its work is done, as
    PyTorch's own operators do. Workspace is allocated anew at each call, so that calls in different streams never share
    it, and an allocation that fails is PyTorch's OutOfMemoryError. Launches at addresses that calls had before are
    replayed as one CUDA graph, unless `replays` is False. With `ranges` launches are native calls of their own, each in
    an NVTX range.

    Raises CudaError when there is no driver or it refuses a kernel.
    """

    def __init__(
        self,
        plan: Plan,
        constants: Mapping[str, torch.Tensor] | None = None,
        *,
        check: bool = False,
        checker: Checker | None = None,
        replays: bool = True,
        ranges: bool = False,
    ) -> None:
        self._index = torch.device(plan.device).index or 0
        self._given, self._wants_replays, self._checker = constants, replays and not ranges and checker is None, checker
        self._has_ranges = ranges
        self.replays: LaunchReplays | None = None
        torch.cuda.init()
        with torch.cuda.device(self._index):
            self._blas = self._opened(plan, _has_products(plan), "products", self._open_blas)
            self._dnn = self._opened(plan, _has_convolutions(plan), "convolutions", self._open_dnn)
            left = through_aten(plan, products=self._blas is None, convolutions=self._dnn is None)
            super().__init__(left, constants, check=check, checker=checker)
        self.constants[:] = [_aligned(c) for c in self.constants]
        self._written_out = self.run
        native = [part for part in self._parts if part.launches]
        read = {p.buffer for part in native for launch in part.launches for p in launch.pointers}
        self._inputs = sorted({b.index for i, b in enumerate(plan.buffers) if b.kind == "input" and i in read})
        # The first segment looks at all inputs; behind an ATen call it would find out too late.
        self._looks_first = bool(native) and not self._parts[0].launches
        self.run = self._run

    # -- what depends on the device ------------------------------------------------------------------

    def _state_layout(self, parts: Sequence[Segment]) -> StateLayout:
        return CudaLayout(self.plan, parts)

    def _load(self, parts: Sequence[Segment]) -> tuple[CudaBinder, Callable[[int], Any] | None]:
        layout = self._layout
        assert isinstance(layout, CudaLayout)
        plan = self.plan
        if not any(part.launches for part in parts):
            return CudaBinder(plan, parts, layout, [], Entries()), None
        cuda = driver()
        context = cuda.context(self._index)
        functions = [
            0 if k.kind == "library" else cuda.load(plan.objects[k.object], k.entry, k.shared) for k in plan.kernels
        ]
        described = any(kernel.tensor_maps for kernel in plan.kernels)
        entries = Entries(
            cuda.address("cuLaunchKernel"),
            cuda.address("cuMemsetD8Async"),
            cuda.address("cuCtxSetCurrent"),
            context,
            cuda.address("cuTensorMapEncodeTiled") if described else 0,
        )
        self._code = load([plan.launcher], ["kiln_run_cuda", "kiln_execute_cudnn"])
        code = self._code["kiln_run_cuda"]
        run: Callable[[int, int], int] = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(code)
        long = sum(len(part.launches) >= LEAST_LAUNCHES for part in parts)
        if self._wants_replays and long:
            # Behind the words of addresses is one that differs between states.
            run = self.replays = LaunchReplays(
                plan.name, cuda, context, code, run, layout.flag_address - 1, self._owner, long
            )
        current, index = torch._C._cuda_getCurrentRawStream, self._index

        def launch(address: int) -> None:
            status = run(address, current(index))
            if status:
                self._fail(status, address)

        launches = [launch for part in parts for launch in part.launches]
        blas = self._prepared_library(self._blas) if self._blas is not None else None
        dnn = self._prepared_convolutions(self._dnn) if self._dnn is not None else None
        # Where a bias is, is a property of cuBLASLt's structures, which all threads share; so is cuDNN's stream.
        guarded: Callable[[int], None] = launch
        if self._blas is not None and any(x.product and len(x.pointers) > _PLAIN_POINTERS for x in launches):
            guarded = _alone(self._blas.lock, guarded)
        if self._dnn is not None:
            guarded = _alone(self._dnn.lock, guarded)
        binder = CudaBinder(plan, parts, layout, functions, entries, blas, dnn)
        return binder, launched_in_ranges(guarded, plan.name, self._names) if self._has_ranges else guarded

    def _opened(self, plan: Plan, is_needed: bool, what: str, opened: Callable[[], Any]) -> Any:
        """A library, if the plan needs it and it is there."""
        if not is_needed:
            return None
        try:
            return opened()
        except LibraryError as error:
            log.info("graph %s: %s are ATen calls: %s", plan.name, what, error)
            return None

    def _open_blas(self) -> CublasLt:
        found = cublaslt()
        found.handle(self._index)
        return found

    def _open_dnn(self) -> Cudnn:
        found = cudnn()
        found.record(self._index)
        return found

    def _prepared_convolutions(self, dnn: Cudnn) -> Convolutions:
        return Convolutions(
            self._code["kiln_execute_cudnn"],
            dnn.record(self._index),
            lambda problem: dnn.prepare(self._index, problem),
            LibrarySettings.now(),
        )

    def _prepared_library(self, blas: CublasLt) -> Library:
        return Library(
            blas.address("cublasLtMatmul"),
            blas.address("cublasLtMatmulDescSetAttribute"),
            blas.handle(self._index),
            lambda problem, candidate: blas.prepare(self._index, problem, candidate),
            LibrarySettings.now(),
        )

    def _device_functions(self) -> dict[str, Any]:
        empty = _allocator()
        nothing = torch.empty(0, dtype=torch.uint8, device=self.plan.device)

        def workspace(size: int) -> torch.Tensor:
            return empty((size,), (1,), torch.uint8) if size else nothing

        return {
            "empty": empty,
            "threads": lambda: 1,
            "workspace": workspace,
            "aligned": _aligned,
            "for_attention": _for_attention,
        }

    # -- a call --------------------------------------------------------------------------------------

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        if torch._C._cuda_getDevice() != self._index:
            with torch.cuda.device(self._index):
                return self._run(inputs)
        try:
            return self._written_out(self._aligned_inputs(inputs) if self._looks_first else inputs)
        except _Misaligned:
            self._looks_first = True
            return self._written_out(self._aligned_inputs(inputs))
        except LibraryError as error:
            # Sizes of what libraries do are bound before anything runs.
            log.info("graph %s: what libraries do are ATen calls from now on: %s", self.plan.name, error)
            self._written_out = CudaExecutor(
                through_aten(self.plan),
                self._given,
                check=self._check,
                checker=self._checker,
                replays=self._wants_replays,
                ranges=self._has_ranges,
            ).run
            self._looks_first = False
            return self._written_out(inputs)

    def _aligned_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs, with a copy of each one that kernels read and that is not aligned."""
        moved = [i for i in self._inputs if inputs[i].data_ptr() & 15]
        if not moved:
            return inputs
        return [_aligned(value) if i in moved else value for i, value in enumerate(inputs)]

    def _bound_to(self, table: int) -> tuple[Binding, int] | None:
        """The binding that the table at an address belongs to, and the number of its segment."""
        for binding in list(self._bound.values()):
            for part, address in binding.tables.items():
                if address == table:
                    return binding, part
        return None

    def _names(self, table: int) -> list[str]:
        """What each entry of the table at an address is."""
        found = self._bound_to(table)
        launches = found[0].device.get(found[1]) if found is not None else None
        return launches.names if isinstance(launches, SegmentLaunches) else []

    def _owner(self, table: int) -> tuple[int, Binding] | None:
        """How many launches the table at an address is for, and what keeps it."""
        found = self._bound_to(table)
        return None if found is None else (len(self._parts[found[1]].launches), found[0])

    def _fail(self, status: int, state: int) -> None:
        """Raises for what `kiln_run_cuda` returned."""
        if status == _MISALIGNED:
            raise _Misaligned
        code, number = status & 0xFFFFFFFF, status >> 32
        owner = self._bound_to(ctypes.c_int64.from_address(state + 8 * StateLayout.TABLE).value)
        found = owner[0].device.get(owner[1]) if owner is not None else None
        assert found is None or isinstance(found, SegmentLaunches)
        entry = found.names[number] if found is not None and number < len(found.names) else f"launch {number}"
        where = f"graph {self.plan.name!r}, kernel {entry}"
        library = found.library.get(number) if found is not None else None
        if library is not None:
            text = cudnn_status_text(code) if library == "cuDNN" else status_text(code)
            raise CudaError(code, f"{where}: {library} says: {text}")
        try:
            driver().check(code, where)
        except CudaError as error:
            raise CudaError(
                error.code, f"{error}; CUDA_LAUNCH_BLOCKING=1 shows where an earlier launch failed"
            ) from None


def _has_products(plan: Plan) -> bool:
    return any(isinstance(step, Launch) and step.product for step in plan.steps)


def _has_convolutions(plan: Plan) -> bool:
    return any(isinstance(step, Launch) and step.convolution for step in plan.steps)


def _alone(lock: threading.Lock, launch: Callable[[int], None]) -> Callable[[int], None]:
    """A launch that no other one with the lock runs beside."""

    def launch_alone(address: int) -> None:
        with lock:
            launch(address)

    return launch_alone


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with the same strides where it does not start at a multiple of 16 bytes."""
    if not tensor.data_ptr() & 15:
        return tensor
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def _for_attention(tensor: torch.Tensor) -> torch.Tensor:
    """A CUDA tensor that PyTorch's kernels for attention take: they load 16 bytes at once where the sizes are right for
    it, without a look at the address (pytorch/pytorch#183484), and not all look at the distances of rows.

    A program that computes attention by products has no such limits, so the call in its place may not have them either.
    """
    size = tensor.itemsize
    if tensor.dim() and not tensor.shape[-1] * size & 15 and any(step * size & 15 for step in tensor.stride()[:-1]):
        return tensor.clone()  # dense, with the dims in the same order
    return _aligned(tensor)


def _allocator() -> Callable[[Sequence[int], Sequence[int], torch.dtype], torch.Tensor]:
    """`empty(shape, strides, dtype)` on the current GPU."""
    try:  # a third of the cost of torch.empty_strided; what Inductor's wrappers call
        guards: Any = importlib.import_module("torch._C._dynamo.guards")
        return guards._empty_strided_cuda
    except (ImportError, AttributeError):
        return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
