"""A dashboard on hand-made findings, without torch."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from fastapi.testclient import TestClient

from ddefuzz.answers.model import Control
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, changed, link, note, set_state
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Finding, HistoryEntry, Note, Token, stamp
from ddefuzz.findings.tokens import digest_of
from ddefuzz.web.app import make_app
from ddefuzz.web.security import Access
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, START, failure_of, sighting

BY = By("ada", START, "read the code")


def ada(token: str = "secret") -> tuple[Token, ...]:
    """The token of Ada, as `Access.valid` reads it."""
    return (Token("ada", digest_of(token), stamp(START)),)


HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
"""Text that would run if it were not escaped."""

HOSTILE_LABEL = HOSTILE.replace(" ", "/")
"""The same as one word, which a label may be."""


def filled(path: Path) -> str:
    """The URL of a database with two findings, one of them triaged."""
    url = f"sqlite:///{path}"
    with Database.open(url) as database:
        database.record(sighting(CHUNK), START)
        database.record(sighting(ROLL, ops=("torch.roll",), torch="2.15.0"), START)
        database.set_minimal(CHUNK.key, sighting().program or "", steps=1, attempts=5)
        database.set_confirmed(CHUNK.key, 1, 1, failure_of(CHUNK))
        database.set_control(CHUNK.key, Control("passes", "passes"))
        places = (("Python", "torch/_refs/__init__.py", 5), ("C++", "aten/src/ATen/native/TensorShape.cpp", 1))
        for language, file, line in places:
            site = {"language": language, "file": file, "line": line, "function": "roll", "call": "guard_or_false"}
            record = SiteRecord(**site, raised=1, cases=2, blamed=(str(ROLL.site),), example=PROGRAM, stage="export")  # type: ignore[arg-type]
            database.add_sites("2.13.0", [record])
        database.decide(ROLL.key, lambda one: note(set_state(one, "triaged", BY), "seen in a model", BY))
    return url


def hostile(finding: Finding) -> Finding:
    """The finding with markup in each field that may be any text."""
    failure = failure_of(CHUNK, HOSTILE)
    finding = changed(finding, By(HOSTILE, START, HOSTILE), given_title=HOSTILE, owner=HOSTILE, labels=(HOSTILE_LABEL,))
    finding = note(link(finding, "https://example.com/1", BY), HOSTILE, BY)
    occurrences = (msgspec.structs.replace(one, op=HOSTILE, semantics=HOSTILE) for one in finding.occurrences)
    return msgspec.structs.replace(
        finding,
        failure=failure,
        shown=failure,
        minimal=f"# {HOSTILE}",
        original=f"{HOSTILE}\n",
        occurrences=tuple(occurrences),
        notes=(*finding.notes, Note(stamp(START), HOSTILE, HOSTILE)),
        history=(*finding.history, HistoryEntry(stamp(START), HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)),
    )


def client_of(database: Database, access: Access | None = None) -> TestClient:
    """A client that does not follow redirects. An error of the server is an answer, not an exception."""
    app = make_app(database, access or Access(by="ada"))
    return TestClient(app, base_url="http://localhost", follow_redirects=False, raise_server_exceptions=False)


def form_token(client: TestClient, path: str = "/findings") -> str:
    """What a form of a page sends."""
    found = re.search(r'name="form_token" value="(\w+)"', client.get(path).text)
    assert found is not None
    return found[1]
