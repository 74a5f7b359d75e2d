# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the server shows: a model's last compilations, what differs between them, and a person's edits."""

import asyncio
import shutil
import time
from collections.abc import AsyncGenerator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kiln.errors import KilnError, did_you_mean
from kiln.tools.live.changes import changes, launch_times
from kiln.tools.live.children import Children
from kiln.tools.live.edited_text import shown
from kiln.tools.live.edits import Edits
from kiln.tools.live.jobs import Failure, Job, Outcome

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Compilation", "Session"]


@dataclass
class Compilation:
    """One that succeeded. ``folder`` has its stages; ``cause``: why it was made."""

    number: int
    cause: str
    folder: Path
    outcome: Outcome
    seconds: float
    is_edited: bool = False


@dataclass
class _State:
    """unedited: the last one without edits. last, before: the last two of all. failure: of the last try."""

    unedited: Compilation | None = None
    last: Compilation | None = None
    before: Compilation | None = None
    failure: dict[str, Any] | None = None
    output: str = ""
    doing: str = ""
    edits: Edits = field(default_factory=Edits)


class Session:
    """One model. ``job``: how it is compiled, without folders; ``folder``: an empty one for what is compiled."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._children = Children(folder)
        self._state = _State()
        self._lock = asyncio.Lock()
        self._listeners: set[asyncio.Queue[dict[str, Any]]] = set()
        self._count = 0
        self.started = time.time_ns()
        """When the last compilation of the files as they are began, in nanoseconds of the clock of files' times."""
        module = Path(*job.model.partition(":")[0].split("."))
        guessed = (module.with_suffix(".py"), module / "__init__.py")
        self._files = {str(file.resolve()) for file in (*map(Path, job.load), *guessed) if file.is_file()}

    async def close(self) -> None:
        """End the processes."""
        await self._children.close()

    @property
    def files(self) -> list[str]:
        """Files whose change is a reason to compile again, as far as they are known."""
        return sorted(self._files)

    async def compile(self, cause: str, *, renew: bool = False) -> None:
        """Compile the model as its files are now. Edits are dropped: they were of other stages.

        renew: Kiln itself has changed.
        """
        self.stop()
        async with self._lock:
            with self._doing(f"compiling: {cause}"):
                self.started = time.time_ns()
                if renew:
                    await self._children.renew()
                await self._run(cause, Edits(), compare=False)

    async def edit(self, graph: int, part: str, text: str, *, compare: bool) -> None:
        """Compile with an edited stage, or code of a kernel. Raises KilnError where there is no such part."""
        edits = self._state.edits.with_part(graph, part, self._dumped(graph, part), text)
        await self._compile_edited(f"edited {part}", edits, compare)

    async def edit_schedule(self, graph: int, fusion: str, schedule: str, *, compare: bool) -> None:
        """Compile with another schedule of a fusion. Raises KilnError where there is no scheduled IR."""
        edits = self._state.edits.with_schedule(graph, fusion, self._dumped(graph, "sched"), schedule)
        await self._compile_edited(f"edited schedule of {fusion}", edits, compare)

    async def compare(self) -> None:
        """Compile once more with the edits that there are, run, and compare."""
        await self._compile_edited("compared", self._state.edits, True)

    def stop(self) -> None:
        """End the process that compiles."""
        self._children.stop()

    def source(self, graph: int, part: str) -> str:
        """The text of a part of the last compilation, for a person to edit. Raises KilnError where there is none."""
        return shown(self._dumped(graph, part))

    @property
    def data(self) -> dict[str, Any]:
        """What the trace's page shows."""
        last = self._state.last
        return last.outcome.data if last else {"title": f"Kiln trace of {self._job.model}", "graphs": []}

    def state(self) -> dict[str, Any]:
        """All that the page shows beside the trace."""
        state = self._state
        last, before, unedited = state.last, state.before, state.unedited
        return {
            "doing": state.doing,
            "count": self._count,
            "failure": state.failure,
            "output": state.output,
            "watched": len(self.files),
            "edits": state.edits.names(),
            "sources": [list(parts) for parts in last.outcome.sources] if last else [],
            "schedules": last.outcome.schedules if last else [],
            "last": _described(last),
            "before": _described(before),
            "changes": changes(before.outcome.data, last.outcome.data) if before and last else [],
            "times": launch_times(unedited.outcome.data, last.outcome.data) if unedited and last else [],
            "comparison": last.outcome.comparison if last else {},
        }

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """What is being done, and the number of the last compilation, each time when either changes."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield self._event()
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    def _event(self) -> dict[str, Any]:
        last = self._state.last
        return {"doing": self._state.doing, "number": last.number if last else 0, "count": self._count}

    def _tell(self) -> None:
        for queue in self._listeners:
            queue.put_nowait(self._event())

    @contextmanager
    def _doing(self, what: str) -> "Generator[None, None, None]":
        self._state.doing = what
        self._tell()
        try:
            yield
        finally:
            self._state.doing = ""
            self._tell()

    def _dumped(self, graph: int, part: str) -> str:
        """The text of a part as it was dumped last."""
        last = self._state.last
        if last is None or not 0 <= graph < len(last.outcome.graphs):
            raise KilnError(f"there is no graph {graph}")
        sources = last.outcome.sources[graph]
        if part not in sources:
            raise KilnError(f"graph {graph} has no part {part!r}{did_you_mean(part, sources)}")
        return (last.folder / "stages" / last.outcome.graphs[graph] / sources[part]).read_text(encoding="utf-8")

    async def _compile_edited(self, cause: str, edits: Edits, compare: bool) -> None:
        if self._lock.locked():
            raise KilnError("another compilation is under way; stop it first")
        async with self._lock:
            with self._doing(f"{'comparing' if compare else 'compiling'}: {cause}"):
                await self._run(cause, edits, compare=compare)

    async def _run(self, cause: str, edits: Edits, *, compare: bool) -> None:
        self._count += 1
        folder = self._folder / f"compilation{self._count}"
        folder.mkdir()
        is_edited = bool(edits.parts)
        calls = self._job.calls if compare or not is_edited else 0
        dump, result = str(folder / "stages"), str(folder / "result.json")
        job = replace(self._job, dump=dump, result=result, calls=calls, compare=compare, schedules={})
        unedited = self._state.unedited
        if is_edited:
            assert unedited is not None
            edits.write(folder / "edits", unedited.outcome, unedited.folder / "stages", job)
        start = time.perf_counter()
        outcome, self._state.output = await self._children.run(job)
        self._files.update(outcome.files)
        if outcome.failure is not None:
            self._failed(outcome.failure, edits)
            shutil.rmtree(folder)
        else:
            made = Compilation(self._count, cause, folder, outcome, time.perf_counter() - start, is_edited)
            self._succeeded(made, edits)
        await self._children.prepare()

    def _failed(self, failure: Failure, edits: Edits) -> None:
        unedited = self._state.unedited
        place = edits.place_of(failure, unedited.outcome) if unedited is not None else None
        self._state.failure = {**asdict(failure), "place": asdict(place) if place is not None else None}

    def _succeeded(self, made: Compilation, edits: Edits) -> None:
        state = self._state
        state.failure, state.edits = None, edits
        state.before, state.last = state.last, made
        if not made.is_edited:
            state.unedited = made
        kept = {found.folder for found in (state.last, state.before, state.unedited) if found is not None}
        for folder in self._folder.glob("compilation*"):
            if folder not in kept:
                shutil.rmtree(folder)


def _described(found: Compilation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"number": found.number, "cause": found.cause, "seconds": found.seconds, "edited": found.is_edited}
