"""The page in a real browser: by keyboard, small and large, light and dark, and with hostile data."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page as Tab
from playwright.sync_api import expect

from pulsar_lakehouse.page.server import serve_page
from pulsar_lakehouse.settings import Settings
from tests.lake import read
from tests.page.lake import HOSTILE, SHOWN

VIEWS = ("", "tables", "quarantine", "trace", "sql", "logs?file=lakehouse.log")


@contextmanager
def opened(tab: Tab, settings: Settings) -> Iterator[str]:
    """The address of a server that has let the browser in."""
    server = serve_page(settings, 0, "ann")
    tab.goto(server.url)
    yield server.url.partition("?")[0]
    server.shutdown()
    server.server_close()


def test_hostile_data_runs_nothing_and_loads_nothing(hostile: Settings, page: Tab) -> None:
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    with opened(page, hostile) as base:
        for view in (*VIEWS, "trace?" + urlencode({"topic": "orders", "key": HOSTILE})):
            page.goto(f"{base}{view}")
            assert page.locator("img").count() == 0
        page.goto(f"{base}quarantine")
        expect(page.get_by_role("cell", name=SHOWN).first).to_be_visible()
        page.get_by_role("row").filter(has_text="<img").get_by_role("link", name="Discard…").click()
        expect(page.get_by_role("heading", level=2)).to_contain_text("<img src=x")
        page.goto(f"{base}sql")
        page.get_by_role("textbox").fill(f"SELECT '{HOSTILE.replace(chr(39), chr(39) * 2)}'")
        page.get_by_role("button", name="Run").click()
        expect(page.get_by_role("cell")).to_have_text(SHOWN)
    assert said == []


def test_all_is_done_by_keyboard(hostile: Settings, page: Tab) -> None:
    with opened(page, hostile) as base:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.goto(f"{base}quarantine")
        row = page.get_by_role("row").filter(has_text="missing").first
        row.get_by_role("link", name="Release…").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Why, for the record").focus()
        page.keyboard.type("they are there now")
        page.keyboard.press("Enter")
        expect(page.get_by_role("row").filter(has_text="they are there now")).to_contain_text("ann")
        page.goto(f"{base}sql")
        expect(page.get_by_role("textbox")).to_be_focused()
        page.keyboard.type("SELECT 40 + 2 AS n")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("cell")).to_have_text("42")
    assert [row["requested_by"] for row in read(hostile, "quarantine.actions")].count("ann") == 1


@pytest.mark.parametrize("width", [320, 390, 768, 1440, 2560])
def test_only_tables_scroll_sideways(hostile: Settings, page: Tab, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    with opened(page, hostile) as base:
        for view in VIEWS:
            page.goto(f"{base}{view}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view


CONTRASTS = """() => {
  const channel = (value) => (value /= 255) <= .04045 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) => .2126 * channel(red) + .7152 * channel(green) + .0722 * channel(blue);
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const ground = (each) => {
    for (; each; each = each.parentElement) {
      const found = numbers(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
  };
  return [...document.querySelectorAll("body *")]
    .filter((each) => !each.closest("svg"))
    .filter((each) => [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
    .map((each) => {
      const [low, high] = [light(numbers(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => a - b);
      return [each.outerHTML.slice(0, 80), (high + .05) / (low + .05)];
    })
    .filter(([, contrast]) => contrast < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(hostile: Settings, page: Tab, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    with opened(page, hostile) as base:
        grounds = set()
        for view in (*VIEWS, "ask?action=discard&topic=orders&entity=users&reason=missing"):
            page.goto(f"{base}{view}")
            assert page.evaluate(CONTRASTS) == []
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == {"rgb(18, 22, 28)" if scheme == "dark" else "rgb(245, 246, 248)"}


def test_views_stay_fresh_until_somebody_stops_that(hostile: Settings, page: Tab) -> None:
    page.clock.install()
    with opened(page, hostile):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(6_000)
        page.wait_for_function("true")
        expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
        assert len(asked) == 1
        page.get_by_role("button", name="Live").click()
        page.clock.run_for(20_000)
        assert len(asked) == 1
