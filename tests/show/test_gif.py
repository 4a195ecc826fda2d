from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from farandole.algorithms import build
from farandole.errors import UsageError
from farandole.show import gif, scene


@pytest.fixture
def pillow() -> Any:
    """Pillow's module of images, if it is there."""
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'farandole[gif]'")


def test_a_gif_moves_through_every_round_for_ever(tmp_path: Path, pillow: Any) -> None:
    schedule = build("all_reduce", "ring", 2)
    gif.write_gif(schedule, tmp_path / "ring.gif")
    with pillow.open(tmp_path / "ring.gif") as image:
        assert image.size == (gif.WIDTH, 508)
        assert image.info["loop"] == 0
        assert image.n_frames > len(schedule.rounds) * gif.FRAMES
        assert image.info["duration"] == gif.END_MS


def test_the_last_picture_has_every_chunk_complete_in_its_colour(tmp_path: Path, pillow: Any) -> None:
    schedule = build("all_reduce", "tree", 2)
    gif.write_gif(schedule, tmp_path / "tree.gif")
    with pillow.open(tmp_path / "tree.gif") as image:

        def colour_at(frame: int, rank: int) -> tuple[int, int, int]:
            image.seek(frame)
            value = image.convert("RGB").getpixel((int(gif.LEFT) + 190, int(gif.TOP) + 34 + 66 * rank))
            assert isinstance(value, tuple)
            return value[0], value[1], value[2]

        blue = scene.chunk_colour(0)
        wanted = tuple(int(blue[i : i + 2], 16) for i in (1, 3, 5))
        last = image.n_frames - 1
        for rank in (0, 1):
            assert max(abs(a - b) for a, b in zip(colour_at(last, rank), wanted, strict=True)) < 12
        # At the start rank 0 lacks the contribution of rank 1, whose slot is on the right.
        assert max(abs(a - b) for a, b in zip(colour_at(0, 0), wanted, strict=True)) > 60


def test_without_pillow_the_pip_line_is_said_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"^a GIF is drawn by Pillow, .*: pip install 'farandole\[gif\]'$"):
        gif.write_gif(build("all_reduce", "ring", 2), tmp_path / "ring.gif")
    assert not (tmp_path / "ring.gif").exists()


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"32 ranks, 32 chunks and 62 rounds: too much for a GIF"):
        gif.write_gif(build("all_reduce", "ring", 32), tmp_path / "ring.gif")
