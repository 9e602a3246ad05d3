"""The report in a real browser: opened from disk, without a network."""

import re

import numpy as np
import pytest

from semistan.show.report import write_report
from semistan.workflow.fit import fit_model
from support.browser import chromium
from support.small import small_frame

pytestmark = pytest.mark.slow

SECTIONS = [
    "model", "coefficients", "diagnostics", "effects", "checks", "subspace", "program", "cite",
    "reproduce",
]  # fmt: skip
NASTY = "<script>document.title = 'broken'</script>"
FORMULA = f"y ~ x + z + C(g) + `{NASTY}` + nn(u, `größe`)"


@pytest.fixture(scope="module")
def report(toolchain, tmp_path_factory):
    """A small run with names that would break a page that does not escape them."""
    folder = tmp_path_factory.mktemp("report")
    frame = small_frame(60).rename(columns={"v": "größe"})
    frame[NASTY] = np.random.default_rng(1).normal(size=60)
    overrides = {
        "network.hidden": [3], "subspace.k": 2, "train.epochs": 50,
        "sample.warmup": 200, "sample.draws": 150,
    }  # fmt: skip
    fit = fit_model(FORMULA, frame, out=folder / "run", overrides=overrides)
    path = folder / "report.html"
    write_report(fit.run, fit.posterior, fit.summary, path)
    return path


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def open_page(browser, report):
    """Return a function that opens the report and records what the page does."""
    contexts = []

    def opened(width=1280, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.messages, page.requests = [], []
        page.on("console", lambda message: page.messages.append(message.text))
        page.on("pageerror", lambda error: page.messages.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(report.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    return open_page()


def column(page, name):
    """The cells of one column of the coefficient table, as shown."""
    return page.evaluate(
        """(name) => {
          const table = document.querySelector("#coefficients table");
          const at = [...table.tHead.rows[0].cells].findIndex((h) => h.textContent === name);
          return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent.trim());
        }""",
        name,
    )


def numbers(page, name):
    return [float(text.replace("\u2212", "-")) for text in column(page, name)]


def header(page, name):
    return page.locator("#coefficients table th", has_text=re.compile(f"^{re.escape(name)}$"))


def luminance(colour):
    """Relative luminance of 'rgb(r, g, b)', by WCAG 2."""
    shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_of_black_and_white_is_21():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


def test_it_opens_without_a_message_and_asks_for_nothing(page, report):
    assert page.messages == []
    assert [url for url in page.requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.title() == "Semi-structured regression of y"


def test_the_policy_forbids_requests(page):
    blocked = page.evaluate(
        """() => new Promise((done) => {
          document.addEventListener("securitypolicyviolation", (e) => done(e.violatedDirective));
          const image = new Image();
          image.src = "https://example.org/x.png";
        })"""
    )
    assert blocked == "img-src"


def test_every_section_has_its_heading_and_its_link(page):
    for name in SECTIONS:
        title = page.locator(f"#{name} > h2").inner_text()
        link = page.locator(f"nav a[href='#{name}']")
        assert link.inner_text() == title
        link.click()
        assert page.locator(f"#{name}").evaluate(
            "e => e.getBoundingClientRect().top < innerHeight && matchMedia('screen').matches"
        )
    assert (
        page.locator("main > section").count()
        == len(SECTIONS) + page.locator("section.notice").count()
    )


def test_every_picture_loads_and_is_described(page):
    pictures = page.locator("img")
    assert pictures.count() >= 12
    for i in range(pictures.count()):
        picture = pictures.nth(i)
        assert len(picture.get_attribute("alt")) > 20
        picture.evaluate("e => e.decode()")
        assert picture.evaluate("e => e.naturalWidth") > 0


def test_names_are_shown_as_they_are(page):
    assert page.locator("#coefficients td", has_text=NASTY).count() == 1
    assert page.locator("script").count() == 1


def test_numbers_are_sorted_by_click_in_both_directions(page):
    head = header(page, "Estimate")
    assert head.get_attribute("aria-sort") is None
    before = numbers(page, "Estimate")
    assert before != sorted(before)
    head.locator("button").click()
    assert numbers(page, "Estimate") == sorted(before)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").click()
    assert numbers(page, "Estimate") == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    header(page, "Rhat").locator("button").click()
    assert numbers(page, "Rhat") == sorted(numbers(page, "Rhat"))
    assert head.get_attribute("aria-sort") is None
    assert page.locator("#coefficients th[aria-sort]").count() == 1


def test_rows_stay_together_when_sorted(page):
    before = dict(zip(column(page, "Name"), column(page, "Estimate"), strict=True))
    header(page, "Estimate").locator("button").click()
    assert dict(zip(column(page, "Name"), column(page, "Estimate"), strict=True)) == before


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_words_are_sorted_by_keyboard(page, key):
    before = column(page, "Name")
    header(page, "Name").locator("button").focus()
    page.keyboard.press(key)
    assert column(page, "Name") == sorted(before, key=str.lower) != before
    assert header(page, "Name").get_attribute("aria-sort") == "ascending"
    page.keyboard.press(key)
    assert column(page, "Name") == sorted(before, key=str.lower, reverse=True)


def test_what_does_not_exist_is_sorted_last(page):
    page.evaluate(
        """() => {
          const cell = document.querySelector("#coefficients tbody tr .number[data-value]");
          cell.dataset.value = "nan";
          cell.textContent = "missing";
        }"""
    )
    for _ in range(2):
        header(page, "Estimate").locator("button").click()
        assert column(page, "Estimate")[-1] == "missing"


def test_the_keyboard_meets_the_skip_link_first_and_shows_where_it_is(page):
    page.keyboard.press("Tab")
    link = page.locator("a.skip")
    assert link.evaluate("e => e === document.activeElement")
    assert link.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_is_never_wider_than_the_window(open_page, width):
    page = open_page(width)
    page.locator("details").evaluate("e => { e.open = true; }")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_what_is_wider_scrolls_in_a_frame_that_the_keyboard_reaches(open_page):
    page = open_page(390)
    frame = page.locator("#coefficients .scroll").first
    assert frame.evaluate("e => e.scrollWidth > e.clientWidth")
    frame.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(50):  # the page's policy forbids the waiting that evaluates text
        page.wait_for_timeout(50)
        if frame.evaluate("e => e.scrollLeft") > 0:
            return
    pytest.fail("the frame did not scroll")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_page, scheme):
    page = open_page(color_scheme=scheme)
    page.locator("details").evaluate("e => { e.open = true; }")
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (luminance(paper) < 0.1) == (scheme == "dark")
    pairs = page.evaluate(
        """() => {
          const paper = (e) => {
            for (; e; e = e.parentElement) {
              const colour = getComputedStyle(e).backgroundColor;
              if (colour !== "rgba(0, 0, 0, 0)") return colour;
            }
          };
          const words = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
          return [...document.querySelectorAll("body *")]
            .filter((e) => words(e) && !["SCRIPT", "STYLE"].includes(e.tagName))
            .map((e) => [getComputedStyle(e).color, paper(e), e.tagName, e.className]);
        }"""
    )
    assert len(pairs) > 200
    for colour, behind, tag, name in pairs:
        assert contrast(colour, behind) >= 4.5, (tag, name, colour, behind)


def test_printing_unfolds_the_program_and_hides_the_contents(page):
    details = page.locator("details")
    assert details.get_attribute("open") is None
    page.emulate_media(media="print")
    page.locator("details[open]").wait_for()
    assert page.locator("details pre").is_visible()
    assert not page.locator("nav").is_visible()
    page.emulate_media(media="screen")
    page.locator("details:not([open])").wait_for()


def test_it_prints_in_black_on_white_from_a_dark_screen(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    colours = page.evaluate(
        """() => ["color", "backgroundColor"].map(
          (name) => getComputedStyle(document.documentElement)[name])"""
    )
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert page.locator("img").first.evaluate("e => getComputedStyle(e).filter") == "none"
    assert page.pdf().startswith(b"%PDF")


def test_code_is_copied(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    listing = page.locator("#reproduce .listing").first
    listing.locator("button").click()
    listing.get_by_text("Copied", exact=True).wait_for()
    assert page.locator("[role=status]").inner_text() == "model.toml copied"
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == listing.locator("pre").evaluate("e => e.textContent")
    assert copied.startswith("formula = ")


def test_without_a_script_the_page_is_complete(open_page, page):
    plain = open_page(java_script_enabled=False)
    assert plain.locator("button").count() == 0
    assert plain.locator("main > section > h2").all_inner_texts() == (
        page.locator("main > section > h2").all_inner_texts()
    )
    plain.locator("summary").click()
    assert plain.locator("details pre").is_visible()
