# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A line in the terminal that says which pass a long compilation is in; tuning takes seconds for each kernel."""

import contextlib
import sys
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from kiln.passes.instruments import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes import PipelineStep

__all__ = ["showing_progress"]

_SILENT_SECONDS = 2.0


@contextlib.contextmanager
def showing_progress(graph: str, seconds: float = _SILENT_SECONDS) -> Generator[list[Instrument], None, None]:
    """Instruments that show the pass of a compilation that takes longer than ``seconds``; none without a terminal."""
    if not sys.stderr.isatty():
        yield []
        return
    progress = _Progress(graph, seconds)
    try:
        yield [progress]
    finally:
        progress.stop()


class _Progress(Instrument):
    kernel_by_kernel = True

    def __init__(self, graph: str, seconds: float) -> None:
        self._graph, self._pass = graph, ""
        self._status: Any = None
        self._is_stopped = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._show)
        self._timer.daemon = True
        self._timer.start()

    @override
    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if step.name != self._pass:
            self._pass = step.name
            if self._status is not None:
                self._status.update(self._line())

    def stop(self) -> None:
        """Take the line away."""
        with self._lock:
            self._is_stopped = True
            self._timer.cancel()
            if self._status is not None:
                self._status.stop()

    def _show(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._is_stopped:
                self._status = Console(stderr=True).status(self._line())
                self._status.start()

    def _line(self) -> str:
        return f"kiln: compiling the {self._graph}: {self._pass.partition('{')[0]}"
