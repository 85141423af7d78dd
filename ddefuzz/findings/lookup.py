"""Find the finding that a user names: by its id, by the beginning of its id, or by a former id."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from ddefuzz.errors import InputError


class UnknownFindingError(InputError):
    """No finding has this id, and none has a similar one."""


def named(prefix: str, former: Mapping[str, tuple[str, ...]]) -> str:
    """The one current id that `prefix` selects. `former` maps each current id to the former ids of its finding.

    Raises `InputError`, with suggestions.
    """
    became = {old: name for name, before in former.items() for old in before if old not in former}
    names = [*former, *became]
    if prefix in names:
        return became.get(prefix, prefix)
    fitting = [name for name in names if name.startswith(prefix) or f"-{prefix}" in name]
    meant = sorted({became.get(name, name) for name in fitting})
    if len(meant) == 1 and prefix:
        return meant[0]
    if fitting and prefix:
        raise InputError(f"{prefix!r}: found {len(fitting)} such findings, expected one of {', '.join(fitting[:5])}")
    near = get_close_matches(prefix, names, n=3, cutoff=0.4)
    if not near:
        raise UnknownFindingError(f"{prefix!r}: found no such finding")
    raise InputError(f"{prefix!r}: found no such finding; did you mean {' or '.join(near)}?")
