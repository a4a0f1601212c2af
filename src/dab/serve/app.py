"""The routes of the server."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import dab
from dab.data.transform import Transform
from dab.fleet.shelf import check_id
from dab.serve import protocol
from dab.serve.access import OwnOrigin, Token
from dab.serve.backend import Backend, Prediction
from dab.serve.errors import ModelError, RefusedError, TooLargeError
from dab.serve.page import page, page_policy
from dab.serve.status import STATES, Status
from dab.serve.uploads import FORMATS, decode_upload
from dab.utils.web.server import LOOPBACK, PATIENCE, SafeHeaders, host_names

__all__ = ["Served", "application"]

logger = logging.getLogger("dab.serve")

PLAIN = re.compile(r"[^\x00-\x1f\x7f/]+")
TOP = 5  # classes in an answer
LISTED = 200  # streams on the page
RETRY = {"retry-after": "1"}

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Served:
    """The model as clients see it."""

    name: str
    transform: Transform
    classes: int
    method: str
    labels: Sequence[str] | None = None  # names of the classes

    def label(self, number: int) -> str:
        """The name of a class."""
        return str(number) if self.labels is None else self.labels[number]


def application(
    service: Backend,
    served: Served,
    *,
    token: str | None = None,
    hosts: Collection[str] = (LOOPBACK,),
    every: float = 2.0,
    patience: float = PATIENCE,
) -> Starlette:
    """The server as an ASGI application; its end closes the service.

    Args:
        service: what answers.
        served: the model as clients see it.
        token: that requests must have; None: anyone may ask.
        hosts: host names to accept in addition to localhost; 0.0.0.0: any.
        every: seconds after which an open page requests new data.
        patience: seconds that a client may take to send a body.
    """
    routes = _Routes(service, served, every, patience)
    guarded = [Middleware(Token, token=token)] if token else []

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    return Starlette(
        lifespan=life,
        routes=[
            Route(path, routes.measured(path, handler), methods=[method])
            for method, path, handler in routes.table()
        ],
        middleware=[
            Middleware(SafeHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=host_names(hosts)),
            Middleware(OwnOrigin),
            *guarded,
        ],
        exception_handlers={
            HTTPException: lambda _, error: _error(error.status_code, error.detail, error.headers)
        },
    )


class _Routes:
    def __init__(self, service: Backend, served: Served, every: float, patience: float) -> None:
        self.service, self.served = service, served
        self.every, self.patience = every, patience
        self.parsing = asyncio.Lock()

    def table(self) -> list[tuple[str, str, Handler]]:
        return [
            ("GET", "/", self.page),
            ("GET", "/metrics", self.metrics),
            ("GET", "/v2", self.about),
            ("GET", "/v2/health/live", self.live),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/v2/models/{model}", self.model),
            ("GET", "/v2/models/{model}/ready", self.model_ready),
            ("POST", "/v2/models/{model}/infer", self.infer),
            ("GET", "/streams", self.streams),
            ("GET", "/streams/{stream}", self.stream),
            ("DELETE", "/streams/{stream}", self.forget),
            ("POST", "/streams/{stream}/predict", self.predict),
        ]

    def measured(self, path: str, handler: Handler) -> Handler:
        """The handler with its errors as responses, counted and timed."""
        metrics = self.service.metrics
        route = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), path)

        async def answer(request: Request) -> Response:
            started = time.monotonic()
            response = await _answered(handler, request)
            seconds = time.monotonic() - started
            metrics.requests.labels(route, str(response.status_code)).inc()
            metrics.seconds.labels(route).observe(seconds)
            logger.debug(
                "request",
                extra={
                    "method": request.method,
                    "path": request.url.path,
                    "code": response.status_code,
                    "seconds": round(seconds, 6),
                },
            )
            return response

        return answer

    # About the server.

    async def page(self, request: Request) -> Response:
        content = page(self.served.name, self.served.method, every=self.every)
        return HTMLResponse(content, headers={"content-security-policy": page_policy()})

    async def metrics(self, request: Request) -> Response:
        return Response(await self.service.exposition(), media_type=CONTENT_TYPE_LATEST)

    async def about(self, request: Request) -> Response:
        about = {"name": "dab", "version": dab.__version__, "extensions": ["binary_tensor_data"]}
        return JSONResponse(about)

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = self.service.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    # The Open Inference Protocol.

    async def model(self, request: Request) -> Response:
        self._check_model(request)
        side, classes = self.served.transform.crop, self.served.classes
        return JSONResponse(protocol.metadata(self.served.name, side=side, classes=classes))

    async def model_ready(self, request: Request) -> Response:
        self._check_model(request)
        return await self.ready(request)

    async def infer(self, request: Request) -> Response:
        self._check_model(request)
        with self.service.admitted():
            content = await self._body(request)
            async with self.parsing:  # in the order of arrival
                inference = await self.service.prepare(
                    partial(
                        protocol.understand,
                        content,
                        request.headers.get(protocol.HEADER_LENGTH),
                        side=self.served.transform.crop,
                        most=self.service.limits.images,
                    )
                )
            stream = _stream(inference.stream)
            found = await self.service.predict(stream, lambda: inference.images)
        parameters = {"stream": stream, **_health(found.status)}
        body, length = protocol.respond(inference, self.served.name, found.logits, parameters)
        if length is None:
            return Response(body, media_type="application/json")
        headers = {protocol.HEADER_LENGTH: str(length)}
        return Response(body, media_type="application/octet-stream", headers=headers)

    def _check_model(self, request: Request) -> None:
        if request.path_params["model"] != self.served.name:
            raise HTTPException(404, f"the model is {self.served.name!r}")

    # Streams.

    async def predict(self, request: Request) -> Response:
        stream = _stream(request.path_params["stream"])
        if request.headers.get("content-type", "").partition(";")[0].strip() not in FORMATS:
            raise HTTPException(415, f"the content type must be one of {', '.join(FORMATS)}")
        with self.service.admitted():
            content = await self._body(request)
            pixels = self.service.limits.pixels
            found = await self.service.predict(
                stream, partial(decode_upload, content, self.served.transform, pixels=pixels)
            )
        return JSONResponse(self._classes(found))

    def _classes(self, found: Prediction) -> dict[str, Any]:
        probabilities = found.logits[0].double().softmax(0)
        if not torch.isfinite(probabilities).all():
            raise ModelError("the model's output is not finite")
        top = probabilities.topk(min(TOP, len(probabilities)))
        numbers = top.indices.tolist()
        return {
            "stream": found.status.stream,
            "classes": numbers,
            "labels": [self.served.label(number) for number in numbers],
            "probabilities": top.values.tolist(),
            "health": _health(found.status),
        }

    async def streams(self, request: Request) -> Response:
        found = await self.service.overview()
        tally = Counter(status.state for status in found.statuses)
        first = sorted(found.statuses, key=lambda s: (STATES.index(s.state), -s.seen))[:LISTED]
        return JSONResponse(
            {
                "now": time.time(),
                "total": len(found.statuses),
                "saved": len(found.saved),
                "states": {state: tally[state] for state in STATES if tally[state]},
                "streams": [asdict(status) for status in first],
            }
        )

    async def stream(self, request: Request) -> Response:
        stream = _stream(request.path_params["stream"])
        details = await self.service.details(stream)
        details["buffer"]["classes"] = [
            {"class": number, "label": self.served.label(number), "images": count}
            for number, count in details["buffer"]["classes"].items()
        ]
        return JSONResponse(details)

    async def forget(self, request: Request) -> Response:
        stream = _stream(request.path_params["stream"])
        await self.service.forget(stream)
        return JSONResponse({"stream": stream, "forgotten": True})

    async def _body(self, request: Request) -> bytes:
        """The body, unless it is too large or arrives too slowly."""
        largest = self.service.limits.body
        if request.headers.get("content-encoding", "identity") != "identity":
            raise HTTPException(415, "compressed bodies are not accepted")
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > largest:
            raise TooLargeError(f"a body may have {largest:,} bytes, got {int(declared):,}")

        async def read() -> bytes:
            parts, size = [], 0
            async for part in request.stream():
                size += len(part)
                if size > largest:
                    raise TooLargeError(f"a body may have {largest:,} bytes")
                parts.append(part)
            return b"".join(parts)

        try:
            return await asyncio.wait_for(read(), self.patience)
        except asyncio.TimeoutError:
            raise HTTPException(408, "the body took too long", {"connection": "close"}) from None


async def _answered(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except HTTPException as error:
        return _error(error.status_code, error.detail, error.headers)
    except ClientDisconnect:
        return _error(400, "the client is gone")
    except RefusedError as error:
        if error.status == 500:
            logger.error("request failed", extra={"path": request.url.path, "error": str(error)})
        return _error(error.status, str(error), RETRY if error.again else None)
    except ValueError as error:
        return _error(400, str(error))
    except Exception as error:
        logger.exception("request failed", extra={"path": request.url.path})
        return _error(500, str(error))


def _error(status: int, why: str, headers: Any = None) -> Response:
    return JSONResponse({"error": why}, status, headers)


def _health(status: Status) -> dict[str, Any]:
    return {
        "state": status.state,
        "estimated_error": status.estimated_error,
        "updates": status.updates,
        "rollbacks": status.rollbacks,
        "images": status.images,
    }


def _stream(name: str) -> str:
    """A name that can be part of a URL and of a file name; others are a ValueError."""
    if not PLAIN.fullmatch(name) or name in (".", ".."):
        raise ValueError(
            f"the name of a stream is text without / and control characters, got {name[:60]!r}"
        )
    return check_id(name)
