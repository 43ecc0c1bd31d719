"""Who may ask: by a name that is this server's, from no other site, and with a token where others can connect."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_SAID = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Lets through what may be answered, and says to browsers what a page may do."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], token: str, port: int) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._token = token
        self._cookie = f"luxmeter-{port}"  # cookies do not know of ports

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SAID)
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refused(scope, headers)
        if refused:
            await PlainTextResponse(refused, 403)(scope, receive, with_headers)
            return
        if self._token and not self._has_cookie(headers):
            answer = self._entered(scope)
            await answer(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)

    def _refused(self, scope: Scope, headers: Headers) -> str:
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if not self._token and host not in self._hosts:
            return f"This server is not called {host!r}: open it by the address that it printed.\n"
        # Behind something that speaks TLS for it, where a token is needed, the scheme may be another.
        schemes = ("http", "https") if self._token else ("http",)
        if origin is not None and origin.lower() not in [f"{scheme}://{host}" for scheme in schemes]:
            return f"A page of {origin!r} may not ask this server.\n"
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        follows_a_link = scope.get("method") == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if elsewhere and not follows_a_link:
            return "A page of another site may lead here, and not load what is here.\n"
        return ""

    def _has_cookie(self, headers: Headers) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._token.encode())

    def _entered(self, scope: Scope) -> PlainTextResponse | RedirectResponse:
        """With the token in the address: the same address without it, and a cookie."""
        asked = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = dict(asked).get("token", "")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return PlainTextResponse("This needs the token: open the address that the server printed.\n", 403)
        rest = urlencode([(name, value) for name, value in asked if name != "token"])
        path = "/" + scope["path"].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer
