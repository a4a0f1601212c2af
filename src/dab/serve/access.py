"""Who may ask: the token, and pages of other sites."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["OPEN", "OwnOrigin", "Token"]

# Without a token: whether the server is up, and the page, which asks for the token itself.
OPEN = frozenset({"/", "/v2/health/live", "/v2/health/ready"})


class Token:
    """Answers 401 unless a request has the token, on all paths that are not `OPEN`."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN:
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self.expected):  # takes the same time for all
                return await _refuse(401, "a valid bearer token is required", scope, receive, send)
        await self.app(scope, receive, send)


class OwnOrigin:
    """Answers 403 to requests that change something and come from the page of another site.

    Browsers send the origin of the page with them; other clients send none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            headers = dict(scope["headers"])
            origin = headers.get(b"origin")
            if origin is not None and _host(origin) != headers.get(b"host"):
                return await _refuse(403, "request of another site", scope, receive, send)
        await self.app(scope, receive, send)


def _host(origin: bytes) -> bytes | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


async def _refuse(status: int, why: str, scope: Scope, receive: Receive, send: Send) -> None:
    from starlette.responses import JSONResponse

    headers = {"www-authenticate": "Bearer"} if status == 401 else {}
    await JSONResponse({"error": why}, status, headers)(scope, receive, send)
