"""The page where people type the tokens that are needed for writing."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from ddefuzz.web.rows import Line
from ddefuzz.web.security import FROM_ALL_ADDRESSES, FROM_ONE_ADDRESS, WINDOW_SECONDS, Access


class LoginForm(BaseModel):
    """The token that `ddefuzz tokens add` printed."""

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
    return LoginPage(access.valid is not None, access.read_only)


def log_in(access: Access, session: str, form: LoginForm, address: str) -> str:
    """A new session, which may write. Raises an error for a wrong token, and for too many attempts."""
    seconds = access.attempts.wait(address)
    if seconds:
        raise HTTPException(
            429,
            f"found too many attempts to log in, expected at most {FROM_ONE_ADDRESS} from one address and "
            f"{FROM_ALL_ADDRESSES} in all within {WINDOW_SECONDS} s: try again in {seconds} s",
            {"Retry-After": str(seconds)},
        )
    renewed = access.log_in(session, form.token.strip())
    if renewed is None:
        raise HTTPException(403, "token: found another one, expected one that `ddefuzz tokens add` printed")
    return renewed
