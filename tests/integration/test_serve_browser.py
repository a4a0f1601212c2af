"""The page of a server, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support.serving import OPTIONS, Site, pictures

pytest.importorskip("playwright.sync_api", reason="pip install playwright")
from playwright.sync_api import Browser, Page, expect

NASTY = "<img src=x onerror=alert(1)>'\"&amp;"
TOKEN = "correct horse battery"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site(options={**OPTIONS, "guard": True}, token=TOKEN)
    client = site.client(TOKEN)
    for picture in pictures(40):
        client.predict("cam-1", picture)
    client.predict(quote(NASTY), pictures(1)[0])
    yield site
    site.close()


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    """The page, opened and shown the token; in the end, it has asked no one else."""
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.address)
    expect(page.locator("#live")).to_have_text("· a token is required")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#live")).to_have_text("· wrong token")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#live")).to_have_text("· live")
    yield page
    assert said == []
    assert all(url.startswith((site.address, "data:")) for url in asked)
    page.close()


def test_the_page_shows_streams_and_follows_them(page, site):
    expect(page.locator("#ask")).to_be_hidden()
    rows = page.locator("#streams tr")
    expect(rows).to_have_count(2)
    status = site.service.statuses["cam-1"]
    row = rows.filter(has_text="cam-1")
    shown = row.locator("td").all_inner_texts()
    assert shown[0] == status.state != "unguarded"
    assert shown[2:5] == [str(status.images), str(status.updates), str(status.rollbacks)]
    assert shown[5] == f"{status.buffered} images, {status.held} classes"
    site.client(TOKEN).predict("cam-3", pictures(1)[0])
    expect(rows).to_have_count(3)  # by itself
    site.client(TOKEN).request("DELETE", "/streams/cam-3")
    expect(rows).to_have_count(2)


def test_a_click_shows_what_the_buffer_holds(page, site):
    button = page.get_by_role("button", name="cam-1")
    button.click()
    expect(page.locator("#details-title")).to_have_text("Buffer of cam-1")
    labels = site.fleet.stream("cam-1").buffer.labels
    expect(page.locator("#classes tr")).to_have_count(len(set(labels)))
    expect(page.get_by_role("button", name="cam-1")).to_have_attribute("aria-expanded", "true")
    for picture in pictures(40, seed=1):
        site.client(TOKEN).predict("cam-1", picture)
    labels = site.fleet.stream("cam-1").buffer.labels  # the page follows
    expect(page.locator("#classes tr")).to_have_count(len(set(labels)))
    expect(page.locator("#details-status")).to_have_text(site.fleet.stream("cam-1").status)
    page.get_by_role("button", name="cam-1").press("Enter")  # it has kept the focus
    expect(page.locator("#details")).to_be_hidden()


def test_names_are_text(page):
    row = page.locator("#streams tr").filter(has_text="onerror")
    expect(row.get_by_role("button")).to_have_text(NASTY)
    row.get_by_role("button").click()
    expect(page.locator("#details-title")).to_have_text(f"Buffer of {NASTY}")
    expect(page.locator("#details-status")).not_to_be_empty()
    assert page.locator("img").count() == 0
