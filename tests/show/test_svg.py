from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from farandole.algorithms import build
from farandole.errors import UsageError
from farandole.schedule import Schedule
from farandole.show import relation, scene, svg
from farandole.show.motion import Clock
from farandole.verify import contributions, members
from golden import Golden
from pages import broken, every_algorithm

SVG = "{http://www.w3.org/2000/svg}"
CASES = [
    build("all_reduce", "ring", 3),
    build("all_reduce", "tree", 4),
    build("reduce_scatter", "halving", 4),
    build("all_to_all", "direct", 2),
]
NAMES = [f"{schedule.collective}-{schedule.name}-{schedule.ranks}" for schedule in CASES]


@pytest.mark.parametrize("schedule", CASES, ids=NAMES)
def test_a_strip_is_as_it_was(golden: Golden, schedule: Schedule, request: pytest.FixtureRequest) -> None:
    golden(f"strip-{request.node.callspec.id}.svg", svg.strip(schedule))


@pytest.mark.parametrize("schedule", CASES[:2], ids=NAMES[:2])
def test_a_moving_picture_is_as_it_was(golden: Golden, schedule: Schedule, request: pytest.FixtureRequest) -> None:
    golden(f"moving-{request.node.callspec.id}.svg", svg.animated(schedule))


def test_the_relation_of_the_three_is_as_it_was(golden: Golden) -> None:
    golden("relation-4.svg", relation.svg())


def test_the_relation_is_for_few_ranks() -> None:
    for ranks in (2, 8):
        ET.fromstring(relation.svg(ranks))  # noqa: S314 - our own text
    with pytest.raises(UsageError, match="2 to 8 ranks, not 9"):
        relation.svg(9)


@pytest.mark.parametrize("schedule", [*every_algorithm(5), broken()], ids=lambda s: f"{s.collective}-{s.name}")
def test_every_schedule_has_a_strip_and_a_moving_picture_without_script_or_reference(schedule: Schedule) -> None:
    for text in (svg.strip(schedule), svg.animated(schedule)):
        root = ET.fromstring(text)  # noqa: S314 - our own text
        assert root.find(f".//{SVG}script") is None
        assert re.findall(r"href|url\((?!#to\))|@import", text) == []


def test_a_strip_has_a_picture_per_round_and_an_arrow_per_transfer() -> None:
    schedule = build("all_reduce", "hierarchical:levels=2x3", 6)
    root = ET.fromstring(svg.strip(schedule))  # noqa: S314 - our own text
    panels = root.findall(f"{SVG}g")
    assert len(panels) == len(schedule.rounds) + 1
    arrows = [len(panel.findall(f"{SVG}path")) for panel in panels]
    assert arrows == [0, *map(len, schedule.rounds)]


def test_the_cells_of_a_strip_are_filled_as_the_verifier_says() -> None:
    schedule = build("all_reduce", "ring", 3)
    root = ET.fromstring(svg.strip(schedule))  # noqa: S314 - our own text
    for done, panel in enumerate(root.findall(f"{SVG}g")):
        held = contributions(schedule, done)
        sizes = [len(members(held[rank, chunk])) for rank in range(3) for chunk in range(3)]
        said = [text.text for text in panel.findall(f"{SVG}text") if text.get("class") in {"k", "m"}]
        assert said == ["✓" if size == 3 else f"{size}/3" for size in sizes]


def test_names_are_escaped() -> None:
    schedule = replace(build("all_reduce", "ring", 2), name="<b>&'\"")
    for text in (svg.strip(schedule), svg.animated(schedule)):
        assert "<b>" not in text
        ET.fromstring(text)  # noqa: S314 - our own text


@pytest.mark.parametrize("draw", [svg.strip, svg.animated])
def test_what_is_too_large_is_refused_with_the_way_out(draw: object) -> None:
    assert callable(draw)
    with pytest.raises(UsageError, match=r"64 ranks, 64 chunks and 126 rounds: too much .* write a \.html") as error:
        draw(build("all_reduce", "ring", 64))
    assert error.value.facts["got"] > error.value.facts["expected"]


def test_what_stays_is_seen_where_motion_is_unwanted_and_what_goes_is_not() -> None:
    clock = Clock(rounds=3)
    assert clock.shown(0, 4) == ""
    assert clock.shown(2, 4) == "v2-4 e"
    assert clock.shown(1, 3) == "v1-3"
    assert ".e{opacity:1}" in clock.style()


def test_the_animation_lasts_as_long_as_its_rounds() -> None:
    clock = Clock(rounds=6)
    assert clock.total == pytest.approx(1.6 + 6 * 1.9 + 2.6)
    assert clock.arrives(5) < 100 * (clock.total - 2.6) / clock.total


def test_trees_are_found_and_drawn_from_their_root_down() -> None:
    tree = build("all_reduce", "tree", 8)
    assert scene.tree_parents(tree) == [-1, 0, 0, 2, 0, 4, 4, 6]
    places = scene.places(tree)
    assert places[0][1] == -1
    assert all(places[r][1] > places[p][1] for r, p in enumerate(scene.tree_parents(tree)) if p >= 0)
    assert scene.tree_parents(build("all_reduce", "ring", 8)) == []
    assert scene.tree_parents(build("all_reduce", "double_tree", 8)) == []


def test_stages_are_those_of_the_verifier_also_beyond_64_ranks() -> None:
    schedule = build("broadcast", "binomial", 70, root=66)
    stages = scene.stages(schedule)
    assert np.flatnonzero(stages[-1].holds[3, 0]).tolist() == [66]
    assert stages[0].holds.sum() == 1
    assert stages[1].fresh.sum() == len(schedule.rounds[0])


def test_text_on_a_colour_can_be_read() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    for colour in scene.CHUNKS:
        low, high = sorted([luminance(colour), luminance(scene.text_on(colour))])
        assert (high + 0.05) / (low + 0.05) >= 4.5
