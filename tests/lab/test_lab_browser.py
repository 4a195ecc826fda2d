"""The lab in a real browser: state in the address, the player, the comparison, keys, errors, accessibility, silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from browsers import AXE, Opened, chromium
from labs import running_lab

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running_lab() as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with chromium() as browser:
        one = Opened(browser, tmp_path_factory.mktemp("lab"), reduced_motion="reduce", color_scheme="light")
        yield one
        one.context.close()


@pytest.fixture
def lab(opened: Opened, address: str) -> Iterator[Page]:
    """The page, with nothing asked yet; it must ask nothing of anyone else, and make no errors."""
    opened.errors.clear()
    opened.requests.clear()
    yield opened.page
    assert opened.errors == []
    away = [url for url in opened.requests if urlsplit(url).netloc not in (urlsplit(address).netloc, "")]
    assert away == []


def done(lab: Page) -> None:
    from playwright.sync_api import expect

    expect(lab.locator("#compare")).to_be_visible()
    expect(lab.locator("#status")).to_be_empty()


def test_what_is_picked_is_in_the_address_and_the_address_leads_back(lab: Page, address: str) -> None:
    from playwright.sync_api import expect

    lab.goto(f"{address}?cluster=switch:4&size=64KiB")
    done(lab)
    expect(lab.locator("#player-title")).to_have_text("ring: all_reduce of 64KiB, 4 ranks of switch:4")
    assert lab.locator("#advice p").first.inner_text().startswith("For 64KiB, take direct: ")
    player = lab.frame_locator("#player iframe")
    player.get_by_role("button", name="Forward one round").click()
    expect(player.locator(".reading")).to_have_text("Round 1 of 6")
    assert lab.locator("#compare tbody tr").count() == 11
    assert lab.locator("#compare img").evaluate("image => image.naturalWidth") > 0
    assert lab.locator("#compare td.best").count() == 5
    lab.get_by_role("button", name="tree", exact=True).click()
    expect(lab).to_have_url(f"{address}?algorithm=tree&cluster=switch%3A4&size=64KiB")
    done(lab)
    expect(lab.locator("#player-title")).to_have_text("tree: all_reduce of 64KiB, 4 ranks of switch:4")
    lab.go_back()
    done(lab)
    expect(lab.locator("#player-title")).to_have_text("ring: all_reduce of 64KiB, 4 ranks of switch:4")
    assert lab.locator("[name=algorithm]").input_value() == "ring"


def test_the_form_is_used_by_keyboard_and_offers_the_root_where_there_is_one(lab: Page, address: str) -> None:
    from playwright.sync_api import expect

    lab.goto(f"{address}?cluster=switch:4")
    done(lab)
    expect(lab.get_by_label("Root")).to_be_hidden()
    lab.get_by_label("Collective").focus()
    lab.keyboard.type("broad")
    lab.keyboard.press("Tab")
    expect(lab.get_by_label("Root")).to_be_visible()
    done(lab)
    lab.keyboard.type("binomial")
    lab.get_by_label("Root").focus()
    lab.keyboard.press("Control+a")
    lab.keyboard.type("2")
    lab.keyboard.press("Enter")
    expect(lab.locator("#player-title")).to_contain_text("binomial: broadcast of 1MiB")
    done(lab)
    assert "root=2" in lab.url


def test_an_error_of_the_library_is_shown_as_it_is(opened: Opened, address: str) -> None:
    from playwright.sync_api import expect

    lab = opened.page
    lab.goto(f"{address}?algorithm=rong&cluster=switch:4")
    alert = lab.get_by_role("alert")
    expect(alert).to_have_text("no algorithm for all_reduce is called 'rong'; did you mean 'ring'?")
    expect(lab.locator("#player")).to_be_hidden()
    lab.locator("[name=algorithm]").fill("ring")
    lab.keyboard.press("Enter")
    done(lab)
    expect(alert).to_be_empty()
    opened.errors.clear()  # the browser notes the refused request


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(lab: Page, address: str, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: cd player && npm ci")
    lab.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    lab.goto(f"{address}?cluster=switch:4")
    done(lab)
    lab.evaluate(AXE.read_text(encoding="utf-8"))
    result = lab.evaluate("axe.run({iframes: false})")
    found = [(v["id"], v["impact"], [node["html"][:120] for node in v["nodes"]]) for v in result["violations"]]
    assert found == []
