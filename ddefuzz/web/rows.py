"""Parts of queries and records that several pages share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Line = Annotated[str, Field(max_length=300, pattern=r"^[^\x00-\x1f\x7f]*$", description="one line of text")]
"""What people type into a field."""


def among(*values: str) -> tuple[AfterValidator, Any]:
    """Accepts these values and no other."""

    def check(value: str) -> str:
        if value and value not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return value

    return AfterValidator(check), Field(json_schema_extra={"enum": ["", *values]})


class Asked(BaseModel):
    """The query of every page."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["html", "json"] = Field(default="html", description="json: the same data as one document")


class Unreadable(msgspec.Struct, frozen=True):
    """How many rows of the database the page left out because they cannot be read, and what is wrong with the first."""

    rows: int = 0
    first: tuple[str, ...] = ()
