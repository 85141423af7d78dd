"""The tokens with which people decide in the dashboard, one for each name. Functions for `Database.read` and `write`.

The database has the SHA-256 of a token. A slow hash is for passwords, which can be guessed: a token is 32 random bytes,
which cannot, so its hash tells nothing about it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import asdict
from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from ddefuzz.errors import InputError
from ddefuzz.findings.model import Token, stamp
from ddefuzz.findings.schema import TOKENS

LONGEST_NAME = 80
RANDOM_BYTES = 32


def add(session: Session, name: str, when: datetime) -> str:
    """A new token for a name, which is not stored and cannot be read again. Raises `InputError`."""
    if "://" in name:  # it is shown
        raise InputError("found a URL, expected the name of a person")
    if not name.isprintable() or not 0 < len(name.strip()) == len(name) <= LONGEST_NAME:
        raise InputError(f"found the name {name[:100]!r}, expected 1 to {LONGEST_NAME} printable characters")
    made = session.scalar(select(TOKENS.c.made).where(TOKENS.c.name == name))
    if made is not None:
        raise InputError(
            f"found a token of {name!r} made {made}, expected another name, or `ddefuzz tokens revoke` first"
        )
    token = secrets.token_urlsafe(RANDOM_BYTES)
    session.execute(insert(TOKENS).values(asdict(Token(name, digest_of(token), stamp(when)))))
    return token


def tokens(session: Session) -> tuple[Token, ...]:
    """All tokens that are valid now, by name."""
    columns = select(TOKENS.c.name, TOKENS.c.digest, TOKENS.c.made).order_by(TOKENS.c.name)
    return tuple(Token(str(name), str(digest), str(made)) for name, digest, made in session.execute(columns))


def revoke(session: Session, name: str) -> None:
    """Make the token of a name invalid. Raises `InputError` if it has none."""
    if session.scalar(delete(TOKENS).where(TOKENS.c.name == name).returning(TOKENS.c.name)) is None:
        raise InputError(f"found no token of {name[:100]!r}, expected a name that `ddefuzz tokens list` shows")


def digest_of(token: str) -> str:
    """What the database has of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def of(valid: Iterable[Token], typed: str) -> Token | None:
    """The token that somebody typed, None if it is not valid. The time that this takes does not tell how near it is."""
    digest = digest_of(typed).encode()
    matching = [token for token in valid if hmac.compare_digest(token.digest.encode(), digest)]
    return matching[0] if matching else None
