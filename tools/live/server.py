# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The HTTP server of ``kiln-trace --serve``."""

import asyncio
import contextlib
import json
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType] - of trio, which is not here

import kiln
from kiln.errors import KilnError
from kiln.frontend.report.trace.page import page_of
from kiln.tools.live.guard import Guard
from kiln.tools.live.jobs import Job
from kiln.tools.live.session import Session

__all__ = ["make_app", "serve"]

_SETTLED = 100
_EVERY = 1000
"""Milliseconds in which changes of files count as one, and after which they are looked for in any case."""
_LONGEST = 64 << 20
"""Bytes of a request: a stage's text is smaller."""


def serve(job: Job, port: int) -> None:
    """Serve the page of a model at a port of 127.0.0.1 until Ctrl-C; 0: any port. Prints the address.

    Raises OSError for a port that is taken.
    """
    listening = socket.create_server(("127.0.0.1", port))
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="kiln-live-") as folder:
        app = make_app(Session(job, Path(folder)), token, port)
        print(f"http://127.0.0.1:{port}/?token={token}", flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listening])


def make_app(session: Session, token: str, port: int) -> Starlette:
    """The application: the page, its data, events, and what a person asks for."""

    async def page(_: Request) -> Response:
        return HTMLResponse(page_of(session.data, more=["live.js"]))

    async def data(_: Request) -> Response:
        return JSONResponse(session.data)

    async def state(_: Request) -> Response:
        return JSONResponse(session.state())

    async def source(request: Request) -> Response:
        asked = request.query_params
        return PlainTextResponse(session.source(_number(asked.get("graph")), asked["part"]))

    async def events(_: Request) -> Response:
        async def told() -> AsyncGenerator[dict[str, str], None]:
            async for event in session.events():
                yield {"data": json.dumps(event)}

        return EventSourceResponse(told())

    async def edit(request: Request) -> Response:
        asked = await _asked(request)
        graph, compare = _number(asked.get("graph")), asked.get("compare") is True
        if "fusion" in asked:
            await session.edit_schedule(graph, _text(asked, "fusion"), _text(asked, "schedule"), compare=compare)
        else:
            await session.edit(graph, _text(asked, "part"), _text(asked, "text"), compare=compare)
        return JSONResponse(session.state())

    async def compare(_: Request) -> Response:
        await session.compare()
        return JSONResponse(session.state())

    async def reset(_: Request) -> Response:
        await session.compile("without edits")
        return JSONResponse(session.state())

    async def stop(_: Request) -> Response:
        session.stop()
        return JSONResponse({})

    reads = [Route(f"/{f.__name__}", _answered(f), methods=["GET"]) for f in (data, state, source, events)]
    does = [Route(f"/{f.__name__}", _answered(f), methods=["POST"]) for f in (edit, compare, reset, stop)]
    return Starlette(
        routes=[Route("/", page, methods=["GET"]), *reads, *does],
        middleware=[Middleware(Guard, token=token, port=port)],
        lifespan=lambda _: _running(session),
    )


@contextlib.asynccontextmanager
async def _running(session: Session) -> AsyncGenerator[None, None]:
    """Compiles at the start, and whenever a file changes."""
    tasks = [asyncio.create_task(session.compile("the server started")), asyncio.create_task(_watch(session))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await session.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(session: Session) -> None:
    """Compile again when a file that was read, or a part of Kiln, is saved.

    Folders are watched, as editors replace files. What counts is the times of files: while the watch begins anew for
    other folders nothing is told of.
    """
    compiling: set[asyncio.Task[None]] = set()
    seen: dict[str, int] = {}
    while True:
        folders = _folders(session)
        async with contextlib.aclosing(_ticks(folders)) as ticks:
            async for _ in ticks:
                saved = _saved(session, seen)
                if saved:
                    names = ", ".join(Path(path).name for path in saved)
                    own = any(_is_of_kiln(path) for path in saved)
                    task = asyncio.create_task(session.compile(f"saved {names}", renew=own))
                    compiling.add(task)
                    task.add_done_callback(compiling.discard)
                if _folders(session) != folders:
                    break


async def _ticks(folders: set[Path]) -> AsyncGenerator[None, None]:
    """Now and then, and at once when something changes in a folder."""
    watching = awatch(
        *folders, recursive=False, debounce=_SETTLED, rust_timeout=_EVERY, yield_on_timeout=True, watch_filter=None
    )
    async for _ in watching:
        yield


def _folders(session: Session) -> set[Path]:
    return {Path.cwd(), *(Path(file).parent for file in session.files)}


def _saved(session: Session, seen: dict[str, int]) -> list[str]:
    """Files that were saved since they were ``seen``, or since they were compiled."""
    found: list[str] = []
    for file in session.files:
        try:
            saved = os.stat(file).st_mtime_ns
        except OSError:  # an editor may be replacing it
            continue
        before = seen.get(file)
        seen[file] = saved
        if saved > session.started if before is None else saved != before:
            found.append(file)
    return found


def _is_of_kiln(path: str) -> bool:
    return Path(path).is_relative_to(Path(kiln.__file__).resolve().parent.parent)


def _answered(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint whose errors are told as text, with the status 400."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except KeyError as error:
            return PlainTextResponse(f"the request has no {error}", 400)
        except (KilnError, ValueError) as error:
            return PlainTextResponse(str(error), 400)

    return answer


async def _asked(request: Request) -> dict[str, Any]:
    """The body, as JSON. Raises KilnError for anything else."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST:
            raise KilnError(f"a request is {_LONGEST} bytes at most")
    found: Any = json.loads(body)
    if not isinstance(found, dict):
        raise KilnError("expected a JSON object")
    return cast(dict[str, Any], found)


def _number(value: Any) -> int:
    return int(value if value is not None else 0)


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked[name]
    if not isinstance(value, str):
        raise KilnError(f"{name} must be text")
    return value
