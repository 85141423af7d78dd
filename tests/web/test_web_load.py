"""The dashboard on a database to which others write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddefuzz.findings.database import Database
from tests.findings.arbitrary_findings import CHUNK
from tests.web.served import client_of, form_token

WRITER = """
import sys
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Progress, stamp
from tests.findings.arbitrary_findings import START, sighting

with Database.open(sys.argv[1]) as database:
    campaign = database.start_campaign(profile="default", seed=1, generator="1", options={"budget": "9x"}, when=START)
    print("begun", flush=True)
    for at in range(150):
        database.record(sighting(Signature("dde", Site("C++", None, f"at::native::f{at}"), "guard")), START)
        database.advance(campaign, at + 1, START)
"""


@pytest.mark.slow
def test_pages_and_decisions_while_a_process_records(database: Database, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    client = client_of(database)
    token = form_token(client)
    totals, decided = [], 0
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        while writer.poll() is None:
            totals.append(client.get("/findings?format=json").json()["total"])
            assert client.get("/").status_code == 200
            done = client.post(f"/findings/{CHUNK.key}/note", data={"form_token": token, "text": f"note {decided}"})
            assert done.status_code == 303, done.text
            decided += 1
    assert writer.returncode == 0
    assert totals == sorted(totals)
    assert client.get("/findings?format=json").json()["total"] == 152
    assert len(database.get(CHUNK.key).notes) == decided
