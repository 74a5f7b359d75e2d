# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Who may talk to a server that compiles and runs code: the page whose address has the token, and nobody else.

Other programs of the machine, and pages of other sites in the user's browser, can reach a port of 127.0.0.1. A name
that is bound anew to 127.0.0.1 has another ``Host``; a page of another site sends an ``Origin``; neither has the token.
"""

import secrets

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_HEADERS = {
    # Scripts and styles are in the page itself; nothing is loaded from elsewhere, and no other page may frame it.
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests by 403. A GET may have the token in its address, all else has it in the header ``X-Kiln-Token``,
    which a page of another site cannot send.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI asks."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        reason = "no websockets" if scope["type"] != "http" else self._refusal(scope)
        if reason:
            await PlainTextResponse(f"forbidden: {reason}\n", 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return "the host is not this one"
        if origin is not None and origin != f"http://{host}":
            return "another origin"
        query = QueryParams(scope["query_string"]).get("token", "") if scope["method"] == "GET" else ""
        token = headers.get("x-kiln-token", query)
        return "" if secrets.compare_digest(token.encode(), self._token.encode()) else "the token is missing or wrong"
