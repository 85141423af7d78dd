"""The pages of findings, as HTML and as JSON, and their forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import set_state
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Progress, Result, stamp
from ddefuzz.findings.textform import read_finding
from ddefuzz.versions.model import program_key
from ddefuzz.web.app import make_app
from ddefuzz.web.campaigns import ON_A_PAGE, CampaignsQuery, campaigns_page
from ddefuzz.web.findings import saved_filter, url_of
from ddefuzz.web.pages import PAGES
from ddefuzz.web.security import Access
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting
from tests.web.served import BY, client_of, form_token, hostile

FIRST, SECOND = CHUNK.key, ROLL.key


@pytest.fixture
def client(database: Database) -> TestClient:
    return client_of(database)


def paths() -> list[str]:
    source = {"/sites/source": "/sites/source?file=torch/_refs/__init__.py"}
    return [source.get(page.path, page.path.format(finding_id=FIRST)) for page in PAGES]


@pytest.mark.parametrize("path", paths())
def test_every_page_is_html_and_json_that_fits_the_schema(reading: TestClient, path: str) -> None:
    page = reading.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), page.text
    assert page.text.count("<main ") == page.text.count("</main>") == page.text.count("<h1>") == 1
    document = reading.get(path + ("&" if "?" in path else "?") + "format=json")
    assert (document.status_code, document.headers["content-type"]) == (200, "application/json")
    described = reading.get("/openapi.json").json()
    declared = next(row for row in PAGES if row.path.format(finding_id=FIRST) == path.partition("?")[0])
    content = described["paths"][declared.path]["get"]["responses"]["200"]["content"]
    schema = {**content["application/json"]["schema"], "components": described["components"]}
    assert list(Draft202012Validator(schema).iter_errors(document.json())) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, {FIRST, SECOND}),
        ({"q": "roll"}, {SECOND}),
        ({"q": "seen model"}, {SECOND}),
        ({"q": "ROLL chunk"}, set()),
        ({"state": "triaged"}, {SECOND}),
        ({"state": ["triaged", "new"]}, {FIRST, SECOND}),
        ({"state": "", "kind": "", "cause": "", "stage": ""}, {FIRST, SECOND}),
        ({"oracle": "capture"}, {FIRST, SECOND}),
        ({"oracle": "agreement"}, set()),
        ({"oracle": "agreement", "kind": "dde"}, set()),
        ({"kind": "dde", "cause": "avoidable", "stage": "export"}, {FIRST, SECOND}),
        ({"torch": "2.15.0"}, {SECOND}),
        ({"op": "torch.r*"}, {SECOND}),
        ({"site": "at::native::*"}, {FIRST}),
        ({"per": "1", "sort": "id", "page": "2"}, {max(FIRST, SECOND)}),
        ({"page": "9"}, set()),
        ({"state": "fixed"}, set()),
    ],
)
def test_filters_select(reading: TestClient, query: dict[str, Any], expected: set[str]) -> None:
    found = reading.get("/findings", params={**query, "format": "json"})
    assert found.status_code == 200, found.text
    assert {row["id"] for row in found.json()["rows"]} == expected
    page = reading.get("/findings", params=query).text
    assert {name for name in (FIRST, SECOND) if f'href="/findings/{name}"' in page} == expected


def test_sites_are_those_of_the_source_and_of_the_runs(reading: TestClient) -> None:
    (file,) = reading.get("/sites?format=json").json()["files"]
    numbers = {name: file[name] for name in ("file", "listed", "reached", "unlisted", "raised")}
    assert numbers == {"file": "torch/_refs/__init__.py", "listed": 2, "reached": 1, "unlisted": 0, "raised": 1}
    unreached = reading.get("/sites?show=unreached&format=json").json()["sites"]
    assert [site["call"] for site in unreached] == ["guard_or_true"]
    source = reading.get("/sites/source?file=torch/_refs/__init__.py").text
    assert re.findall(r'class="source-line (\w+)" id="L(\d+)"', source) == [("warn", "5"), ("bad", "7")]


def test_a_running_campaign_has_a_rate_and_what_is_left(database: Database) -> None:
    now = START + timedelta(minutes=10)
    for seed, minutes, budget in ((1, 2, "600cpu"), (2, 10, "600cpu"), (3, 10, "1h"), (4, 10, "1000x")):
        number = database.start_campaign(
            profile="default", seed=seed, generator="1", options={"budget": budget, "shard": "1/1"}, when=START
        )
        for at in range(minutes):
            counts = {"cases": 100 * at, "fallback_sites": at, "dde_sites": at, "findings": at}
            progress = Progress(
                when=stamp(START + timedelta(minutes=at)), seconds=60.0 * at, cpu_seconds=30.0 * at, **counts
            )
            database.add_progress(number, progress)
        database.advance(number, 100 * minutes, START + timedelta(minutes=minutes))
    lines = campaigns_page(database, CampaignsQuery(), now).campaigns
    assert [one.budget for one in lines] == ["1,000 cases", "60 min", "10 min of CPU time", "10 min of CPU time"]
    assert [(one.seed, one.state, one.per_minute, one.left) for one in lines] == [
        (4, "running", 100.0, "0 cases"),
        (3, "running", 100.0, "51 min"),
        (2, "running", 100.0, "5 min of CPU time"),
        (1, "interrupted", 100.0, ""),
    ]
    page = client_of(database).get("/campaigns").text
    assert page.count("<svg") == 4


def test_a_census_has_the_ops_of_a_sweep(database: Database) -> None:
    swept = {"op": "torch.chunk", "source": "catalogue", "explicit": "dde", "size_oblivious": "ok", "samples": 3}
    database.save_swept("key 1", "torch.chunk", json.dumps(swept))
    database.save_swept("key 1", "torch.roll", json.dumps({**swept, "op": "torch.roll", "explicit": "ok"}))
    client = client_of(database)
    document = client.get("/census?format=json").json()
    assert (document["sweeps"], document["statuses"]) == ({"key 1": 2}, {"dde": 1, "ok": 1})
    assert [row["op"] for row in client.get("/census?status=ok&format=json").json()["ops"]] == ["torch.roll"]
    assert "torch.<wbr>chunk" in client.get("/census").text
    database.save_swept("key 2", "torch.chunk", "{}")
    left_out = client.get("/census?format=json").json()["unreadable"]
    assert (left_out["rows"], "op of the sweep 'torch.chunk'" in left_out["first"][0]) == (1, True)


def test_a_finding_shows_what_decides(reading: TestClient) -> None:
    page = reading.get(f"/findings/{FIRST}").text
    for part in (
        '<span class="n">export</span>',
        "at::native::chunk",
        "2.13.0",
        "not reviewed yet",
        "Undo the latest decision",
    ):
        assert part in page, part
    record = reading.get(f"/findings/{FIRST}?format=json").json()
    assert record["finding"]["schema"] == "ddefuzz.finding/3"
    assert record["message"].startswith("GuardOnDataDependentSymNode: Could not guard")
    assert "GuardOnDataDependentSymNode: Could not guard" in page
    states = next(form["fields"][0]["choices"] for form in record["forms"] if form["name"] == "state")
    assert "fixed" in states
    assert "duplicate" not in states


def test_a_list_begins_with_what_is_open(client: TestClient, database: Database) -> None:
    database.decide(FIRST, lambda one: set_state(one, "by-design", BY))
    database.decide(SECOND, lambda one: set_state(one, "fixed", BY, fixed_in=("2.13.0", "2.15.0")))
    page = client.get("/findings?format=json").json()
    assert ([row["id"] for row in page["rows"]], page["closed"]) == ([], 2)
    assert '<a href="/findings?open=all">2 more</a> are closed' in client.get("/findings").text
    everything = client.get("/findings?open=all")
    assert "fixed in 2.13.0, 2.15.0</span>" in everything.text
    assert [row["id"] for row in client.get("/findings?state=by-design&format=json").json()["rows"]] == [FIRST]


def campaign_of(database: Database, *met: Signature, lines: range) -> int:
    """A campaign that has seen these findings, and has reached these lines of a file."""
    options: dict[str, object] = {"budget": "9x"}
    number = database.start_campaign(profile="captures", seed=1, generator="1", options=options, when=START)
    for signature in met:
        database.record(sighting(signature), START, number)
    for _ in range(2):  # what is there is not added again
        places = [SiteRecord("Python", "torch/_refs/__init__.py", line, "roll", "guard_or_false") for line in lines]
        database.add_sites("2.13.0", places, campaign=number)
    return number


def test_a_campaign_leads_to_what_it_found(client: TestClient, database: Database) -> None:
    number = campaign_of(database, CHUNK, lines=range(1))
    assert f'<a href="/findings?campaign={number}&amp;data=all&amp;open=all">1</a>' in client.get("/campaigns").text
    listed = client.get(f"/findings?campaign={number}&data=all&open=all&format=json").json()
    assert [row["id"] for row in listed["rows"]] == [FIRST]
    assert client.get("/findings?campaign=&format=json").json()["total"] == 2
    assert client.get("/findings?campaign=77&format=json").json()["total"] == 0


def test_two_campaigns_are_compared(client: TestClient, database: Database) -> None:
    first = campaign_of(database, CHUNK, ROLL, lines=range(5))
    second = campaign_of(database, ROLL, lines=range(3, 7))
    record = client.get(f"/campaigns/difference?first={first}&second={second}&format=json").json()
    assert (record["sites"], record["findings"]) == (2, 1)
    one, other = record["campaigns"]
    assert (one["campaign"]["id"], [key[2] for key in one["sites"]]) == (first, [0, 1, 2])
    assert (other["campaign"]["id"], [key[2] for key in other["sites"]]) == (second, [5, 6])
    assert ([row["id"] for row in one["findings"]], other["findings"]) == ([FIRST], [])
    page = client.get("/campaigns/difference").text
    assert f"Only campaign {first}" in page
    assert 'href="/sites/source?file=torch%2F_refs%2F__init__.py"' in page
    wrong = client.get(f"/campaigns/difference?first={first}&second=99&format=json")
    assert (wrong.status_code, wrong.json()["error"]) == (
        404,
        "found no campaign 99, expected one that /campaigns lists",
    )
    database.put([], [FIRST])  # what a campaign saw may be gone
    after = client.get(f"/campaigns/difference?first={first}&second={second}&format=json").json()
    assert after["campaigns"][0]["findings"] == []


def test_a_guard_in_cpp_has_its_line(client: TestClient, database: Database) -> None:
    finding = read_finding(Path(__file__).parents[2] / "findings" / "dde-18d559cf82")
    database.put([finding])
    page = client.get(f"/findings/{finding.id}").text
    url = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/TensorShape.cpp#L1087"
    assert f'<dt>guard in</dt><dd><a href="{url}" rel="noopener noreferrer external">aten/<wbr>src/' in page


def test_saved_filters_are_links_of_the_list(database: Database) -> None:
    filters = dict(map(saved_filter, ["mine?owner=ada&state=new&state=triaged", "all <b>?open=all"]))
    assert filters == {"mine": "state=new&state=triaged&owner=ada", "all <b>": "open=all"}
    client = TestClient(make_app(database, Access(by="ada"), filters), base_url="http://localhost")
    page = client.get("/findings?open=all").text
    assert '<a href="/findings?state=new&amp;state=triaged&amp;owner=ada">mine</a>' in page
    assert '<a href="/findings?open=all" aria-current="true">all &lt;b&gt;</a>' in page


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("mine", "found 'mine', expected NAME?QUERY"),
        ("?owner=ada", "expected NAME?QUERY"),
        ("mine?state=odd", "--filter mine: state.0: found 'odd': Value error, expected one of new, "),
        ("mine?wner=ada", "--filter mine: wner: found a value: Extra inputs are not permitted"),
    ],
)
def test_a_wrong_filter_is_one_line(typed: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        saved_filter(typed)


def test_sightings_have_a_plot_by_version(client: TestClient, database: Database) -> None:
    assert "Sightings over time" not in client.get(f"/findings/{FIRST}").text
    later = datetime.fromisoformat(START.isoformat()) + timedelta(days=2)
    database.record(sighting(CHUNK, torch="2.15.0"), later)
    page = client.get(f"/findings/{FIRST}").text
    assert "torch 2.13.0: 1 sighting" in page
    assert "torch 2.15.0: 1 sighting" in page


def test_a_finding_names_those_that_its_change_mends(client: TestClient, database: Database) -> None:
    assert client.get(f"/findings/{FIRST}?format=json").json()["same_change"] == []
    sibling = msgspec.structs.replace(CHUNK, anchor="another guard of the function")
    database.record(sighting(sibling), START)
    for name in (FIRST, sibling.key):  # what has to take SymInt in one C++ function is one change
        database.decide(name, lambda finding: msgspec.structs.replace(finding, cause="int-required"))
    page = client.get(f"/findings/{FIRST}?format=json").json()
    assert [one["id"] for one in page["same_change"]] == [sibling.key]
    assert page["similar"] == []


@pytest.mark.parametrize(
    ("torch", "tag"), [("2.13.0+cpu", "v2.13.0"), ("2.15.0", "v2.15.0"), ("2.16.0.dev20270101", "")]
)
def test_a_line_of_a_release_has_an_address(torch: str, tag: str) -> None:
    url = f"https://github.com/pytorch/pytorch/blob/{tag}/torch/_refs/__init__.py#L7"
    assert url_of("torch/_refs/__init__.py", 7, torch) == (url if tag else "")


def test_many_campaigns_are_on_several_pages(client: TestClient, database: Database) -> None:
    for seed in range(ON_A_PAGE + 3):
        database.start_campaign(profile="default", seed=seed, generator="1", options={}, when=START)
    first, second, third = (client.get(f"/campaigns?page={page}&format=json").json() for page in (1, 2, 3))
    assert [one["seed"] for one in second["campaigns"]] == [2, 1, 0]
    assert (len(first["campaigns"]), first["total"], first["pages"]) == (ON_A_PAGE, ON_A_PAGE + 3, 2)
    assert third["campaigns"] == []
    assert "page 2 of 2" in client.get("/campaigns?page=2").text
    assert "No campaigns on this page" in client.get("/campaigns?page=3").text


def test_results_of_the_matrix_are_shown_by_version(client: TestClient, database: Database) -> None:
    assert "No results yet" in client.get("/versions").text
    ran = [
        (FIRST, "2.10.0", program_key(database.get(FIRST)), "passes"),
        (FIRST, "2.9.0", "another", "fails"),
        (SECOND, "2.9.0", "another", "fails"),
        (SECOND, "2.10.0", "another", "fails"),
        ("gone", "2.9.0", "another", "sometimes"),
        ("corpus/a.py:net@export", "2.9.0", "another", "fails"),
    ]
    database.save_results([Result(*one, 1, 3, "why <b>", "2026-01-01T00:00:00.000000Z") for one in ran])
    matrix = client.get("/versions?format=json").json()["matrix"]
    assert (list(matrix["statuses"]), matrix["statuses"]["2.9.0"]) == (
        ["2.9.0", "2.10.0"],
        {"fails": 3, "sometimes": 1},
    )
    (line,) = matrix["lines"]
    assert (line["id"], line["title"], line["change"]) == (FIRST, database.get(FIRST).title, "fixed")
    assert {torch: (cell["status"], cell["outdated"]) for torch, cell in line["cells"].items()} == {
        "2.9.0": ("fails", True),
        "2.10.0": ("passes", False),
    }
    everything = client.get("/versions?show=all&format=json").json()["matrix"]
    assert {one["id"]: one["change"] for one in everything["lines"]} == {
        FIRST: "fixed",
        SECOND: "fails",
        "gone": "sometimes",
        "corpus/a.py:net@export": "fails",
    }
    page = client.get("/versions?show=all").text
    assert "1 of 3 runs" in page
    assert "not in this database any more" in page
    assert "why &lt;b&gt;" in page
    assert list(client.get(f"/findings/{FIRST}?format=json").json()["matrix"]) == ["2.9.0", "2.10.0"]
    assert "Under each version of torch" in client.get(f"/findings/{FIRST}").text


def test_the_beginning_of_an_id_leads_to_the_finding(reading: TestClient) -> None:
    moved = reading.get(f"/findings/{FIRST[:8]}?format=json")
    assert (moved.status_code, moved.headers["location"]) == (307, f"http://localhost/findings/{FIRST}?format=json")


def test_the_script_is_a_download(reading: TestClient) -> None:
    script = reading.get(f"/findings/{FIRST}/script.py")
    assert script.headers["content-type"].startswith("text/x-python")
    assert script.headers["content-disposition"] == f'attachment; filename="{FIRST}.py"'
    compile(script.text, "script.py", "exec")


FORMS: list[tuple[str, dict[str, str], dict[str, object]]] = [
    ("state", {"state": "fixed", "fixed_in": "2.14.0, 2.15.0"}, {"state": "fixed", "fixed_in": ("2.14.0", "2.15.0")}),
    ("state", {"state": "wont-fix", "expires": "2027-01-31"}, {"state": "wont-fix", "expires": "2027-01-31"}),
    ("details", {"cause": "user", "labels": "b a", "title": "T"}, {"labels": ("a", "b"), "given_title": "T"}),
    ("details", {"cause": "avoidable", "priority": "high", "owner": "bo"}, {"priority": "high", "owner": "bo"}),
    ("link", {"url": "https://example.org/1"}, {"links": ("https://example.org/1",)}),
    ("dup", {"of": SECOND}, {"state": "duplicate", "duplicate_of": SECOND}),
]


@pytest.mark.parametrize(("action", "fields", "expected"), FORMS)
def test_a_form_decides_and_undo_takes_it_back(
    client: TestClient, database: Database, action: str, fields: dict[str, str], expected: dict[str, object]
) -> None:
    before = database.get(FIRST)
    sent = {"form_token": form_token(client), "by": "bo", **fields}
    done = client.post(f"/findings/{FIRST}/{action}", data=sent)
    assert (done.status_code, done.headers.get("location")) == (303, f"/findings/{FIRST}"), done.text
    after = database.get(FIRST)
    assert {name: getattr(after, name) for name in expected} == expected
    assert {entry.who for entry in after.history} == {"bo"}
    client.post(f"/findings/{FIRST}/undo", data={"form_token": sent["form_token"]})
    undone = database.get(FIRST)
    assert {name: getattr(undone, name) for name in expected} == {name: getattr(before, name) for name in expected}


def test_a_form_that_is_older_than_another_decision_is_refused(client: TestClient, database: Database) -> None:
    page = client.get(f"/findings/{FIRST}").text
    [version] = set(re.findall(r'name="version" value="(\d+)"', page))
    sent = {"form_token": form_token(client), "version": version}
    none = client.post(f"/findings/{FIRST}/state", data={**sent, "version": "77", "state": "triaged"})
    assert (version, none.status_code) == ("0", 409)
    first = client.post(f"/findings/{FIRST}/state", data={**sent, "by": "bo", "state": "triaged", "why": "real"})
    assert first.status_code == 303
    for action, fields in (
        ("state", {"state": "wont-fix"}),
        ("details", {"owner": "eve", "cause": "user"}),
        ("undo", {}),
    ):
        stale = client.post(f"/findings/{FIRST}/{action}", data={**sent, "by": "eve", **fields})
        assert stale.status_code == 409
        assert "state new → triaged" in unescape(stale.text)
        assert "bo at 20" in stale.text
    assert database.get(FIRST).state == "triaged"
    assert len(database.get(FIRST).history) == int(version) + 1
    noted = client.post(f"/findings/{FIRST}/note", data={"form_token": sent["form_token"], "text": "adds only"})
    assert noted.status_code == 303


def test_a_list_that_is_older_than_another_decision_is_refused(client: TestClient, database: Database) -> None:
    [loaded] = re.findall(r'name="loaded" value="([^"]+)"', client.get("/findings?data=all").text)
    token = form_token(client)
    client.post(f"/findings/{SECOND}/state", data={"form_token": token, "by": "bo", "state": "flaky"})
    both = {"form_token": token, "ids": [FIRST, SECOND], "state": "reported"}
    stale = client.post("/findings/bulk", data={**both, "loaded": loaded})
    assert stale.status_code == 409
    assert "→ flaky" in unescape(stale.text)
    assert {one.id: one.state for one in database.findings()} == {FIRST: "new", SECOND: "flaky"}
    [loaded] = re.findall(r'name="loaded" value="([^"]+)"', client.get("/findings?data=all").text)
    again = {**both, "state": "", "priority": "high", "loaded": loaded}
    assert client.post("/findings/bulk", data=again).status_code == 200


def test_the_owner_is_by_default_who_decides(client: TestClient) -> None:
    assert re.search(r'name="owner" type="text" value="ada"', client.get(f"/findings/{FIRST}").text)


def test_a_note_and_the_end_of_a_duplicate(client: TestClient, database: Database) -> None:
    token = form_token(client)
    client.post(f"/findings/{FIRST}/note", data={"form_token": token, "text": "one\r\ntwo"})
    assert [(one.who, one.text) for one in database.get(FIRST).notes] == [("ada", "one\ntwo")]
    client.post(f"/findings/{FIRST}/dup", data={"form_token": token, "of": SECOND})
    client.post(f"/findings/{FIRST}/undup", data={"form_token": token})
    assert database.get(FIRST).state == "new"


def test_a_bulk_decision_is_one_or_none_and_can_be_undone(client: TestClient, database: Database) -> None:
    token = form_token(client)
    both = {"form_token": token, "ids": [FIRST, SECOND]}
    done = client.post("/findings/bulk", data={**both, "state": "reported", "labels": "x", "back": "q=a"})
    assert done.status_code == 200
    assert 'href="/findings?q=a"' in done.text
    assert {one.state for one in database.findings()} == {"reported"}
    client.post("/findings/bulk", data={**both, "undo": "1"})
    assert {one.id: one.state for one in database.findings()} == {FIRST: "new", SECOND: "triaged"}
    database.decide(SECOND, lambda one: one)
    refused = client.post("/findings/bulk", data={**both, "state": "flaky", "ids": [FIRST, SECOND, "dde-0"]})
    assert refused.status_code == 400
    assert "dde-0" in refused.text
    assert {one.id: one.state for one in database.findings()} == {FIRST: "new", SECOND: "triaged"}


BAD: list[tuple[str, int, str]] = [
    ("/sites?torch=9", 404, "expected one of 2.13.0"),
    ("/sites?part=odd", 422, "part"),
    ("/sites/source", 422, "file"),
    ("/sites/source?file=", 422, "file"),
    ("/sites/source?file=../secret.py", 404, "expected a Python file of the installed torch"),
    ("/sites/source?file=torch/../secret.py", 404, "expected a Python file of the installed torch"),
    ("/sites/source?file=/etc/passwd", 404, "expected a Python file of the installed torch"),
    ("/sites/source?file=torch/version.py", 404, "found no guard sites"),
    ("/census?sweep=x", 404, "sweep"),
    ("/census?status=odd", 404, "status"),
    ("/findings?page=0", 422, "page"),
    ("/findings?page=x", 422, "page: found 'x'"),
    ("/findings?state=odd", 422, "state"),
    ("/findings?kind=odd", 422, "expected one of dde"),
    ("/findings?nothing=1", 422, "nothing"),
    ("/findings?q=%00", 422, "q"),
    ("/findings?format=xml", 422, "format"),
    ("/findings/dde-none", 404, "dde-none"),
    ("/findings/%2e%2e%2fetc", 404, ""),
    ("/findings/..;", 422, "finding_id"),
    ("/static/../app.py", 404, ""),
    ("/static/%2e%2e%2fapp.py", 404, ""),
    ("/static/..%5capp.py", 404, ""),
    ("/nothing", 404, "/nothing"),
]


@pytest.mark.parametrize(("path", "status", "said"), BAD)
def test_what_is_wrong_is_said_in_one_line(reading: TestClient, path: str, status: int, said: str) -> None:
    answer = reading.get(path)
    assert answer.status_code == status
    assert said in unescape(answer.text)
    assert "Traceback" not in answer.text
    document = reading.get(path + ("&" if "?" in path else "?") + "format=json")
    if "format=xml" not in path:
        assert document.json()["schema"] == "ddefuzz.page.problem/1"
        assert "\n" not in document.json()["error"]


WRONG_FORMS: list[tuple[str, dict[str, str], str]] = [
    ("state", {"state": "fixed", "fixed_in": "soon"}, "expected a version of torch"),
    ("state", {"state": "triaged", "fixed_in": "2.14.0"}, "expected the state fixed"),
    ("state", {"state": "wont-fix", "expires": "2020-01-31"}, "found 2020-01-31, expected a day from 20"),
    ("state", {"state": "wont-fix", "expires": "soon"}, "expected one such as 2027-01-31"),
    ("details", {"cause": "user", "labels": "--"}, "labels"),
    ("link", {"url": "javascript:alert(1)"}, "https://"),
    ("note", {"text": " \n"}, "note"),
    ("dup", {"of": FIRST}, "same finding twice"),
    ("dup", {"of": "zzz"}, "zzz"),
    ("undup", {}, "expected a duplicate"),
    ("undo", {}, "no decision"),
]


@pytest.mark.parametrize(("action", "fields", "said"), WRONG_FORMS)
def test_a_form_that_cannot_be_done_changes_nothing(
    client: TestClient, database: Database, action: str, fields: dict[str, str], said: str
) -> None:
    before = database.get(FIRST)
    answer = client.post(f"/findings/{FIRST}/{action}", data={"form_token": form_token(client), **fields})
    assert (answer.status_code, database.get(FIRST)) == (400, before)
    assert said in unescape(answer.text)


ATOM = "{http://www.w3.org/2005/Atom}"


def test_a_feed_has_the_findings_of_a_query(client: TestClient, database: Database) -> None:
    database.decide(FIRST, hostile)
    answer = client.get("/feed.atom?data=all")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/atom+xml")
    feed = ET.fromstring(answer.text)
    entries = feed.findall(f"{ATOM}entry")
    ids = {entry.findtext(f"{ATOM}id") for entry in entries}
    assert ids == {f"urn:ddefuzz:finding:{one}" for one in (FIRST, SECOND)}
    for element in (feed, *entries):  # what RFC 4287 requires
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1
            assert element.findtext(f"{ATOM}{name}")
        datetime.fromisoformat(element.findtext(f"{ATOM}updated") or "")
    assert {element.tag.removeprefix(ATOM) for element in feed.iter()} == {
        *("feed", "title", "id", "updated", "author", "name", "link", "entry", "category", "summary")
    }
    [one] = ET.fromstring(client.get("/feed.atom?data=all&state=triaged").text).findall(f"{ATOM}entry")
    assert one.findtext(f"{ATOM}id") == f"urn:ddefuzz:finding:{SECOND}"
    link = one.find(f"{ATOM}link")
    assert link is not None
    assert client.get(link.get("href", "").replace("http://testserver", "")).status_code == 200
    assert client.get("/feed.atom?state=odd").status_code == 422


def test_an_empty_database_has_its_pages(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path / 'empty.db'}") as database:
        client = client_of(database)
        for page in PAGES:
            if "{" not in page.path and page.path != "/sites/source":
                assert client.get(page.path).status_code == 200, page.path


@pytest.mark.slow
def test_the_dashboard_does_not_import_torch() -> None:
    program = (
        "import sys, json, ddefuzz.web.app, ddefuzz.web.app; "
        "print(json.dumps([name for name in ('torch', 'sympy') if name in sys.modules]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert json.loads(ended.stdout) == []
