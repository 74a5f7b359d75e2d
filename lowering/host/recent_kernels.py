# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels that this process has compiled, for its next graphs: graph breaks, other sizes, a model compiled again."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.kernel_object import KernelObject

__all__ = ["RecentKernels", "recent_kernels"]


class RecentKernels(MutableMapping[str, KernelObject]):
    """Kernels by name, the most recently used ones of at most `max_bytes` of object code. Thread-safe."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self.max_bytes, self.bytes = max_bytes, 0
        self._kernels: OrderedDict[str, KernelObject] = OrderedDict()
        self._lock = threading.RLock()

    def __getitem__(self, name: str) -> KernelObject:
        with self._lock:
            kernel = self._kernels[name]
            self._kernels.move_to_end(name)
            return kernel

    def __setitem__(self, name: str, kernel: KernelObject) -> None:
        with self._lock:
            self.pop(name, None)
            self._kernels[name] = kernel
            self.bytes += len(kernel.object_bytes)
            while self.bytes > self.max_bytes and len(self._kernels) > 1:
                del self[next(iter(self._kernels))]

    def __delitem__(self, name: str) -> None:
        with self._lock:
            self.bytes -= len(self._kernels.pop(name).object_bytes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


_by_cpu: dict[isa.Isa, RecentKernels] = {}


def recent_kernels() -> RecentKernels:
    """Those for the CPU that code is made for now. A kernel's name tells all else that it depends on."""
    return _by_cpu.setdefault(isa.target(), RecentKernels())
