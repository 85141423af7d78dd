"""Alias and split rules for signatures, which a repository states in `findings/rules.toml`.

    [[alias]]                                   # these two signatures are one bug
    kind = "dde"
    site = "at::native::a"                      # as ddefuzz prints it
    anchor = "guard_bool operator=="
    to_site = "at::native::b"                   # default: the same; so are to_anchor and to_language
    reason = "a calls b, which the compiler inlines"
    source = "aten/src/ATen/native/A.cpp"       # what was read

    [[split]]                                   # this signature is two bugs
    kind = "dde"
    site = "at::native::c"
    anchor = "guard_int"
    pattern = "u0 // 2"                         # a regular expression, searched in the expression, else in the message;
                                                # of Rust's syntax, without look-around and references to groups
    name = "half"                               # added to the anchor where it is found
    reason = "the second read of a size is about another argument"
    source = "aten/src/ATen/native/C.cpp"

A rule applies to what classification says, so to failures of the future, and to stored ones by `findings reclassify`.
The rows of `classify.aliases` are for what ddefuzz itself knows about torch.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site, SiteLanguage
from ddefuzz.errors import InputError
from ddefuzz.files import is_there, read_text, read_toml, real_path
from ddefuzz.records import record_of

PLACE: Final = Path("findings") / "rules.toml"

_ENVIRONMENT: Final = os.environ  # user code may remove it from `os`

VARIABLE: Final = "_DDEFUZZ_RULES"
"""The variable by which the process that reads the rules tells its workers the file."""


class Alias(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Failures of one signature get another."""

    kind: str
    site: str
    anchor: str
    reason: str
    source: str
    to_site: str = ""
    to_anchor: str = ""
    to_language: SiteLanguage | None = None

    def applied(self, signature: Signature) -> Signature:
        """The other signature."""
        site = signature.site
        if self.to_site:
            language = self.to_language or site.language
            module, _, function = self.to_site.rpartition(":") if language == "Python" else ("", "", self.to_site)
            site = Site(language, module or None, function)
        return Signature(signature.kind, site, self.to_anchor or signature.anchor)


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Failures of one signature whose expression or message has the pattern get a signature of their own."""

    kind: str
    site: str
    anchor: str
    pattern: str
    name: str
    reason: str
    source: str


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a rules.toml."""

    alias: tuple[Alias, ...] = ()
    split: tuple[Split, ...] = ()

    def applied(self, signature: Signature, failure: Failure) -> Signature:
        """The signature by these rules: the first split that fits, else the alias."""
        named = _named(signature)
        raised = failure.observation.raised
        text = (raised.expression if raised is not None else "") or failure.evidence
        for split in self.split:
            if (split.kind, split.site, split.anchor) == named and _has(split.pattern)(text):
                return Signature(signature.kind, signature.site, f"{signature.anchor} ({split.name})")
        alias = next((one for one in self.alias if (one.kind, one.site, one.anchor) == named), None)
        return alias.applied(signature) if alias else signature


@cache
def _has(pattern: str) -> Callable[[str], bool]:
    """Whether a text has a pattern, in time that grows with the text: Rust's engine does not backtrack, Python's does.

    Raises ValueError for a pattern that the engine does not take.
    """
    # Imported here, because most repositories have no patterns.
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415

    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        raise ValueError(str(error).strip().rpartition("\n")[2].strip().removeprefix("error: ")) from error
    return lambda text: validator.isinstance_python(text.encode(errors="backslashreplace").decode())


def _named(signature: Signature) -> tuple[str, str, str]:
    return signature.kind, str(signature.site), signature.anchor


def read_rules(path: Path) -> Rules:
    """The rules of a file. Raises `InputError` for what is not one, contradicts another or is not reviewed."""
    rules = record_of(read_toml(path), Rules, path)
    sources = [(one.kind, one.site, one.anchor) for one in rules.alias]
    times = Counter(sources)
    for at, alias in enumerate(rules.alias):
        target = (alias.kind, alias.to_site or alias.site, alias.to_anchor or alias.anchor)
        where = f"{path}: alias {at + 1}"
        if times[sources[at]] > 1:
            raise InputError(f"{where}: found two aliases of {_text(sources[at])}, expected one")
        if target == sources[at]:
            raise InputError(f"{where}: found no other site or anchor, expected to_site or to_anchor")
        if target in times:
            raise InputError(
                f"{where}: found the alias {_text(target)} as its target, expected a signature without one"
            )
    for at, split in enumerate(rules.split):
        try:
            _has(split.pattern)
        except ValueError as error:
            where = f"{path}: split {at + 1}"
            raise InputError(
                f"{where}: found the pattern {split.pattern[:80]!r} ({error}), expected a regular expression"
            ) from error
        if not (split.pattern and split.name):
            raise InputError(f"{path}: split {at + 1}: found an empty pattern or name, expected text")
    reviewed = [(f"alias {at}", one.reason, one.source) for at, one in enumerate(rules.alias, 1)]
    reviewed += [(f"split {at}", one.reason, one.source) for at, one in enumerate(rules.split, 1)]
    for where, reason, source in reviewed:
        if not (reason.strip() and source.strip()):
            raise InputError(f"{path}: {where}: found no reason or no source, expected both: rules are reviewed")
    return rules


def _text(named: tuple[str, str, str]) -> str:
    kind, site, anchor = named
    return f"{kind} at {site} [{anchor}]"


def use_rules_of_this_folder() -> None:
    """Apply the rules of the current folder in this process and in the workers that it starts. Raises `InputError`."""
    os.environ.pop(VARIABLE, None)
    if is_there(PLACE):
        read_rules(PLACE)
        os.environ[VARIABLE] = str(real_path(PLACE))
    _rules_in.cache_clear()


def shared_rules() -> dict[str, str]:
    """The text of the rules that apply here, by the variable that names their file: for workers on other machines."""
    path = _ENVIRONMENT.get(VARIABLE, "")
    return {VARIABLE: read_text(Path(path))} if path else {}


def current() -> Rules:
    """The rules that apply in this process."""
    return _rules_in(_ENVIRONMENT.get(VARIABLE, ""))


@cache
def _rules_in(path: str) -> Rules:
    return read_rules(Path(path)) if path else Rules()
