"""Who may read and write, and that text of findings never becomes markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from fastapi.testclient import TestClient

from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Finding
from ddefuzz.web.app import make_app
from ddefuzz.web.pages import PAGES
from ddefuzz.web.security import HEADERS, MOST_BYTES, Access, is_loopback
from tests.findings.arbitrary_findings import CHUNK, ROLL
from tests.web.served import HOSTILE, ada, client_of, form_token, hostile

FIRST = CHUNK.key


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text in scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_markup(page: str) -> None:
    """Only our own scripts, no handler, no style, no foreign address is loaded, no `javascript:`."""
    elements = Elements(page).found
    scripts = [attributes.get("src") for tag, attributes in elements if tag == "script"]
    assert scripts == ["/static/htmx.min.js", "/static/keys.js"]
    for tag, attributes in elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("src", "href", "action", "hx-get"):
            value = attributes.get(name) or "/"
            loads = tag != "a"
            assert value.startswith(("/", "#") if loads else ("/", "#", "https://", "http://")), (tag, value)
            assert not (loads and value.startswith("//"))
        assert tag not in ("style", "iframe", "object", "embed", "base")
        if tag == "img":
            assert attributes["src"] == "/static/icon.svg"


def test_text_of_findings_is_never_markup(database: Database) -> None:
    database.put([hostile(database.get(FIRST))])
    client = client_of(database)
    for page in PAGES:
        answer = client.get(
            page.path.format(finding_id=FIRST), params={"file": HOSTILE} if "source" in page.path else {}
        )
        assert answer.status_code == (404 if "source" in page.path else 200), answer.text
        check_markup(answer.text)
    assert HOSTILE.replace("{{7*7}}", "") not in client.get(f"/findings/{FIRST}").text
    for path in (f"/findings?q={HOSTILE}", f"/findings?kind={HOSTILE}", f"/{HOSTILE}", f"/findings/{HOSTILE}"):
        check_markup(client.get(path).text)
    token = form_token(client)
    done = client.post(
        "/findings/bulk",
        data={"form_token": token, "ids": [ROLL.key], "owner": HOSTILE, "by": HOSTILE, "back": HOSTILE},
    )
    assert done.status_code == 200
    check_markup(done.text)


def test_no_page_has_characters_that_a_reader_does_not_see(database: Database) -> None:
    unseen = "a\x1b[31m\u202eb"
    finding = hostile(database.get(FIRST))
    made = msgspec.json.encode(finding).decode().replace("alert", r"a\u001b[31m\u202eb")
    read = msgspec.json.decode(made, type=Finding)
    database.put([msgspec.structs.replace(read, labels=())])  # a label with such characters is refused
    for language, file in (("Python", f"torch/{unseen}.py"), ("C++", f"{unseen}.cpp")):
        site = {"language": language, "file": file, "line": 1, "function": unseen, "call": unseen}
        database.add_sites("2.13.0", [SiteRecord(**site, raised=1, cases=1, blamed=(), example="", stage="export")])  # type: ignore[arg-type]
    client = client_of(database)
    shown = 0
    for page in PAGES:
        if "source" not in page.path:
            answer = client.get(page.path.format(finding_id=FIRST))
            text = answer.text
            assert answer.status_code == 200
            assert not {"\x1b", "\u202e"} & {*text}, page.path
            shown += r"\u202eb" in text
    assert shown >= 3


def test_every_answer_has_the_headers(reading: TestClient) -> None:
    for path in ("/findings", f"/findings/{FIRST}?format=json", "/nothing", "/static/style.css", "/findings?page=x"):
        headers = reading.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert reading.get("/findings", headers={"Host": "evil.example"}).headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("10.1.2.3", 200),
        ("fuzz.example.org", 200),
        ("FUZZ.example.org:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil@localhost", 400),
        ("localhost/evil", 400),
        ("localhost:port", 400),
        ("", 400),
        ("[", 400),
        ("localhost:999999", 400),
        ("a" * 301, 400),
    ],
)
def test_only_known_hosts_are_answered(reading: TestClient, host: str, status: int) -> None:
    assert reading.get("/findings", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_forms_of_other_sites_are_rejected(database: Database, headers: dict[str, str]) -> None:
    client = client_of(database)
    sent = {"form_token": form_token(client), "state": "triaged"}
    assert client.post(f"/findings/{FIRST}/state", data=sent, headers=headers).status_code == 403
    assert database.get(FIRST).state == "new"
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.post(f"/findings/{FIRST}/state", data=sent, headers=own).status_code == 303


def test_a_form_needs_the_token_of_its_session(database: Database) -> None:
    client, other = client_of(database), client_of(database)
    foreign = form_token(other)
    for sent in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": "é"}):
        for path, more in ((f"/findings/{FIRST}/undo", {}), ("/findings/bulk", {"ids": FIRST, "owner": "x"})):
            assert client.post(path, data={**sent, **more, "why": ""}).status_code == 403, (path, sent)
    again = form_token(client)
    client.cookies.clear()
    assert client.post(f"/findings/{FIRST}/state", data={"form_token": again, "state": "triaged"}).status_code == 403
    assert database.get(FIRST).state == "new"


def test_the_session_cookie_is_hidden_from_scripts_and_other_sites(database: Database) -> None:
    cookie = client_of(database).get("/findings").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_read_only_has_no_forms_and_accepts_none(database: Database) -> None:
    client = client_of(database, Access(read_only=True))
    for path in ("/findings", f"/findings/{FIRST}"):
        page = client.get(path).text
        assert 'method="post"' not in page
        assert "read only" in page
    for path in (f"/findings/{FIRST}/undo", "/findings/bulk"):
        answer = client.post(path, data={"form_token": "x"})
        assert (answer.status_code, "--read-only" in answer.text) == (403, True)


def test_a_token_is_needed_for_writing_only(database: Database) -> None:
    client = client_of(database, Access(valid=ada))
    page = client.get(f"/findings/{FIRST}")
    assert "Log in to decide" in page.text
    assert 'method="post"' not in page.text
    token = form_token(client, "/login")
    sent = {"form_token": token, "state": "triaged"}
    assert client.post(f"/findings/{FIRST}/state", data=sent).status_code == 403
    for wrong in ("", "Secret", "secret2", "é"):
        assert client.post("/login", data={"form_token": token, "token": wrong}).status_code == 403
    assert client.post("/login", data={"form_token": "x", "token": "secret"}).status_code == 403
    assert client.post("/login", data={"form_token": token, "token": "secret"}).status_code == 303
    assert "Log out" in client.get("/findings").text
    assert client.post(f"/findings/{FIRST}/state", data=sent).status_code == 403, "the form of the session before"
    sent["form_token"] = form_token(client)
    assert client.post(f"/findings/{FIRST}/state", data=sent).status_code == 303
    assert "Log in to decide" in client_of(database, Access(valid=ada)).get("/findings").text


def test_a_login_renews_the_session(database: Database) -> None:
    """A person who put a session of theirs into the browser of somebody else gains nothing when that one logs in."""
    access = Access(valid=ada)
    planted = "p" * 43
    victim, attacker = client_of(database, access), client_of(database, access)
    for client in (victim, attacker):
        client.cookies.set(access.cookie, planted, domain="localhost.local", path="/")
    token = form_token(victim, "/login")
    assert token == form_token(attacker, "/login"), "both have the planted session"
    answer = victim.post("/login", data={"form_token": token, "token": "secret"})
    assert (answer.status_code, planted in answer.headers["set-cookie"]) == (303, False)
    assert victim.cookies[access.cookie] not in ("", planted)
    assert list(access.writers) == [victim.cookies[access.cookie]]
    assert "Log out" in victim.get("/findings").text
    assert "Log out" not in attacker.get("/findings").text
    sent = {"form_token": token, "state": "triaged"}
    assert attacker.post(f"/findings/{FIRST}/state", data=sent).status_code == 403
    again = {"form_token": form_token(victim), "token": "secret"}
    assert victim.post("/login", data=again).status_code == 303
    assert list(access.writers) == [victim.cookies[access.cookie]], "the session before has ended"


def test_a_logout_ends_the_session(database: Database) -> None:
    access = Access(valid=ada)
    client = client_of(database, access)
    client.post("/login", data={"form_token": form_token(client, "/login"), "token": "secret"})
    token, session = form_token(client), client.cookies[access.cookie]
    assert client.post("/logout", data={"form_token": "x"}).status_code == 403
    assert list(access.writers) == [session], "a form of another page logs nobody out"
    assert client.post("/logout", data={"form_token": token}).headers["location"] == "/login"
    assert (client.cookies[access.cookie] != session, list(access.writers)) == (True, [])
    assert "Log in to decide" in client.get("/findings").text
    client.cookies.set(access.cookie, session, domain="localhost.local", path="/")
    sent = {"form_token": token, "state": "triaged"}
    assert client.post(f"/findings/{FIRST}/state", data=sent).status_code == 403, "the session before has ended"


SECRET = "secret-of-the-test"


def test_the_token_is_in_no_page_and_no_address(database: Database) -> None:
    client = client_of(database, Access(valid=lambda: ada(SECRET)))
    for typed in ("wrong", SECRET):
        answer = client.post("/login", data={"form_token": form_token(client, "/login"), "token": typed})
        assert SECRET not in answer.text + str(answer.headers)
    assert answer.headers["location"] == "/findings"
    for path in ("/login", "/findings", f"/findings/{FIRST}", "/openapi.json", "/"):
        answer = client.get(path)
        assert SECRET not in answer.text + str(answer.headers)
    for wrong in ({"token": SECRET * 20}, {"token": SECRET, "x": SECRET}, {"token": f"{SECRET}\n"}):
        invalid = client.post("/login", data={"form_token": form_token(client), **wrong})
        assert (invalid.status_code, SECRET in invalid.text) == (422, False)
    token = form_token(client)
    missing = client.post(f"/findings/{FIRST}/link", data={"form_token": token})
    own = f'name="form_token" value="{token}"'  # that of the button to log out
    assert (missing.status_code, token in missing.text.replace(own, "")) == (422, False)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/..\\app.py",
        "/static//etc/passwd",
        "/static/style.css%00.py",
        "/findings/../app.py/script.py",
        "/findings/..%2f..%2fapp/script.py",
        "/findings/%2e%2e/script.py",
        "/sites/source?file=../secret.py",
        "/sites/source?file=torch/../secret.py",
        "/sites/source?file=torch/../../packages/secret.py",
        "/sites/source?file=/etc/passwd",
        "/sites/source?file=torch/_refs/__init__.py%00",
        "/sites/source?file=torch%5C..%5Csecret.py",
        "/sites/source?file=file:///etc/passwd",
    ],
)
def test_no_other_file_is_sent(reading: TestClient, path: str) -> None:
    answer = reading.get(path)
    assert answer.status_code in (404, 422), answer.text
    for part in ("secret = 1", "root:", "FastAPI("):
        assert part not in answer.text


def test_long_bodies_are_rejected(database: Database) -> None:
    client = client_of(database)
    token = form_token(client)
    long = {"form_token": token, "text": "x" * (MOST_BYTES + 1)}
    assert client.post(f"/findings/{FIRST}/note", data=long).status_code == 413
    chunks = client.post(f"/findings/{FIRST}/note", content=iter([b"text=x"]))
    assert chunks.status_code == 411


def test_an_error_of_ours_is_one_line(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(database)
    monkeypatch.setattr(Database, "read", lambda *_: 1 / 0)
    answer = client.get("/findings")
    assert (answer.status_code, "ZeroDivisionError" in answer.text, "Traceback" in answer.text) == (500, True, False)
    assert answer.headers.items() >= {name.lower(): value for name, value in HEADERS.items()}.items()


def test_a_lost_database_is_said(database: Database, tmp_path: Path) -> None:
    client = client_of(database)
    (tmp_path / "a.db").write_bytes(b"no database at all" * 500)
    database.close()
    answer = client.get("/findings?format=json")
    assert (answer.status_code, answer.json()["status"]) == (503, 503)


def test_nothing_is_written_where_only_reading_is_declared(database: Database) -> None:
    writing = {
        (route.path, method)  # type: ignore[attr-defined]
        for route in make_app(database, Access()).routes
        for method in getattr(route, "methods", None) or ()
        if method not in ("GET", "HEAD")
    }
    assert {method for _, method in writing} == {"POST"}
    assert all(path.startswith("/findings/") or path in ("/login", "/logout") for path, _ in writing)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("x.org", False),
    ],
)
def test_which_addresses_are_this_machine(host: str, own: bool) -> None:
    assert is_loopback(host) == own
