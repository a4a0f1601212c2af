"""The page of a report, served while runs are in progress."""

from __future__ import annotations

import hashlib
import html
import json
import socket
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from dab.report.collect import NoRunsError
from dab.report.page import policy, render, to_json
from dab.report.report import gather
from dab.utils.files import Location
from dab.utils.web.server import (
    LOOPBACK,
    PATIENCE,
    SafeHeaders,
    host_names,
    impatient,
)

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["application", "serve", "server"]

CONNECTIONS = 100  # at a time

WAITING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<meta name="color-scheme" content="light dark">
<title>dab</title>
<p>Waiting for a run.</p>
<pre>{}</pre>
</html>
"""


def application(
    out: Location, *, every: float = 3.0, hosts: Collection[str] = (LOOPBACK,)
) -> Starlette:
    """A server of a folder's page.

    Args:
        out: the folder of the results; it may still be empty.
        every: seconds after which an open page requests new data.
        hosts: host names to accept in addition to localhost; 0.0.0.0: any. Other names are
            refused, so that no other site can read the page through a name that it controls
            (DNS rebinding).
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import HTMLResponse, Response
    from starlette.routing import Route

    own = policy(connect="'self'") + "; frame-ancestors 'none'"

    def page(request: Request) -> Response:
        try:
            content = render(gather(out, now=time.time()), refresh=every)
        except NoRunsError as error:
            return HTMLResponse(WAITING.format(html.escape(str(error))))
        except (ValueError, OSError) as error:
            return HTMLResponse(html.escape(str(error)), status_code=500)
        return HTMLResponse(content, headers={"content-security-policy": own})

    def news(request: Request) -> Response:
        try:
            found = to_json(gather(out, now=time.time()))
        except (ValueError, OSError) as error:
            return Response(json.dumps({"error": str(error)}), 500, media_type="application/json")
        content = json.dumps(found, separators=(",", ":"), allow_nan=False).encode()
        tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type="application/json")

    return Starlette(
        routes=[Route("/", page), Route("/data.json", news)],
        middleware=[
            Middleware(SafeHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=host_names(hosts)),
        ],
    )


def server(app: Starlette, *, patience: float = PATIENCE) -> uvicorn.Server:
    """A server that drops clients that are too slow.

    Args:
        app: what to serve.
        patience: seconds that a client may take to send a request, or to read any of a response.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        http=impatient(patience),
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
        limit_concurrency=CONNECTIONS,
    )
    return uvicorn.Server(config)


def serve(
    out: Location, listening: socket.socket, *, host: str = LOOPBACK, every: float = 3.0
) -> None:
    """Serve the page of a folder until interrupted, to clients that use its name or address."""
    hosts = (host.lower(), listening.getsockname()[0])
    server(application(out, every=every, hosts=hosts)).run(sockets=[listening])
