"""Tokens of people, and the limits for attempts to log in."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ddefuzz.findings import tokens
from ddefuzz.findings.database import Database
from ddefuzz.web.app import make_app
from ddefuzz.web.security import FROM_ALL_ADDRESSES, FROM_ONE_ADDRESS, WINDOW_SECONDS, Access, Attempts
from tests.findings.arbitrary_findings import CHUNK, ROLL, START
from tests.web.served import ada, form_token

FIRST = CHUNK.key


class Clock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def client_at(database: Database, access: Access, address: str) -> TestClient:
    app = make_app(database, access)
    return TestClient(
        app, "http://localhost", follow_redirects=False, client=(address, 1), raise_server_exceptions=False
    )


def log_in(client: TestClient, token: str) -> int:
    return client.post("/login", data={"form_token": form_token(client, "/login"), "token": token}).status_code


def test_one_address_may_try_so_often_and_others_still_may(database: Database) -> None:
    clock = Clock()
    access = Access(valid=ada, attempts=Attempts(clock))
    client, other = (client_at(database, access, address) for address in ("192.0.2.1", "192.0.2.2"))
    assert [log_in(client, "wrong") for _ in range(FROM_ONE_ADDRESS)] == [403] * FROM_ONE_ADDRESS
    clock.now += 20.5
    sent = {"form_token": form_token(client, "/login"), "token": "secret"}
    refused = client.post("/login", data=sent)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "40")
    assert refused.text.count("found too many attempts to log in") == 1
    assert "try again in 40 s" in refused.text
    assert client.get("/findings").status_code == 200
    assert log_in(other, "secret") == 303
    assert "Log out" in other.get("/findings").text
    clock.now += 40
    assert log_in(client, "secret") == 303


def test_all_addresses_together_may_try_so_often(database: Database) -> None:
    clock = Clock()
    access = Access(valid=ada, attempts=Attempts(clock))
    early = client_at(database, access, "192.0.2.77")
    assert log_in(early, "secret") == 303
    for at in range(1, FROM_ALL_ADDRESSES):
        assert access.attempts.wait(f"198.51.100.{at}") == 0
    assert log_in(client_at(database, access, "192.0.2.1"), "secret") == 429
    sent = {"form_token": form_token(early), "state": "triaged"}
    assert early.post(f"/findings/{FIRST}/state", data=sent).status_code == 303, "a session goes on"
    clock.now += WINDOW_SECONDS
    assert log_in(client_at(database, access, "192.0.2.1"), "secret") == 303


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1:2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("192.0.2.1", "192.0.2.2", False),
        ("no address", "no address", True),
        ("", "", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    attempts = Attempts(Clock())
    assert [attempts.wait(one) for _ in range(FROM_ONE_ADDRESS)] == [0] * FROM_ONE_ADDRESS
    assert (attempts.wait(other) == WINDOW_SECONDS) == same


def test_what_is_remembered_of_attempts_is_bounded() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for at in range(5_000):
        clock.now += 0.01
        attempts.wait(f"{at}" * 1_000)
        assert len(attempts.latest) <= FROM_ALL_ADDRESSES
    assert max(len(address) for _, address in attempts.latest) <= 40


def test_a_decision_has_the_name_of_its_token_and_a_revoked_one_ends(database: Database, tmp_path: Path) -> None:
    access = Access(by="server", valid=lambda: database.read(tokens.tokens))
    client, other = (client_at(database, access, "192.0.2.1") for _ in range(2))
    assert log_in(client, "anything") == 403
    ours = database.write(lambda session: tokens.add(session, "ada", START))
    theirs = database.write(lambda session: tokens.add(session, "bo", START))
    assert (log_in(client, ours), log_in(other, theirs)) == (303, 303)
    page = client.get(f"/findings/{FIRST}").text
    assert 'name="by"' not in page
    assert "ada <form" in page
    sent = {"form_token": form_token(client), "by": "somebody else"}
    assert client.post(f"/findings/{FIRST}/note", data={**sent, "text": "a"}).status_code == 303
    assert client.post("/findings/bulk", data={**sent, "ids": [FIRST, ROLL.key], "owner": "x"}).status_code == 200
    assert [note.who for note in database.get(FIRST).notes] == ["ada"]
    assert {database.get(name).history[-1].who for name in (FIRST, ROLL.key)} == {"ada"}
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as elsewhere:
        elsewhere.write(lambda session: tokens.revoke(session, "ada"))
        elsewhere.write(lambda session: tokens.add(session, "ada", START))
    assert client.post(f"/findings/{FIRST}/note", data={**sent, "text": "b"}).status_code == 403
    assert "Log in to decide" in client.get("/findings").text
    assert len(database.get(FIRST).notes) == 1
    assert "Log out" in other.get("/findings").text


def test_a_login_with_a_lost_database_is_said(database: Database, tmp_path: Path) -> None:
    access = Access(valid=lambda: database.read(tokens.tokens))
    client = client_at(database, access, "192.0.2.1")
    token = database.write(lambda session: tokens.add(session, "ada", START))
    assert log_in(client, token) == 303
    (tmp_path / "a.db").write_bytes(b"no database at all" * 500)
    database.close()
    answer = client.get("/findings")
    assert (answer.status_code, "The database cannot be used" in answer.text) == (503, True)
