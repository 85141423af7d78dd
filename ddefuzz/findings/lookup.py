"""Which finding a person means: by its id, the beginning of one, or an id that it had before."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from ddefuzz.errors import InputError


def named(prefix: str, former: Mapping[str, tuple[str, ...]]) -> str:
    """The one id of today that `prefix` names; `former` has, for each id, those that its finding had before.

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
    hint = f"; did you mean {' or '.join(near)}?" if near else "; `ddefuzz findings list` shows all"
    raise InputError(f"{prefix!r}: found no such finding{hint}")
