"""One finding as a row of a list, and parts that several pages share."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from ddefuzz.findings.model import Finding

Line = Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$", description="one line of text")]
"""What people type into a field."""


class Asked(BaseModel):
    """The query of every page."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["html", "json"] = Field(default="html", description="json: the same data as one document")


class Unreadable(msgspec.Struct, frozen=True):
    """How many rows of the database the page left out because they cannot be read, and what is wrong with the first."""

    rows: int = 0
    first: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in a list."""

    id: str
    title: str
    kind: str
    cause: str
    site: str
    language: str
    ops: tuple[str, ...]
    stages: tuple[str, ...]
    torch: tuple[str, ...]
    state: str
    priority: str
    owner: str
    labels: tuple[str, ...]
    steps: int | None
    confirmed: str
    count: int
    first_seen: str | None
    last_seen: str | None
    data_dependent: bool | None


def row_of(finding: Finding) -> Row:
    """The row of a finding."""
    return Row(
        id=finding.id,
        title=finding.title,
        kind=finding.kind,
        cause=finding.cause,
        site=str(finding.site),
        language=finding.site.language,
        ops=finding.ops,
        stages=finding.stages,
        torch=finding.torch_versions,
        state=finding.state,
        priority=finding.priority,
        owner=finding.owner,
        labels=finding.labels,
        steps=finding.steps,
        confirmed=str(finding.confirmed or ""),
        count=finding.count,
        first_seen=finding.first_seen,
        last_seen=finding.last_seen,
        data_dependent=finding.data_dependent,
    )
