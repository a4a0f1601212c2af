"""The page of a report, in a real browser."""

from __future__ import annotations

import csv
import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from dab.benchmark.results.result import results
from dab.report import gather, render
from tests.support.report_runs import make_corrected, make_pieces, make_runs, save

pytest.importorskip("playwright.sync_api", reason="pip install playwright")
from playwright.sync_api import Browser, Page, expect


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def report(runs: Path) -> Path:
    page = runs.parent / "report.html"
    page.write_text(render(gather(runs)))
    return page


class Visit:
    """A page with all that it asked for and complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


@pytest.fixture(params=[("light", 1240), ("dark", 400)], ids=str)
def visit(request, browser: Browser, report: Path) -> Iterator[Visit]:
    """The report as it opens from disk; at the end it must have been quiet and alone."""
    scheme, width = request.param
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, has_touch=width < 500
    )
    visit = Visit(context.new_page())
    visit.page.goto(report.as_uri())
    streams = visit.page.get_by_role("navigation").get_by_role("button")
    expect(streams.nth(1)).to_have_attribute("aria-pressed", "true")  # that with most rows
    streams.nth(0).click()
    expect(visit.page.locator("#time g.line")).to_have_count(2)
    streams.nth(1).click()
    yield visit
    assert visit.complaints == []
    assert {url.partition(":")[0] for url in visit.requests} <= {"file", "data"}
    context.close()


def test_numbers_are_rounded_as_in_the_tables(visit):
    values = [n / 8 for n in range(100)] + [n / 20 for n in range(100)]
    assert visit.page.evaluate("values => values.map(fixed)", values) == [
        f"{v:.1f}" for v in values
    ]


def methods(page: Page) -> list[str]:
    return page.locator("#tables table").nth(1).locator("tbody th").all_inner_texts()


def test_the_table_sorts(visit):
    page = visit.page
    before = methods(page)
    head = page.locator("#tables table").nth(1).locator("thead th").nth(2)
    errors = page.locator("#tables table").nth(1).locator("tbody td:nth-child(3)")

    def errors_shown() -> list[float]:
        return [float(re.match(r"[\d.]+", text).group()) for text in errors.all_inner_texts()]

    head.get_by_role("button").click()
    assert errors_shown() == sorted(errors_shown())
    expect(head).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press("Enter")  # it has kept the focus
    assert errors_shown() == sorted(errors_shown(), reverse=True)
    expect(head).to_have_attribute("aria-sort", "descending")
    assert sorted(methods(page)) == sorted(before)


def test_a_click_in_the_legend_hides_a_line(visit):
    page = visit.page
    lines = page.locator("#time g.line")
    expect(lines).to_have_count(6)
    tent = page.locator("#legend").get_by_role("button", name="TENT")
    row = tent.get_attribute("data-row")
    tent.click()
    expect(tent).to_have_attribute("aria-pressed", "false")
    expect(lines).to_have_count(5)
    expect(page.locator(f'#time g.line[data-row="{row}"]')).to_have_count(0)
    tent.press("Enter")
    expect(lines).to_have_count(6)


def test_hovering_shows_values(visit, report):
    page = visit.page
    chart = page.locator("#time svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    tip = page.locator("#tip")
    expect(tip).to_be_hidden()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(tip).to_be_visible()
    assert "contrast" in tip.inner_text()
    at = int(re.search(r", (\d+)", tip.inner_text()).group(1)) // 16
    windows = page.evaluate("current().rows.find(row => row.method === 'tent').curve.raw")
    assert f"{windows[at]:.1f} %" in tip.inner_text()
    edges = tip.bounding_box()
    assert edges["x"] >= 0
    assert edges["x"] + edges["width"] <= page.viewport_size["width"]
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_arrow_keys_walk_along_the_chart(visit):
    page = visit.page
    page.locator("#time").focus()
    tip = page.locator("#tip h4")
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("gaussian noise, 0")
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("gaussian noise, 16")


def test_a_correction_is_shown_with_the_true_labels(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render(gather(make_corrected(tmp_path))))
    visit = Visit(browser.new_page())
    visit.page.goto(file.as_uri())
    inside = visit.page.locator("#correction")
    rows = visit.page.locator("#correction-rows button")
    rows.get_by_text("output=markov").click()
    expect(inside.locator(".chart svg")).to_have_count(2)
    expect(inside.locator(".chart").nth(0).locator("circle")).to_have_count(210)
    inside.locator(".chart").nth(0).focus()
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.locator("#tip")).to_contain_text("before the correction")
    visit.page.keyboard.press("Escape")
    rows.get_by_text("output=batch_prior").click()
    expect(inside.locator(".chart svg")).to_have_count(1)
    assert visit.complaints == []
    visit.page.close()


def test_the_buffer_is_shown_beside_the_stream(visit):
    page = visit.page
    inside = page.locator("#buffer")
    inside.scroll_into_view_if_needed()
    assert page.locator("#buffer-rows button").all_inner_texts() == [
        *["NOTE M=16", "RoTTA M=16", "DAB M=8", "DAB M=16"]
    ]
    images = inside.locator("img")
    expect(images).to_have_count(2)
    before = images.nth(1).get_attribute("src")
    assert re.search(r"16 images of \d classes", images.nth(0).get_attribute("alt"))
    inside.get_by_role("group", name="Moment").get_by_role("button").nth(5).click()
    assert images.nth(1).get_attribute("src") != before
    for image in images.all():
        assert image.evaluate("node => node.complete && node.naturalWidth > 0")
    expect(inside.locator("canvas")).to_have_count(2)
    expect(inside.locator(".chart svg")).to_have_count(4)
    # Counts are drawn, and read back by hovering.
    page.wait_for_function("!!document.querySelectorAll('#buffer canvas')[1].onpointermove")
    canvas = inside.locator("canvas").nth(1)
    canvas.hover()
    count = int(page.locator("#tip td").last.inner_text())
    drawn = canvas.evaluate(
        """node => { const found = node.getContext('2d').getImageData(
            Math.floor(node.width / 2), Math.floor(node.height / 2), 1, 1).data;
            return found[3]; }"""
    )
    assert (count > 0) == (drawn > 0)


def test_a_run_has_its_card_and_a_command_to_copy(visit):
    page = visit.page
    page.locator("#filter").fill("DAB capacity=8 correlated")
    expect(page.locator("#runs details")).to_have_count(2)
    run = page.locator("#runs details").last
    run.locator("summary").click()
    command = run.locator("pre").first.inner_text()
    assert command.startswith("dab run dab capacity=8 batch_size=8 lr=0.01 --data tiny ")
    assert " --seed 1 " in command
    expect(run.locator("pre").nth(1)).to_contain_text('"setting": "correlated"')
    run.get_by_role("button", name="copy").click()
    expect(run.get_by_role("button")).to_have_text("copied")
    page.locator("#filter").fill("nothing like this")
    expect(page.locator("#runs")).to_contain_text("No run contains all of these words.")


LABELS = """
place => {
  const names = [...document.querySelectorAll(`${place} svg .label`)];
  const marks = [...document.querySelectorAll(`${place} svg :is(circle, polygon)`)];
  const boxes = [...names, ...marks].map(node => node.getBoundingClientRect());
  const chart = document.querySelector(`${place} svg`).getBoundingClientRect();
  const covered = [];
  names.forEach((name, i) => {
    const a = boxes[i];
    if (a.left < chart.left || a.right > chart.right + 1) covered.push([name.textContent, "cut"]);
    boxes.forEach((b, j) => {
      const over = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const under = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (i !== j && over > 1 && under > 3) covered.push([name.textContent, j]);
    });
  });
  return [names.length, covered];
}
"""


def test_names_cover_neither_points_nor_each_other(visit):
    for place in ("#size", "#cost"):
        names, covered = visit.page.evaluate(LABELS, place)
        assert names >= 3
        assert covered == []


def test_the_mean_is_seen_without_scrolling(visit):
    heads = visit.page.locator("#domains thead th").all_inner_texts()
    assert heads[:2] == ["method", "mean"]
    first = visit.page.locator("#domains tbody td").first.bounding_box()
    assert first["x"] + first["width"] <= visit.page.viewport_size["width"]


def test_nothing_is_wider_than_the_window(visit):
    page = visit.page
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    narrow = page.evaluate(
        """[...document.querySelectorAll('svg text')].filter(
            node => parseFloat(getComputedStyle(node).fontSize) < 10).length"""
    )
    assert narrow == 0


CONTRASTS = """
() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => { v /= 255;
    return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; })
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = node => {
    const layers = [];
    for (; node; node = node.parentElement)
      layers.unshift(rgb(getComputedStyle(node).backgroundColor));
    return layers.reduce((under, [r, g, b, a = 1]) =>
      [r, g, b].map((v, i) => a * v + (1 - a) * under[i]), [255, 255, 255]);
  };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || !node.checkVisibility() || node.closest('script, noscript')) continue;
    if (node.closest('svg .label')) continue;  // in the color of its line, with a halo
    const style = getComputedStyle(node);
    const ink = rgb(node.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push([node.textContent.slice(0, 40), +ratio.toFixed(2)]);
  }
  return poor;
}
"""


def test_all_text_stands_out_from_what_is_behind_it(visit):
    assert visit.page.evaluate(CONTRASTS) == []


def test_everything_has_a_name_and_can_be_reached_by_keyboard(visit):
    page = visit.page
    nameless = page.evaluate(
        """[...document.querySelectorAll(
                'img, svg[role=img], button, canvas, input, [role=region]')]
            .filter(node => !(node.alt || node.getAttribute('aria-label') || node.textContent.trim()
                || node.getAttribute('aria-labelledby') || node.closest('label')))
            .map(node => node.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    reached = set()
    page.locator("body").press("Home")
    for _ in range(70):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.closest('[id]')?.id"))
    assert {"theme", "tables", "streams", "view", "time", "legend", "domains"} <= reached
    assert {"size", "cost", "buffer-rows", "buffer", "filter"} <= reached


def test_a_button_that_was_pressed_keeps_the_focus(visit):
    page = visit.page
    places = ["#view", "#buffer-rows", "#buffer [aria-label=Moment]", "#streams", "#legend"]
    for place, number in product(places, (0, 1)):
        text = page.locator(place).get_by_role("button").nth(number).inner_text()
        page.locator(place).get_by_role("button").nth(number).focus()
        page.keyboard.press("Enter")
        expect(page.locator(place).get_by_role("button").nth(number)).to_be_focused()
        assert page.evaluate("document.activeElement.innerText") == text


def test_what_takes_the_focus_has_a_name_and_keys(visit):
    page = visit.page
    for chart in page.locator(".chart[tabindex], canvas[tabindex]").all():
        assert chart.get_attribute("role") == "img"
        assert chart.get_attribute("aria-label")
    page.wait_for_function("!!document.querySelectorAll('#buffer canvas')[1].onkeydown")
    page.locator("#buffer canvas").nth(1).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tip h4")).to_have_text("class 0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tip h4")).to_have_text("class 1")
    page.keyboard.press("Tab")
    expect(page.locator("#tip")).to_be_hidden()


def test_a_stream_in_pieces_has_no_time_of_its_own(browser, tmp_path):
    (tmp_path / "page.html").write_text(render(gather(make_pieces(tmp_path, seeds=(0,)))))
    visit = Visit(browser.new_page())
    page = visit.page
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator("#tables tbody tr")).to_have_count(2)
    expect(page.locator("#time-note")).to_contain_text("each piece has its own time")
    for hidden in ("#view", "#time", "#legend", "#buffer-section"):
        expect(page.locator(hidden)).to_be_hidden()
    expect(page.locator("#domains tbody tr")).to_have_count(2)
    page.locator("#filter").fill("capacity=16")
    page.locator("#runs summary").filter(has_text="piece 2 of 4").click()
    command = page.locator("#runs pre").first
    expect(command).to_contain_text("dab bench --method 'dab capacity=16 ")
    expect(command).to_contain_text("--shard-streams 4")
    assert visit.complaints == []
    page.close()


def test_the_theme_can_be_switched(visit):
    page = visit.page
    theme = "document.documentElement.dataset.theme"
    before = page.evaluate(theme)
    page.locator("#theme").click()
    assert {before, page.evaluate(theme)} == {"light", "dark"}
    assert page.evaluate(CONTRASTS) == []


def test_it_says_in_words_what_it_shows(visit, runs):
    page, report = visit.page, gather(runs)
    assert page.locator("#opening p").all_inner_texts() == [
        stream.opening for stream in report.streams
    ]
    expect(page.locator("#terms")).to_be_hidden()
    page.get_by_text("What these words mean").click()
    terms = dict(
        zip(
            page.locator("#terms dt").all_inner_texts(),
            page.locator("#terms dd").all_inner_texts(),
            strict=True,
        )
    )
    assert terms == {term.word: term.meaning for term in report.glossary}
    notes = page.locator("#tables .note").all_inner_texts()
    assert notes == [table.caption for table in report.tables]
    assert "±" not in notes[0]  # a single seed
    assert "±" in notes[1]


def test_the_table_can_be_downloaded(visit, runs):
    page = visit.page
    with page.expect_download() as waiting:
        page.locator("#tables").get_by_role("button", name="Download CSV").click()
    assert waiting.value.suggested_filename == "tiny runs.csv"
    text = Path(waiting.value.path()).read_text()
    assert text == gather(runs).csv
    assert len(list(csv.DictReader(io.StringIO(text)))) == 8
    visit.requests[:] = [url for url in visit.requests if not url.startswith("blob:")]


def test_two_folders_are_compared_and_problems_listed(browser, runs, tmp_path):
    other = Path(shutil.copytree(runs, tmp_path / "<i>before</i>"))
    for result in list(results(other)):
        if result.card.method == "tent":
            save(replace(result, error=result.error - 3), other)
    damaged = other / "damaged <b>"
    damaged.mkdir()
    (damaged / "result.json").write_text("{")
    (tmp_path / "page.html").write_text(render(gather(runs, other)))
    visit = Visit(browser.new_page())
    page = visit.page
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator("#comparison-title")).to_have_text(f"Compared with {other}")
    lines = page.locator("#comparison tbody tr")
    expect(lines).to_have_count(8)
    tent = lines.filter(has_text="TENT")
    expect(tent.locator("td").nth(3)).to_contain_text("+3.0")
    expect(tent.locator("td").nth(3)).to_have_class("worse")
    expect(lines.filter(has_text="Source").first.locator("td").nth(3)).to_contain_text("0.0")
    expect(page.locator("#problems li")).to_have_count(1)
    expect(page.locator("#problems li")).to_contain_text(str(damaged))
    assert visit.complaints == []
    page.close()
