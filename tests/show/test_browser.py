"""The player in a real browser: steps, keys, links, provenance, faults, accessibility, silence on the network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from browsers import AXE, Opened, chromium
from farandole.algorithms import build
from farandole.cluster import parse
from farandole.lower import lower
from farandole.schedule import Schedule
from farandole.show.notebook import trace_html
from farandole.show.page import page
from farandole.show.payload import Run
from farandole.simulate import Simulation, simulate
from farandole.verify import contributions, members, verify_program
from pages import broken, every_algorithm

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

RING = build("all_reduce", "ring", 4)
HIERARCHICAL = build("all_reduce", "hierarchical:levels=4x2", 8)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def still(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    one = Opened(browser, tmp_path_factory.mktemp("pages"), reduced_motion="reduce", color_scheme="light")
    yield one
    one.context.close()


@pytest.fixture
def opened(still: Opened) -> Iterator[Opened]:
    """A page without animation, so that every step is there at once; it must make no errors and no requests."""
    still.page.emulate_media(color_scheme="light", reduced_motion="reduce")
    still.errors.clear()
    still.requests.clear()
    yield still
    assert still.errors == []
    assert [url for url in still.requests if not url.startswith(("file:", "about:", "data:"))] == []


def simulated(schedule: Schedule, cluster: str = "switch:8@50GB/s,2us") -> Simulation:
    return simulate(schedule, parse(cluster), 1 << 20, trace=True)


def caption(shown: Page, run: int = 0) -> str:
    return shown.locator(".caption").nth(run).inner_text()


def says(shown: Page, reading: str | re.Pattern[str]) -> None:
    """Wait until this is what stands beside the buttons."""
    _wait_for(shown.locator(".reading")).to_have_text(reading)


def _wait_for_address(shown: Page, pattern: str) -> None:
    from playwright.sync_api import expect

    expect(shown).to_have_url(re.compile(pattern))


def _wait_for(place: Locator) -> Any:
    from playwright.sync_api import expect

    return expect(place)


def test_it_opens_paused_before_the_first_round_and_says_the_goal(opened: Opened) -> None:
    shown = opened.show(page(RING))
    assert shown.title() == "Ring all-reduce · Farandole"
    assert caption(shown) == "The goal: every rank ends with the sum of all ranks' values."
    says(shown, "Start, 6 rounds to come")
    assert shown.locator(".transfers li").count() == 4
    assert "✓ Proven" in shown.locator("aside").inner_text()
    opened.is_at("")


def test_buttons_step_forward_and_back_through_every_round(opened: Opened) -> None:
    shown = opened.show(page(RING))
    said = [caption(shown)]
    for number in range(1, 7):
        shown.get_by_role("button", name="Forward one round").click()
        says(shown, f"Round {number} of 6")
        opened.is_at(f"round={number}")
        said.append(caption(shown))
    assert len(set(said)) == 7
    assert said[2].startswith("Reduce-scatter, round 2 of 3: ")
    assert shown.get_by_role("button", name="Forward one round").is_disabled()
    for number in range(5, -1, -1):
        shown.get_by_role("button", name="Back one round").click()
        assert caption(shown) == said[number]
    opened.is_at("")


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        (["ArrowRight", "ArrowRight", "ArrowLeft"], "round=1"),
        (["Shift+ArrowRight"], "round=3"),
        (["Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"], "round=6"),
        (["End", "Shift+ArrowLeft"], "round=3"),
        (["ArrowRight", "Shift+ArrowLeft"], ""),
        (["End"], "round=6"),
        (["End", "Home"], ""),
        ([".", "."], "transfer=2"),
        ([".", ".", ".", "."], "round=1"),
        (["ArrowRight", ","], "transfer=3"),
        ([".", ".", "ArrowLeft"], ""),
        ([".", "ArrowRight"], "round=1"),
        (["ArrowDown"], "rank=0&chunk=0"),
        (["ArrowDown", "ArrowDown", "]", "]"], "rank=1&chunk=2"),
        (["ArrowDown", "ArrowUp", "["], "rank=3&chunk=3"),
        (["ArrowDown", "Escape"], ""),
        (["+", "+", "-"], "speed=2"),
        (["3"], "view=table"),
        (["2"], ""),
    ],
)
def test_keys_move_the_cursor(opened: Opened, keys: list[str], where: str) -> None:
    shown = opened.show(page(RING))
    for key in keys:
        shown.keyboard.press(key)
    opened.is_at(where)


def test_the_list_of_keys_opens_with_a_question_mark_and_holds_the_keyboard_until_it_is_closed(opened: Opened) -> None:
    shown = opened.show(page(RING))
    shown.keyboard.press("?")
    shown.get_by_role("dialog", name="Keyboard").wait_for()
    shown.keyboard.press("ArrowRight")
    says(shown, "Start, 6 rounds to come")
    shown.keyboard.press("Escape")
    shown.wait_for_selector("dialog", state="hidden")
    shown.keyboard.press("ArrowRight")
    says(shown, "Round 1 of 6")


def test_keys_are_left_alone_while_someone_types(opened: Opened) -> None:
    shown = opened.show(page(RING))
    shown.evaluate("document.body.append(Object.assign(document.createElement('input'), {id: 'note'}))")
    shown.locator("#note").focus()
    for key in ("ArrowRight", "t", "?", "3"):
        shown.keyboard.press(key)
    opened.is_at("")
    assert shown.locator("html").get_attribute("data-theme") == "light"


def test_space_presses_the_button_that_has_the_focus_and_plays_elsewhere(opened: Opened) -> None:
    shown = opened.show(page(RING))
    shown.get_by_role("button", name="Forward one round").focus()
    shown.keyboard.press(" ")
    opened.is_at("round=1")
    shown.get_by_role("slider").focus()
    shown.keyboard.press(" ")
    shown.get_by_role("button", name="Pause").wait_for()


def test_playing_goes_to_the_end_and_stops_there_and_plays_again_from_the_start(opened: Opened) -> None:
    shown = opened.show(page(build("all_reduce", "tree", 2)), "speed=8")
    shown.keyboard.press(" ")
    says(shown, "Round 2 of 2")
    shown.wait_for_selector("button[aria-label=Play]")
    shown.keyboard.press(" ")
    says(shown, "Round 1 of 2")


def test_with_motion_a_step_passes_between_the_rounds(browser: Browser, tmp_path: Path) -> None:
    one = Opened(browser, tmp_path, reduced_motion="no-preference")
    shown = one.show(page(RING), "speed=0.5")
    shown.keyboard.press("ArrowRight")
    knob = _wait_for(shown.locator(".knob"))
    knob.to_have_attribute("style", re.compile(r"left: ([1-9]|1[0-5])(\.\d+)?%"))
    knob.to_have_attribute("style", re.compile(r"left: 16\.66\d*%"))
    says(shown, "Round 1 of 6")
    one.context.close()


def test_the_scrub_bar_goes_where_it_is_pressed_and_to_a_whole_round_when_let_go(opened: Opened) -> None:
    shown = opened.show(page(RING))
    box = shown.get_by_role("slider").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    shown.mouse.move(box["x"] + box["width"] * 0.1, middle)
    shown.mouse.down()
    shown.mouse.move(box["x"] + box["width"] * 0.7, middle)
    shown.mouse.up()
    opened.is_at("round=4")
    assert shown.get_by_role("slider").get_attribute("aria-valuetext") == "Round 4 of 6, all-gather"


def test_phases_are_named_on_the_bar_and_lead_there(opened: Opened) -> None:
    shown = opened.show(page(HIERARCHICAL))
    names = shown.locator(".phases button").all_inner_texts()
    assert names == ["reduce-scatter inside", "across: reduce-scatter", "across: all-gather", "all-gather inside"]
    shown.locator(".phases button").nth(1).click()
    opened.is_at("round=4")


def test_a_link_leads_to_the_same_picture_and_another_hash_moves_there(opened: Opened) -> None:
    shown = opened.show(page(RING), "round=2&rank=0&chunk=1&speed=4")
    says(shown, "Round 2 of 6")
    assert shown.locator(".provenance").get_attribute("data-contributors") == "0 2 3"
    shown.evaluate("location.hash = 'round=5'")
    says(shown, "Round 5 of 6")
    assert shown.locator(".provenance").count() == 0


def test_a_link_beyond_the_end_leads_to_the_end(opened: Opened) -> None:
    shown = opened.show(page(RING), "view=time&round=99&rank=17&chunk=1&speed=3")
    says(shown, "Round 6 of 6")
    opened.is_at("round=6")


READ_ALL = """async ([ranks, chunks]) => {
  const read = [];
  const press = async (key) => {
    document.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    await Promise.resolve();
    await Promise.resolve();
  };
  for (let rank = 0; rank < ranks; rank++) {
    await press('ArrowDown');
    for (let chunk = 0; chunk < chunks; chunk++) {
      const shown = document.querySelector('.provenance').dataset;
      read.push([Number(shown.rank), Number(shown.chunk), shown.contributors]);
      await press(']');
    }
  }
  return read;
}"""


@pytest.mark.parametrize("schedule", list(every_algorithm(4)), ids=lambda s: f"{s.collective}-{s.name}")
def test_provenance_is_what_the_verifier_says(opened: Opened, schedule: Schedule) -> None:
    middle, end = len(schedule.rounds) // 2, len(schedule.rounds)
    shown = opened.show(page(schedule), f"round={middle}")
    for done in (middle, end):
        says(shown, re.compile(f"^Round {done} of" if done else "^Start"))
        held = contributions(schedule, done)
        expected = [
            [rank, chunk, " ".join(map(str, members(held[rank, chunk])))]
            for rank in range(schedule.ranks)
            for chunk in range(schedule.chunks)
        ]
        assert shown.evaluate(READ_ALL, [schedule.ranks, schedule.chunks]) == expected
        shown.keyboard.press("Escape")
        shown.keyboard.press("End")


def test_pointing_at_a_cell_shows_its_provenance_and_a_click_keeps_it(opened: Opened) -> None:
    shown = opened.show(page(RING), "round=6")
    box = shown.locator(".grid canvas:last-child").bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + 56 + 20, box["y"] + 30 + 20)
    shown.wait_for_selector(".provenance[data-rank='0'][data-chunk='0']")
    words = shown.locator(".provenance").inner_text()
    assert "4/4 contributions: complete" in words
    assert "1 → 2 → 3 → 0" in words
    opened.is_at("round=6")
    shown.mouse.down()
    shown.mouse.up()
    shown.mouse.move(box["x"] + 2, box["y"] + 2)
    assert shown.locator(".provenance").get_attribute("data-contributors") == "0 1 2 3"
    opened.is_at("round=6&rank=0&chunk=0")
    shown.keyboard.press("Escape")
    assert shown.locator(".provenance").count() == 0


def test_a_chunk_that_is_not_there_yet_is_said_to_be_missing(opened: Opened) -> None:
    shown = opened.show(page(build("broadcast", "binomial", 4)), "rank=3&chunk=0&round=1")
    assert "Rank 3 does not hold it yet" in shown.locator(".provenance").inner_text()
    shown.evaluate("location.hash = 'rank=3&chunk=0&round=2'")
    _wait_for(shown.locator(".provenance")).to_contain_text("It is rank 0’s input")


def test_a_broken_schedule_opens_on_its_first_fault(opened: Opened) -> None:
    shown = opened.show(page(broken()))
    opened.is_at("round=2&rank=4&chunk=2")
    problems = shown.get_by_role("region", name="Problems")
    assert "✗ Not correct" in problems.inner_text()
    assert "Round 2: in chunk 2 at rank 4, the contribution of" in problems.inner_text()
    assert shown.locator(".problem").count() == 2
    problems.get_by_role("button").nth(1).click()
    says(shown, "Round 8 of 8")


def test_a_link_into_a_broken_schedule_is_followed_all_the_same(opened: Opened) -> None:
    opened.show(page(broken()), "round=1")
    opened.is_at("round=1")


def test_a_deadlock_opens_at_the_start_and_says_who_waits(opened: Opened) -> None:
    schedule = build("all_reduce", "ring", 3)
    shown = opened.show(page(schedule, verify_program(lower(schedule, "send-first"), depth=0)))
    says(shown, "Start, 4 rounds to come")
    assert "rank 2 lane 0 step 0" in shown.get_by_role("region", name="Problems").inner_text()


def test_the_theme_follows_the_system_until_someone_chooses_and_the_choice_is_remembered(
    browser: Browser, tmp_path: Path
) -> None:
    one = Opened(browser, tmp_path, color_scheme="dark")
    shown = one.show(page(RING))
    theme = shown.locator("html")
    assert theme.get_attribute("data-theme") == "dark"
    shown.emulate_media(color_scheme="light")
    shown.wait_for_selector("html[data-theme=light]")
    shown.keyboard.press("t")
    shown.wait_for_selector("html[data-theme=dark]")
    shown = one.show(page(RING))
    assert theme.get_attribute("data-theme") == "dark"
    shown.get_by_role("button", name="Light theme").click()
    shown.emulate_media(color_scheme="dark")
    shown.wait_for_selector("html[data-theme=dark]")
    one.context.close()


def test_the_time_view_has_its_own_cursor_which_follows_the_rounds(opened: Opened) -> None:
    shown = opened.show(page(HIERARCHICAL, trace=simulated(HIERARCHICAL)), "round=3")
    shown.keyboard.press("2")
    _wait_for_address(shown, r"#view=time&round=3&time=\d+$")
    says(shown, re.compile(r"^[\d.]+ µs of 52.7 µs$"))
    _wait_for(shown.locator(".caption")).to_contain_text("all ranks have finished 3 of 8 rounds")
    assert shown.get_by_text("Busiest links").is_visible()
    shown.keyboard.press("ArrowRight")
    _wait_for(shown.locator(".caption")).to_contain_text("all ranks have finished 4 of 8 rounds")
    shown.keyboard.press("End")
    assert caption(shown) == "Every rank is done."
    shown.keyboard.press("1")
    says(shown, "Round 8 of 8")


def test_the_time_view_tells_what_the_pointer_is_on(opened: Opened) -> None:
    shown = opened.show(page(HIERARCHICAL, trace=simulated(HIERARCHICAL)), "view=time")
    box = shown.locator(".lanes canvas").bounding_box()
    assert box is not None
    shown.mouse.move(box["x"] + 70, box["y"] + 30)
    assert "Rank 0, round 1: send chunks" in shown.locator(".lanes p").inner_text()
    shown.mouse.down()
    shown.mouse.up()
    _wait_for_address(shown, r"#view=time&time=[1-9]\d*$")


def test_the_table_has_a_row_per_round_and_leads_there(opened: Opened) -> None:
    shown = opened.show(page(RING), "view=table")
    rows = shown.locator("tbody tr")
    assert rows.count() == 6
    assert "Reduce-scatter, round 1 of 3" in rows.nth(0).inner_text()
    assert rows.nth(0).locator(".transfers span").all_inner_texts() == ["0 → 1+3", "1 → 2+0", "2 → 3+1", "3 → 0+2"]
    shown.get_by_role("button", name="Go to round 4").click()
    assert rows.nth(3).get_attribute("aria-current") == "step"
    opened.is_at("view=table&round=4")


def test_two_runs_move_together_and_the_shorter_waits_at_its_end(opened: Opened) -> None:
    shown = opened.show(page(RING, compare=build("all_reduce", "tree", 4)), "round=2")
    assert caption(shown, 0).startswith("Reduce-scatter, round 2 of 3")
    assert caption(shown, 1).startswith("Reduce, round 2 of 2")
    shown.keyboard.press("End")
    assert caption(shown, 0).startswith("All-gather, round 3 of 3")
    assert caption(shown, 1).startswith("Broadcast, round 2 of 2")
    box = shown.locator(".grid canvas:last-child").nth(1).bounding_box()
    assert box is not None
    shown.mouse.click(box["x"] + 80, box["y"] + 40)
    opened.is_at("round=6&rank=0&chunk=0&run=1")


def test_what_is_too_large_is_said_and_the_rest_is_shown(opened: Opened) -> None:
    shown = opened.show(page(build("all_reduce", "ring", 96)), "round=100&rank=3&chunk=2")
    assert "the page shows ranks 0 to 63 of 96 and chunks 0 to 63 of 96" in shown.locator(".left-out").inner_text()
    held = contributions(build("all_reduce", "ring", 96), 100)[3, 2]
    assert shown.locator(".provenance").get_attribute("data-contributors") == " ".join(map(str, members(held)))


FRAMES = """() => new Promise((done) => {
  const times = [];
  const tick = (now) => { times.push(now); times.length < 25 ? requestAnimationFrame(tick) : done(times); };
  requestAnimationFrame(tick);
})"""


def test_64_ranks_and_chunks_are_drawn_and_played(browser: Browser, tmp_path: Path) -> None:
    one = Opened(browser, tmp_path, reduced_motion="no-preference")
    shown = one.show(page(build("all_reduce", "ring", 64)), "round=60")
    shown.keyboard.press(" ")
    times = np.diff(shown.evaluate(FRAMES))
    assert len(times) == 24
    shown.keyboard.press(" ")
    shown.wait_for_selector("button[aria-label=Play]")
    says(shown, re.compile("^Round (6[1-9]|[7-9]\\d|1\\d\\d) of 126$"))
    assert one.errors == []
    one.context.close()


@pytest.mark.parametrize(
    ("name", "hash_", "scheme"),
    [
        ("ring", "", "light"),
        ("ring", "round=2&rank=0&chunk=1", "light"),
        ("ring", "round=2&rank=0&chunk=1", "dark"),
        ("ring", "view=table&round=2", "dark"),
        ("broken", "", "light"),
        ("broken", "", "dark"),
        ("time", "view=time&time=20000", "light"),
        ("two", "round=1", "dark"),
    ],
)
def test_axe_finds_nothing(opened: Opened, name: str, hash_: str, scheme: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: cd player && npm ci")
    pages = {
        "ring": lambda: page(RING),
        "broken": lambda: page(broken()),
        "time": lambda: page(HIERARCHICAL, trace=simulated(HIERARCHICAL)),
        "two": lambda: page(RING, compare=Run(build("all_reduce", "tree", 4))),
    }
    opened.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    shown = opened.show(pages[name](), hash_)
    assert shown.locator("html").get_attribute("data-theme") == scheme
    if name == "ring" and not hash_:
        shown.keyboard.press("?")
    shown.add_script_tag(content=AXE.read_text(encoding="utf-8"))
    result = shown.evaluate("axe.run()")
    found = [(v["id"], v["impact"], [node["html"][:120] for node in v["nodes"]]) for v in result["violations"]]
    assert found == []


def test_it_works_in_the_frame_of_a_notebook(opened: Opened) -> None:
    shown = opened.show("<!doctype html><title>Notebook</title><iframe style='width: 900px; height: 600px'></iframe>")
    shown.evaluate("html => document.querySelector('iframe').srcdoc = html", page(RING))
    frame = shown.frame_locator("iframe")
    frame.get_by_role("button", name="Forward one round").click()
    assert frame.locator(".reading").inner_text() == "Round 1 of 6"
    shown.evaluate("document.querySelector('iframe').sandbox = 'allow-scripts'")
    shown.evaluate("html => document.querySelector('iframe').srcdoc = html + ' '", page(RING))
    frame.get_by_role("button", name="Dark theme").click()
    frame.get_by_role("button", name="Light theme").wait_for()
    trace = simulated(RING, "switch:4").trace
    assert trace is not None
    opened.show(f"<!doctype html><title>Notebook</title>{trace_html(trace)}")
    frame.get_by_role("button", name="Time").and_(frame.locator("[aria-pressed=true]")).wait_for()
    assert "Simulated 1MiB" in frame.locator(".lanes").inner_text()


def test_a_page_without_data_says_how_to_make_one(opened: Opened) -> None:
    from farandole.show.page import filled

    shown = opened.show(filled("null"))
    assert "farandole show ring --ranks 4 -o ring.html" in shown.locator("main").inner_text()
