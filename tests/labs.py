"""A lab that runs in this process, for tests, and how to ask it for something."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest


@contextmanager
def running_lab() -> Iterator[int]:
    """Its port."""
    uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'farandole[lab]'")
    from farandole.lab.server import Lab, listening

    listener = listening(0)
    port: int = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(Lab(port).application, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def value(self) -> Any:
        """The JSON in it."""
        return json.loads(self.text)

    @property
    def error(self) -> tuple[int, str]:
        """The status and the sentence of an error."""
        return self.status, self.value["error"]["message"]


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request, of exactly that path; ``host`` and others as headers, ``_`` for a hyphen."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"host": f"127.0.0.1:{port}", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    answer = Answer(
        response.status, {key.lower(): value for key, value in response.getheaders()}, response.read().decode()
    )
    connection.close()
    return answer
