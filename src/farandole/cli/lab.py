"""``farandole lab``: a local page on which to try algorithms, clusters and sizes."""

from __future__ import annotations

import threading
import webbrowser
from importlib.util import find_spec
from typing import Annotated

import typer

from farandole.cli._output import print_note
from farandole.errors import UsageError

DEFAULT_PORT = 8311

EXAMPLES = ("farandole lab", "farandole lab --port 9000 --no-open")


def lab(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0: any free one.")
    ] = DEFAULT_PORT,
    in_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Serve a page, for this machine only, on which one picks an algorithm, a cluster and a size.

    It shows the player, the numbers, all algorithms of the collective in comparison, and which one to take and why.
    What is picked is in the address, so that a link leads to the same page. Ctrl-C ends it.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UsageError(f"the lab needs {' and '.join(missing)}: pip install 'farandole[lab]'", missing=missing)
    from farandole.lab.server import listening, serve  # noqa: PLC0415 - an extra

    def ready(address: str) -> None:
        print_note(f"the lab is at {address} (Ctrl-C ends it)")
        if in_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(listening(port), ready=ready)
