"""The page where a person types the token that is needed for writing."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from ddefuzz.web.rows import Line
from ddefuzz.web.security import Access


class LoginForm(BaseModel):
    """The token that `ddefuzz serve` printed."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""
    token: Line = ""


class LogoutForm(BaseModel):
    """The form of the button that logs out."""

    model_config = ConfigDict(extra="forbid")

    form_token: Line = ""


class LoginPage(msgspec.Struct, frozen=True):
    """Whether a token is needed, and whether writing is possible at all."""

    needs_token: bool
    read_only: bool
    schema: str = "ddefuzz.page.login/1"


def login_page(access: Access) -> LoginPage:
    """What the page says."""
    return LoginPage(bool(access.token), access.read_only)


def log_in(access: Access, session: str, form: LoginForm) -> str:
    """A new session, which may write. Raises an error for a wrong token."""
    renewed = access.log_in(session, form.token.strip())
    if renewed is None:
        raise HTTPException(403, "token: found another one, expected the one that `ddefuzz serve` printed")
    return renewed
