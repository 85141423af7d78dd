"""The ids of findings: the key of the signature with a number, and how people name a finding by a part of its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError


def id_of(key: str, sequence: int) -> str:
    """The id of the `sequence`-th finding (from 1) of a signature."""
    return key if sequence == 1 else f"{key}-{sequence}"


def sequence_of(finding_id: str, signature: Signature) -> int | None:
    """The inverse of `id_of`. None if this is not an id of this signature."""
    if finding_id == signature.key:
        return 1
    match = re.fullmatch(re.escape(signature.key) + r"-([2-9]|[1-9][0-9]{1,5})", finding_id)
    return int(match[1]) if match else None


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
