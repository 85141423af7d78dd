"""What people type in a decision, and edit in the text form: versions, labels, URLs, dates and times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime

from ddefuzz.errors import InputError

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.(post|dev)\d+)?(\+[\w.]+)?", re.ASCII)
"""A version of torch as `torch.__version__` has it."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
"""A time as `model.stamp` writes it, in UTC."""

LABEL = re.compile(r"[+-]?[^\s+-]\S*")
"""A label to add (`+`, or nothing before it) or to remove (`-`)."""


def labelled(labels: tuple[str, ...], typed: tuple[str, ...]) -> tuple[str, ...]:
    """The labels after adding and removing the typed ones."""
    kept = set(labels)
    for one in typed:
        (kept.discard if one.startswith("-") else kept.add)(one.lstrip("+-"))
    return tuple(sorted(kept))


def checked_url(url: str, where: str = "") -> str:
    """The URL. Raises `InputError`, which begins with `where`, if it is none."""
    if not url.startswith(("https://", "http://")) or not url.isprintable() or " " in url:
        raise InputError(f"{where}URL: found {url[:300]!r}, expected one that starts with https://")
    return url


def check_typed(where: str, versions: Iterable[str], urls: Iterable[str]) -> None:
    """Raise `InputError`, which begins with `where`, unless all of them have their forms."""
    for version in versions:
        if not VERSION.fullmatch(version):
            raise InputError(f"{where}found {version[:60]!r}, expected a version of torch such as 2.14.0")
    for url in urls:
        checked_url(url, where)


def checked_time(text: str) -> str:
    """The time. Raises `ValueError` if it is none, which msgspec reports with the place in the record."""
    try:
        if TIME.fullmatch(text):
            datetime.fromisoformat(text)
            return text
    except ValueError:
        pass
    raise ValueError(f"found the time {text[:40]!r}, expected one such as 2025-01-31T12:00:00.000000Z")


def checked_date(text: str) -> str:
    """The date. Raises `ValueError` if it is none."""
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"found the date {text[:40]!r}, expected one such as 2027-01-31")
