"""Make the pictures of docs/images anew: the player's main states, the strips, the moving ones, the relation.

Needs chromium, playwright, Pillow and the lab's extra:  python scripts/screenshots.py [NAME ...]
Look at every picture before you commit it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from farandole.algorithms import build
from farandole.cluster import parse
from farandole.lab.server import Lab, listening
from farandole.run.spawn import spawn
from farandole.schedule import Round, Schedule
from farandole.show import gif, relation, svg
from farandole.show.page import page
from farandole.show.payload import Run
from farandole.simulate import Simulation, simulate
from farandole.trace import loads

IMAGES = Path(__file__).parents[1] / "docs/images"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")

RING4, RING8 = build("all_reduce", "ring", 4), build("all_reduce", "ring", 8)
TREE = build("all_reduce", "tree", 8)
HIERARCHICAL = build("all_reduce", "hierarchical:levels=4x2", 8)
LARGE = build("all_reduce", "hierarchical:levels=8x4", 32)


@dataclass(frozen=True, slots=True)
class Shot:
    """One picture: a page of the player, or what the lab is asked for; where in it, how large, light or dark."""

    html: Callable[[], str] | str
    place: str = ""
    width: int = 1280
    height: int = 800
    dark: bool = False


def simulated(schedule: Schedule) -> Simulation:
    """On four hosts of eight devices."""
    return simulate(schedule, parse("hosts:4x8"), 64 << 20, trace=True)


def faulty() -> Schedule:
    """Ring all-reduce in which rank 3 sends the wrong chunk in its third round."""
    rounds = list(RING8.rounds)
    old = rounds[2]
    chunk = old.chunk.copy()
    chunk[3] = (chunk[3] + 1) % 8
    rounds[2] = Round(old.src, old.dst, chunk, old.count, old.reduce, old.phase)
    return replace(RING8, rounds=tuple(rounds))


def timed() -> str:
    """Two algorithms on one cluster, over time."""
    return page(
        LARGE, trace=simulated(LARGE), compare=Run(ring := build("all_reduce", "ring", 32), trace=simulated(ring))
    )


def measured() -> str:
    """A ring on two processes of this machine, beside its simulation."""
    trial = {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1 << 20}
    answers = spawn(2, "farandole.bench.traced:typical_trace", {"trial": trial, "schedules": {}, "settings": {}})
    ring = build("all_reduce", "ring", 2)
    simulation = simulate(ring, parse("full:2@8GB/s,1us"), 1 << 20, trace=True)
    return page(ring, trace=loads(answers[0].encode()), compare=simulation)


SHOTS = {
    "player-start": Shot(lambda: page(RING4)),
    "player-ring": Shot(lambda: page(RING8), "round=5"),
    "player-ring-dark": Shot(lambda: page(RING8), "round=5", dark=True),
    "player-provenance": Shot(lambda: page(RING4), "round=6&rank=1&chunk=2"),
    "player-hierarchical": Shot(lambda: page(HIERARCHICAL), "round=4"),
    "player-tree": Shot(lambda: page(TREE), "round=2"),
    "player-broken": Shot(lambda: page(faulty())),
    "player-cluster": Shot(lambda: page(LARGE, trace=simulated(LARGE)), "round=9"),
    "player-time": Shot(timed, "view=time&time=1500000", 1440, 900, dark=True),
    "player-compare": Shot(lambda: page(RING8, compare=TREE), "round=3", 1440, 900),
    "player-table": Shot(lambda: page(RING4), "view=table&round=3"),
    "player-64": Shot(lambda: page(build("all_reduce", "ring", 64)), "round=40"),
    "player-narrow": Shot(lambda: page(RING4), "round=2", 390, 844),
    "player-measured": Shot(measured, "view=time", 1440, 900),
    "lab": Shot("cluster=hosts:2x4&algorithm=ring&size=1MiB", width=1440, height=1900),
    "lab-dark": Shot("cluster=hosts:2x4&algorithm=rong", width=1280, height=420, dark=True),
}

DRAWN: dict[str, Callable[[Path], object]] = {
    "ring.svg": lambda path: path.write_text(svg.strip(RING4), encoding="utf-8"),
    "hierarchical.svg": lambda path: path.write_text(svg.strip(HIERARCHICAL), encoding="utf-8"),
    "ring-moving.svg": lambda path: path.write_text(svg.animated(RING4), encoding="utf-8"),
    "tree-moving.svg": lambda path: path.write_text(svg.animated(TREE), encoding="utf-8"),
    "relation.svg": lambda path: path.write_text(relation.svg(), encoding="utf-8"),
    "ring.gif": lambda path: gif.write_gif(RING4, path),
}


@contextmanager
def address_of(shot: Shot) -> Iterator[str]:
    """Where the page is, for as long as it is there: in a file, or at a lab."""
    if not isinstance(shot.html, str):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "page.html"
            file.write_text(shot.html(), encoding="utf-8")
            yield f"{file.as_uri()}#{shot.place}"
        return
    listener = listening(0)
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(Lab(port).application, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{port}/?{shot.html}"
    server.should_exit = True
    thread.join()


def take(browser: Browser, shot: Shot, path: Path) -> None:
    """One screenshot."""
    size = {"width": shot.width, "height": shot.height}
    context = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme="dark" if shot.dark else "light",
        reduced_motion="reduce",
    )
    shown = context.new_page()
    with address_of(shot) as address:
        shown.goto(address)
        shown.wait_for_selector("body:not([aria-busy])")
        shown.wait_for_load_state("networkidle")
        shown.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        shown.screenshot(path=path)
    context.close()
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(192, dither=Image.Dither.NONE).save(path, optimize=True)


def main(names: list[str]) -> None:
    """Make the pictures of these names, or all."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in DRAWN.items():
        if not names or name in names:
            draw(IMAGES / name)
            print(f"drew {name}")
    wanted = {name: shot for name, shot in SHOTS.items() if not names or name in names}
    if not wanted:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for name, shot in wanted.items():
            take(browser, shot, IMAGES / f"{name}.png")
            print(f"took {name}")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
