# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Launches of a plan one by one, on the CPU: to time them, or to tell PyTorch's profiler of each."""

import array
import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from typing_extensions import override

from kiln.runtime.binding import Binder, Binding, Segment, StateLayout
from kiln.runtime.executor import Executor
from kiln.runtime.plan import Launch

__all__ = ["Groups", "RegionExecutor", "SplitExecutor", "short_title"]

_PLACE = re.compile(r"^([^(]*) \((?:.*[/\\])?([^/\\]+?:\d+)(?::\d+)?\)$")


class Groups:
    """The launches of one segment, each of which can be run alone."""

    def __init__(self, launch: Callable[[int], Any], state: int) -> None:
        self._launch, self._state = launch, state
        self._word = ctypes.c_int64.from_address(state + 8 * StateLayout.TABLE)
        self.table = self._word.value
        self._block, *self.groups = _groups(self.table)

    def run(self, group: Sequence[int] = ()) -> None:
        """Call native code for one launch, by default for none."""
        table = array.array("q", [self._block, *group, 0])
        self._word.value = table.buffer_info()[0]
        self._launch(self._state)

    def close(self) -> None:
        """Put back the table of the whole segment."""
        self._word.value = self.table


class SplitExecutor(Executor):
    """An executor that calls native code once per launch. Each is a parallel region of its own.

    A subclass says what is done around each (`each`).
    """

    def each(self, groups: Groups) -> None:
        """Run the launches of a segment."""
        raise NotImplementedError(f"{type(self).__name__}.each")

    def launch_of(self, table: int, number: int) -> tuple[Launch, Binding]:
        """A launch of the segment whose table lies at an address, and the sizes it is bound to."""
        segment, binding = self._tables[table]
        return self._parts[segment].launches[number], binding

    @override
    def _load(self, parts: Sequence[Segment]) -> tuple[Binder, Callable[[int], Any] | None]:
        self._tables: dict[int, tuple[int, Binding]] = {}
        binder, launch = super()._load(parts)
        binder.regions = False
        if launch is None:
            return binder, None

        def split(state: int) -> None:
            groups = Groups(launch, state)
            self.each(groups)
            groups.close()

        return binder, split

    @override
    def _bind(self, epoch: int, *rest: Any, **named: Any) -> Binding:
        binding = super()._bind(epoch, *rest, **named)
        self._tables |= {address: (segment, binding) for segment, address in binding.tables.items()}
        return binding


class RegionExecutor(SplitExecutor):
    """What runs in place of another executor while PyTorch's profiler does: a region for the graph, and one for each
    launch, with the kernel's name and the line of the model that it comes from. ATen calls have regions of their own.
    """

    has_regions = True

    def __init__(self, base: Executor) -> None:
        self._base = base
        super().__init__(base.plan)
        run, name = self.run, f"kiln {base.plan.name}"

        def within(inputs: Sequence[Any]) -> list[Any]:
            with torch.profiler.record_function(name):
                return run(inputs)

        self.run = within

    @override
    def _loaded_constants(self, constants: Any) -> list[torch.Tensor]:
        return self._base.constants

    @override
    def each(self, groups: Groups) -> None:
        for number, group in enumerate(groups.groups):
            with torch.profiler.record_function(short_title(self.launch_of(groups.table, number)[0].title)):
                groups.run(group)


def short_title(title: str) -> str:
    """A launch's title with the line of the model without folders and column: ``addmm_relu (model.py:12)``."""
    return _PLACE.sub(r"\1 (\2)", title)


def _groups(table: int) -> Iterator[Any]:
    """The first word of a launch table (lowering/host/launcher.py), then each of its groups as a list."""

    def word(at: int) -> int:
        return ctypes.c_int64.from_address(table + 8 * at).value

    yield word(0)
    at = 1
    while word(at):
        length = word(at + 1)
        yield [word(at + i) for i in range(length)]
        at += length
