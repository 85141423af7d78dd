"""Requests that schemathesis draws from the OpenAPI document: every answer is one that the document declares."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from ddefuzz.findings.database import Database
from ddefuzz.web.app import make_app
from ddefuzz.web.security import Access
from tests.findings.arbitrary_findings import CHUNK
from tests.web.served import client_of, form_token

pytestmark = pytest.mark.slow

EXAMPLES = 12
"""For each page and form, half of them with values that the document forbids."""

CHECKED = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


def test_every_answer_is_declared(database: Database) -> None:
    access = Access(by="ada")
    app = make_app(database, access)
    client = client_of(database, access)
    token = form_token(client)
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECKED]
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.app = app
    seen: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        drawn = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode))

        @given(case=drawn, own=st.booleans())
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        def check(case: Any, own: bool) -> None:
            if own and "finding_id" in case.path_parameters:
                case.path_parameters = {"finding_id": CHUNK.key}
            if isinstance(case.body, dict):
                case.body = {**case.body, "form_token": token}
            response = case.call(base_url="http://localhost", cookies=dict(client.cookies))
            case.validate_response(response, checks=checks)
            seen.setdefault(case.operation.label, set()).add(response.status_code)

        check()
    assert {label for label, statuses in seen.items() if statuses & {200, 303}} >= {
        *("GET /", "GET /findings", "GET /findings/{finding_id}", "GET /sites", "GET /versions", "GET /campaigns"),
        "POST /findings/{finding_id}/note",
    }
