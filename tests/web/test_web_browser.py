"""All pages and forms in Chromium. A message on the console, a request to another server, or a violation of the content
security policy fails the test.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Progress, Result, stamp
from ddefuzz.web.app import answering
from ddefuzz.web.security import Access
from tests.browsers import chromium
from tests.findings.arbitrary_findings import CHUNK, ROLL, START
from tests.web.served import HOSTILE, ada, hostile

pytestmark = pytest.mark.slow

VIOLATION = "(event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@contextmanager
def served(database: Database, access: Access | None = None) -> Iterator[str]:
    """The address of a server on a free port."""
    with answering(database, access or Access(by="ada")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def reading_address(made: Path) -> Iterator[str]:
    """A server whose pages are only read."""
    with Database.open(f"sqlite:///{made}") as database, served(database) as address:
        yield address


@contextmanager
def opened(
    browser: Browser, address: str, *, width: int = 1200, dark: bool = False, expected: str = ""
) -> Iterator[Page]:
    """A page of a new session that records what must not happen, and checks at the end that it did not. What has the
    `expected` text may happen.
    """
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: None if request.url.startswith(address) else wrong.append(request.url))
    page.on(
        "response",
        lambda response: wrong.append(f"{response.status} {response.url}") if response.status >= 400 else None,
    )
    context.add_init_script(f"addEventListener('securitypolicyviolation', {VIOLATION})")
    yield page
    context.close()
    assert [one for one in wrong if not expected or expected not in one] == []


def paths(finding: str) -> list[str]:
    pages = ["/", "/findings", f"/findings/{finding}", "/sites", "/versions", "/census", "/campaigns", "/login"]
    return [*pages, "/sites/source?file=torch/_refs/__init__.py"]


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (360, False), (1400, True)])
def test_every_page_fits_and_can_be_read(browser: Browser, database: Database, width: int, dark: bool) -> None:
    database.put([hostile(database.get(CHUNK.key))])
    fill_other_pages(database)
    with served(database) as address, opened(browser, address, width=width, dark=dark) as page:
        for path in paths(CHUNK.key):
            page.goto(path)
            page.wait_for_load_state("networkidle")
            expect(page.locator("h1")).to_have_count(1)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wider) <= 0, path
            assert page.evaluate(STRUCTURE) == [], path
            assert [one for one in page.evaluate(CONTRAST) if one["ratio"] < 4.5] == [], path


def fill_other_pages(database: Database) -> None:
    """Results of a matrix and a campaign, with long texts."""
    for at, status in enumerate(("not judged", "fails", "sometimes", "moved", "passes")):
        for name in (CHUNK.key, ROLL.key, HOSTILE):
            database.save_results([Result(name, f"2.{at}.0+cu{at}", "", status, 1, 3, HOSTILE * 2, stamp(START))])
    campaign = database.start_campaign(
        profile="default", seed=2**63 - 1, generator="1", options={"budget": "9999h"}, when=START
    )
    for at in range(3):
        counts = {"cases": at, "fallback_sites": at, "dde_sites": at, "findings": at}
        when = stamp(START + timedelta(minutes=at))
        database.add_progress(campaign, Progress(when=when, seconds=60.0 * at, cpu_seconds=9.0 * at, **counts))


STRUCTURE = """
() => {
  const wrong = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const name = (element) => (element.ariaLabel || document.getElementById(element.getAttribute('aria-labelledby'))
    ?.textContent || element.textContent).trim();
  const say = (what, element) => wrong.push(`${what}: ${element.outerHTML.slice(0, 120)}`);
  if (document.documentElement.lang !== 'en') wrong.push('no language');
  if (!/\\S.* · ddefuzz$/.test(document.title)) wrong.push(`title: ${document.title}`);
  for (const part of ['header', 'nav', 'main', 'footer', 'a.skip[href="#main"]']) {
    if (!document.querySelector(part)) wrong.push(`no ${part}`);
  }
  let level = 0;
  for (const heading of all('h1, h2, h3, h4, h5, h6')) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) say(`heading after level ${level}`, heading);
    if (!name(heading)) say('empty heading', heading);
    level = next;
  }
  for (const field of all('input:not([type=hidden]):not([hidden]), select, textarea')) {
    if (!field.ariaLabel && ![...(field.labels || [])].some(label => label.textContent.trim())) say('no label', field);
  }
  for (const element of all('a[href], button, summary, nav, [role=region], svg[role=img]')) {
    if (!name(element)) say('no name', element);
  }
  for (const image of all('img')) if (!image.hasAttribute('alt')) say('no alternative text', image);
  for (const table of all('table')) if (!table.querySelector('thead th')) say('no header', table);
  for (const scroll of all('.scroll')) {
    if (scroll.tabIndex !== 0 || scroll.getAttribute('role') !== 'region') say('not for the keyboard', scroll);
  }
  const ids = all('[id]').map(element => element.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) wrong.push(`two with the id ${id}`);
  const keys = all('[accesskey]').map(element => element.accessKey);
  for (const key of keys.filter((key, at) => keys.indexOf(key) !== at)) wrong.push(`two access keys ${key}`);
  for (const element of all('[tabindex]')) if (element.tabIndex > 0) say('order of the keyboard', element);
  return wrong;
}
"""
"""What keeps people with a screen reader or without a mouse from using a page."""


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<h1>a</h1><h3>b</h3>", "heading after level 1"),
        ("<h1></h1>", "empty heading"),
        ("<label><input></label>", "no label"),
        ("<select><option>a</select>", "no label"),
        ("<a href='/'></a>", "no name"),
        ("<img src='/static/icon.svg'>", "no alternative text"),
        ("<table><tr><td>1</table>", "no header"),
        ("<div class='scroll'></div>", "not for the keyboard"),
        ("<p id='main'></p>", "two with the id main"),
        ("<a accesskey='1' href='/'>a</a>", "two access keys 1"),
        ("<p tabindex='1'>a</p>", "order of the keyboard"),
    ],
)
def test_the_checks_of_pages_find_faults(browser: Browser, reading_address: str, markup: str, expected: str) -> None:
    with opened(browser, reading_address) as page:
        page.goto("/login")
        page.evaluate("markup => document.querySelector('main').innerHTML = markup", markup)
        assert [one for one in page.evaluate(STRUCTURE) if one.startswith(expected)]


def test_the_check_of_contrast_finds_faults(browser: Browser, reading_address: str) -> None:
    with opened(browser, reading_address) as page:
        page.goto("/login")
        page.evaluate("document.querySelector('h1').style.color = '#999'")
        assert [one["text"] for one in page.evaluate(CONTRAST) if one["ratio"] < 4.5] == ["Log in to decide"]


CONTRAST = """
() => {
  const parsed = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const back = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = parsed(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const typed = element.placeholder && !element.value;
    const own = typed || [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(element, typed ? '::placeholder' : null);
    if (!own || !element.checkVisibility() || element.disabled || !style.color.startsWith('rgb')) continue;
    const [a, b] = [light(parsed(style.color)), light(back(element))].sort((x, y) => y - x);
    found.push({ratio: (a + 0.05) / (b + 0.05), text: element.textContent.slice(0, 40), class: element.className});
  }
  return found;
}
"""
"""The contrast of each text with its background (WCAG 2.1, 1.4.3: at least 4.5)."""


def test_a_person_filters_opens_decides_and_undoes(browser: Browser, database: Database) -> None:
    with served(database) as address, opened(browser, address) as page:
        page.goto("/findings")
        rows = page.locator("tr[data-row]")
        expect(rows).to_have_count(2)
        page.get_by_label("search").fill("native")
        expect(rows).to_have_count(1)
        assert "q=native" in page.url
        page.get_by_label("search").fill("")
        expect(rows).to_have_count(2)
        page.locator("form.filters select[name=state]").select_option("triaged")
        expect(rows).to_have_count(1)
        page.get_by_text("more filters").click()
        page.get_by_label("about data").select_option("all")
        page.goto("/findings")
        rows.locator(f"a[href='/findings/{CHUNK.key}']").click()
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert "torch.export.export" in page.evaluate("navigator.clipboard.readText()")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download as a script").click()
        assert download.value.suggested_filename == f"{CHUNK.key}.py"
        decide = page.locator("form[action$='/state']")
        decide.get_by_label("state").select_option("fixed")
        decide.get_by_label("why").fill("mended")
        decide.get_by_text("for which versions").click()
        decide.get_by_role("textbox", name="fixed in").fill("2.14.0")
        decide.get_by_role("button", name="Save state").click()
        expect(page.locator("p.summary .pill")).to_have_text("fixed in 2.14.0")
        assert (database.get(CHUNK.key).state, database.get(CHUNK.key).fixed_in) == ("fixed", ("2.14.0",))
        page.get_by_role("button", name="Undo the latest decision").click()
        expect(page.locator("p.summary .pill")).to_have_text("new")


def test_two_people_decide_at_once_and_the_second_sees_it(browser: Browser, database: Database) -> None:
    with (
        served(database) as address,
        opened(browser, address) as mine,
        opened(browser, address, expected="409") as theirs,
    ):
        for page in (mine, theirs):
            page.goto(f"/findings/{CHUNK.key}")
        forms = [page.locator("form[action$='/state']") for page in (mine, theirs)]
        for form, state in zip(forms, ("triaged", "wont-fix"), strict=True):
            form.get_by_label("state").select_option(state)
            form.get_by_role("button", name="Save state").click()
        expect(mine.locator("p.summary .pill")).to_have_text("triaged")
        expect(theirs.locator("main")).to_contain_text("state new → triaged")
        assert database.get(CHUNK.key).state == "triaged"


def test_a_person_says_what_else_is_known(browser: Browser, database: Database) -> None:
    with served(database) as address, opened(browser, address) as page:
        page.goto(f"/findings/{CHUNK.key}")
        page.get_by_text("add a note").click()
        page.locator("textarea").fill("two\nlines")
        page.get_by_role("button", name="Add note").click()
        expect(page.locator(".note .text")).to_have_text("two\nlines")
        page.get_by_text("add a link").click()
        page.get_by_label("URL").fill("https://example.org/1")
        page.get_by_role("button", name="Add link").click()
        page.get_by_text("priority, owner, labels").click()
        details = page.locator("form[action$='/details']")
        details.get_by_label("priority").select_option("high")
        details.get_by_label("labels").fill("backward cuda")
        details.get_by_role("button", name="Save").click()
        expect(page.locator("p.summary")).to_contain_text("backward")
        page.get_by_text("duplicate of another finding").click()
        page.locator("form[action$='/dup']").get_by_label("id").fill(ROLL.key)
        page.get_by_role("button", name="Mark as duplicate").click()
        expect(page.locator("p.summary .pill")).to_have_text("duplicate")
        page.get_by_role("button", name="Not a duplicate").click()
        expect(page.locator("p.summary .pill")).to_have_text("new")
    found = database.get(CHUNK.key)
    assert (found.priority, found.labels, found.links) == ("high", ("backward", "cuda"), ("https://example.org/1",))


def test_a_person_decides_on_several_with_keys(browser: Browser, database: Database) -> None:
    with served(database) as address, opened(browser, address) as page:
        page.goto("/findings?sort=id")
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("/")
        expect(page.get_by_label("search")).to_be_focused()
        page.keyboard.type("jk")
        expect(page.locator("tr[data-row]")).to_have_count(0)
        page.get_by_label("search").fill("")
        expect(page.locator("tr[data-row]")).to_have_count(2)
        page.locator("main").focus()
        first, second = sorted((CHUNK.key, ROLL.key))
        page.keyboard.press("j")
        expect(page.locator(f"a[href='/findings/{first}']")).to_be_focused()
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("j")
        expect(page.locator(f"a[href='/findings/{second}']")).to_be_focused()
        page.keyboard.press("k")
        page.keyboard.press("x")
        expect(page.locator(f"input[value='{first}']")).to_be_checked()
        expect(page.locator(f"input[value='{second}']")).not_to_be_checked()
        page.get_by_label("Choose all findings").check()
        bulk = page.locator("#bulk")
        bulk.get_by_label("state").select_option("reported")
        bulk.get_by_role("button", name="Decide").click()
        expect(page.locator("h1")).to_have_text("2 findings changed")
        assert {one.state for one in database.findings()} == {"reported"}
        page.get_by_role("button", name="Undo this decision").click()
        expect(page.locator("h1")).to_have_text("2 findings changed back")
        assert {one.id: one.state for one in database.findings()} == {CHUNK.key: "new", ROLL.key: "triaged"}
        page.get_by_role("link", name="Back to the list").click()
        expect(page.locator("tr[data-row]")).to_have_count(2)


def test_a_person_triages_a_list_with_keys_only(browser: Browser, database: Database) -> None:
    first, second = sorted((CHUNK.key, ROLL.key))
    with served(database) as address, opened(browser, address) as page:
        page.goto("/findings?sort=id")
        for key in ("j", "Enter"):
            page.keyboard.press(key)
        expect(page).to_have_url(f"{address}/findings/{first}")
        page.keyboard.press("s")
        expect(page.locator("select[name=state]")).to_be_focused()
        page.keyboard.type("by-design")
        page.keyboard.press("Tab")
        page.keyboard.type("torch documents it")
        page.keyboard.press("Enter")
        expect(page.locator("p.summary .pill")).to_have_text("by-design")
        assert database.get(first).history[-1].why == "torch documents it"
        page.keyboard.press("n")
        expect(page).to_have_url(f"{address}/findings/{second}")
        page.keyboard.press("p")
        expect(page).to_have_url(f"{address}/findings/{first}")
        page.keyboard.press("n")
        expect(page).to_have_url(f"{address}/findings/{second}")
        page.keyboard.press("n")
        expect(page).to_have_url(f"{address}/findings?sort=id")
        page.goto(f"/findings/{second}")
        page.keyboard.press("u")
        expect(page).to_have_url(f"{address}/findings?sort=id")
        page.keyboard.press("n")
        expect(page).to_have_url(f"{address}/findings?sort=id")


def test_a_page_that_loads_itself_again_keeps_the_place(browser: Browser, database: Database) -> None:
    again = "htmx.ajax('GET', '/', {target: '#live', select: '#live', swap: 'outerHTML'})"
    with served(database) as address, opened(browser, address) as page:
        page.goto("/")
        page.keyboard.press("j")
        focused = page.locator(f"#row-{CHUNK.key}")
        expect(focused).to_be_focused()
        page.evaluate("document.querySelector('#live').dataset.before = '1'")
        page.evaluate(again)
        expect(page.locator("#live[data-before]")).to_have_count(0)
        expect(focused).to_be_focused()


def test_a_page_follows_a_campaign(browser: Browser, database: Database) -> None:
    campaign = database.start_campaign(
        profile="captures", seed=7, generator="1", options={"budget": "100x"}, when=START
    )
    with served(database) as address, opened(browser, address) as page:
        page.goto("/campaigns")
        row = page.get_by_role("row", name="captures")
        expect(row).to_contain_text("100 cases")
        database.advance(campaign, 43, START)
        expect(row).to_contain_text("43")


def test_a_person_logs_in_with_the_token(browser: Browser, database: Database) -> None:
    with served(database, Access(valid=ada)) as address, opened(browser, address) as page:
        page.goto(f"/findings/{CHUNK.key}")
        expect(page.locator("form[method=post]")).to_have_count(0)
        page.get_by_role("link", name="Log in to decide").click()
        page.get_by_label("token").fill("secret")
        page.get_by_role("button", name="Log in").click()
        page.goto(f"/findings/{CHUNK.key}")
        page.get_by_role("button", name="Save state").click()
        expect(page.locator(".mode").get_by_role("button", name="Log out")).to_be_visible()


def test_pages_work_without_scripts(browser: Browser, database: Database) -> None:
    with served(database) as address:
        context = browser.new_context(base_url=address, java_script_enabled=False)
        page = context.new_page()
        page.goto("/findings")
        page.get_by_label("search").fill("native")
        page.get_by_role("button", name="Filter").click()
        page.get_by_role("row").get_by_role("link").first.click()
        page.locator("form[action$='/state']").get_by_label("state").select_option("triaged")
        page.get_by_role("button", name="Save state").click()
        context.close()
    assert database.get(CHUNK.key).state == "triaged"


def test_no_page_can_be_put_into_a_frame(browser: Browser, database: Database, tmp_path: Path) -> None:
    with served(database) as address:
        frame = tmp_path / "frame.html"
        frame.write_text(f"<iframe src='{address}/findings'></iframe>")
        page = browser.new_page()
        page.goto(f"file://{frame}")
        page.wait_for_load_state("networkidle")
        assert "Findings" not in page.frames[-1].content()
        page.close()


def test_pages_are_right_while_others_write(browser: Browser, database: Database, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    with served(database) as address, opened(browser, address) as page:
        page.goto("/findings?state=new&sort=id")
        with Database.open(f"sqlite:///{tmp_path / 'b.db'}") as other:
            database.put(other.findings())
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("tr[data-row]")).to_have_count(1)
