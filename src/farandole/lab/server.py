"""The lab's server: static files and JSON, for this machine only."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import anyio
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farandole.errors import FarandoleError, UsageError
from farandole.lab.answers import choices, compared, shown
from farandole.lab.question import question

HOST = "127.0.0.1"
AT_ONCE = 2
MOST_WAITING = 8
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = {"/": "index.html", "/lab.css": "lab.css", "/lab.js": "lab.js"}

Answer = Callable[[], dict[str, Any]]


class BusyError(FarandoleError):
    """More has been asked than is worked on at once."""


class Lab:
    """The application, and what it shares between requests; ``stop`` ends comparisons early."""

    def __init__(self, port: int) -> None:
        self._limiter = anyio.CapacityLimiter(AT_ONCE)
        self._waiting = 0
        self._stopped = threading.Event()
        player = files("farandole.show").joinpath("player.html").read_text(encoding="utf-8")
        static = files("farandole.lab").joinpath("static")
        pages = {path: static.joinpath(name).read_text(encoding="utf-8") for path, name in _FILES.items()}
        pages["/player.html"] = player
        routes = [Route(path, partial(_page, text, _type_of(path)), methods=["GET"]) for path, text in pages.items()]
        routes += [
            Route("/api/choices", self._choices, methods=["GET"]),
            Route("/api/show", self._show, methods=["GET"]),
            Route("/api/compare", self._compare, methods=["GET"]),
        ]
        self.application: ASGIApp = _Guard(
            Starlette(routes=routes, exception_handlers={Exception: _fault}), port, _policy(player)
        )

    def stop(self) -> None:
        """Let what is being worked on end soon."""
        self._stopped.set()

    async def _choices(self, request: Request) -> Response:
        return await self._answered(request, choices)

    async def _show(self, request: Request) -> Response:
        return await self._answered(request, lambda: shown(question(request.query_params)))

    async def _compare(self, request: Request) -> Response:
        def clock() -> float:
            return math.inf if self._stopped.is_set() else time.monotonic()

        return await self._answered(request, lambda: compared(question(request.query_params), clock=clock))

    async def _answered(self, request: Request, answer: Answer) -> Response:
        """The answer as JSON, or the library's error as it is."""
        if len(set(request.query_params)) != len(request.query_params.multi_items()):
            return _error(UsageError("a parameter is given twice"), 400)
        if self._waiting >= AT_ONCE + MOST_WAITING:
            return _error(BusyError("the lab is busy with what was asked before; try again in a moment"), 503)
        self._waiting += 1
        try:
            return _json(await anyio.to_thread.run_sync(answer, limiter=self._limiter), 200)
        except FarandoleError as error:
            return _error(error, 400)
        finally:
            self._waiting -= 1


async def _fault(_request: Request, error: Exception) -> Response:
    """A fault of ours: said to the page here, and in full on stderr by the server."""
    return _json({"error": {"type": type(error).__name__, "message": f"the lab itself is at fault: {error!r}"}}, 500)


async def _page(text: str, kind: str, _request: Request) -> Response:
    return Response(text, media_type=kind)


def _type_of(path: str) -> str:
    return _TYPES[path.rpartition(".")[2] if path != "/" else "html"]


def _json(value: Mapping[str, Any], status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _error(error: FarandoleError, status: int) -> Response:
    return _json({"error": {"type": type(error).__name__, "message": str(error)}}, status)


def _policy(player: str) -> str:
    """What the page may load: its own files and the player's script, which is known by its hash; nothing from afar."""
    script = re.search(r'<script type="module">(.*?)</script>', player, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script[1].encode() if script else b"").digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline'; img-src data:;"
        " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class _Guard:
    """Lets through only requests that name this machine as the loopback does, and that no other site has made."""

    def __init__(self, application: ASGIApp, port: int, policy: str) -> None:
        self._application = application
        self._hosts = {f"{name}:{port}".encode() for name in (HOST, "localhost")}
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._application(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            refusal = _error(
                UsageError("this is not the name of the lab: it is asked for as localhost or 127.0.0.1"), 421
            )
            await refusal(scope, receive, sent)
        elif sites and sites[0] not in (b"same-origin", b"none"):
            refusal = _error(UsageError("the lab answers no requests that other sites make"), 403)
            await refusal(scope, receive, sent)
        else:
            await self._application(scope, receive, sent)


def listening(port: int) -> socket.socket:
    """A socket on the loopback interface; ``port`` 0 takes any that is free. Raises UsageError where it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port; --port 0 is any that is free",
            got=port,
        ) from error
    return listener


def serve(listener: socket.socket, *, ready: Callable[[str], None] | None = None) -> None:
    """Answer until the process is interrupted, which is raised again as KeyboardInterrupt when all is put away.

    ``ready`` is called with the address as soon as the page can be asked for.
    """
    lab = Lab(listener.getsockname()[1])
    config = uvicorn.Config(
        lab.application, log_level="warning", access_log=False, lifespan="off", server_header=False,
        timeout_graceful_shutdown=2, timeout_keep_alive=5, limit_concurrency=64,
    )  # fmt: skip
    address = f"http://{HOST}:{listener.getsockname()[1]}/"
    server = _Server(config, lab, (lambda: None) if ready is None else (lambda: ready(address)))
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it answers, and tells the lab when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, lab: Lab, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._lab = lab
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen. From here on an interrupt is this server's to handle, so only now may anyone be told."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A signal has come."""
        self._lab.stop()
        super().handle_exit(sig, frame)
