# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A kernel's threads one after the other in a given order, so that a race between them is seen in every run.

Threads of a team have no order between two barriers. Here each thread runs to its next barrier, or to its end, before
the next one starts. Code that relies on what another thread does, or does not do, in that time gives other numbers in
one of the orders.
"""

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal

import torch

from kiln.errors import KilnError
from kiln.runtime import binding, executor, loader

__all__ = ["Order", "SerialThreads", "serial_threads"]

Order = Literal["forward", "reversed"]

_POISON = 0xFF
"""Each byte of memory that is not written yet: NaN as a float of any type, -1 as an integer."""


class _Share:
    """One thread of a team: it runs while it is let, and gives back at a barrier and at its end."""

    def __init__(self, number: int, count: int) -> None:
        self.number, self.count = number, count
        self.is_done = False
        self._goes_on, self._stops = threading.Semaphore(0), threading.Semaphore(0)

    def start(self, work: Callable[[], None]) -> threading.Thread:
        """A thread that waits to be let."""

        def body() -> None:
            self._goes_on.acquire()
            work()
            self.is_done = True
            self._stops.release()

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Let it run to its next barrier or its end."""
        self._goes_on.release()
        self._stops.acquire()

    def wait(self) -> None:
        """Called by the thread at a barrier."""
        self._stops.release()
        self._goes_on.acquire()


class SerialThreads:
    """Stands for the OpenMP runtime of the code that is loaded within `serial_threads`.

    `threads` and `order` may change from call to call: how many threads each kernel gets, whatever its work, and in
    which order they run. With one thread kernels are called directly.
    """

    def __init__(self) -> None:
        self.threads, self.order = 1, "forward"
        self.regions = 0
        self._local = threading.local()
        self._is_uneven = False
        self._workspaces: list[weakref.ref[torch.Tensor]] = []
        size, integer, pointer = ctypes.c_uint, ctypes.c_int, ctypes.c_void_p
        self._functions: dict[str, Any] = {
            "GOMP_parallel": ctypes.CFUNCTYPE(None, pointer, pointer, size, size)(self._parallel),
            "GOMP_barrier": ctypes.CFUNCTYPE(None)(self._barrier),
            "omp_get_thread_num": ctypes.CFUNCTYPE(integer)(lambda: self._share().number),
            "omp_get_num_threads": ctypes.CFUNCTYPE(integer)(lambda: self._share().count),
        }

    def call(self, function: Callable[[], Any], threads: int = 1, order: Order = "forward") -> Any:
        """What `function` returns, its kernels run by `threads` threads; workspaces hold NaN before.

        Raises KilnError where threads wait at a barrier that others of their team do not reach.
        """
        self.threads, self.order, self._is_uneven = threads, order, False
        for found in self._workspaces:
            tensor = found()
            if tensor is not None:
                tensor.fill_(_POISON)
        result = function()
        if self._is_uneven:
            raise KilnError(f"of {threads} threads some wait at a barrier that others do not reach")
        return result

    # -- what stands in for functions of OpenMP and of the runtime --------------------------------------------------

    def address(self, name: str) -> int | None:
        """The address of what stands for a function of OpenMP."""
        function = self._functions.get(name)
        return None if function is None else ctypes.cast(function, ctypes.c_void_p).value

    def empty(self, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """`torch.empty_strided`, filled with NaN."""
        tensor = torch.empty_strided(shape, strides, dtype=dtype)
        if tensor.numel():
            memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            memory.fill_(_POISON)
        return tensor

    def workspace(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, filled with NaN, now and before each later call."""
        self._workspaces = [found for found in self._workspaces if found() is not None]
        self._workspaces.append(weakref.ref(tensor))
        return tensor.fill_(_POISON)

    def _share(self) -> _Share:
        return getattr(self._local, "share", None) or _Share(0, 1)

    def _barrier(self) -> None:
        self._share().wait()

    def _parallel(self, function: int, data: int, count: int, flags: int) -> None:
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)
        shares = [_Share(number, count) for number in range(count)]

        def work(share: _Share) -> None:
            self._local.share = share
            run(data)

        threads = [share.start(lambda share=share: work(share)) for share in shares]
        left: list[_Share] = shares[::-1] if self.order == "reversed" else shares
        while left:
            for share in left:
                share.run()
            still = [share for share in left if not share.is_done]
            self._is_uneven |= 0 < len(still) < len(left)
            left = still
        for thread in threads:
            thread.join()
        self.regions += 1


@contextlib.contextmanager
def serial_threads() -> Generator[SerialThreads, None, None]:
    """Graphs that are compiled for the CPU within the block run their threads one after the other.

    They may be called within the block only, one at a time. All threads share each kernel, however small; memory that
    is not written yet holds NaN.
    """
    emulated = SerialThreads()
    state_type = vars(executor)["_State"]
    found, grow = loader.symbol_address, state_type.grow

    def grown(state: Any, epoch: int, size: int) -> None:
        grow(state, epoch, size)
        emulated.workspace(state.tensors[epoch])

    def address(name: str) -> int:
        return emulated.address(name) or found(name)

    places: list[tuple[Any, str, Any]] = [
        (loader, "symbol_address", address),
        (executor, "max_threads", lambda: emulated.threads),
        (executor, "_empty", emulated.empty),
        (executor, "_empty_large", emulated.empty),
        (state_type, "grow", grown),
        (binding, "WORK_PER_THREAD", 1),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield emulated
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
