"""The oracle of key functions: the key of a tensor distinguishes what a cache of kernels has to, and no more."""

from __future__ import annotations

from collections.abc import Mapping

from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.expected import Expected
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.keyed import Keyed
from ddefuzz.execute.protocol import KEY, Runner
from ddefuzz.keys.case import PropertyName
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, unknown

KIND_OF: Mapping[PropertyName, Kind] = {
    "gives-a-key": "no-key",
    "adds-no-guard": "key-guards",
    "tells-apart": "key-confuses",
    "shares": "key-splits",
    "holds-no-tensor": "key-holds-tensor",
    "same-in-other-process": "key-differs-by-process",
}
"""The kind of failure for each property that a key function violates."""


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report the property that the tensors of a case violate."""
    keyed = seen.observation.keyed
    if keyed is None or not keyed.why:
        return ()
    return (Failure(KIND_OF[keyed.violates], seen.observation, f"{keyed.why}: {', '.join(keyed.tensors)}"),)


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The key function. The anchor is what it confuses, or its line that asks."""
    del runner
    keyed = failure.observation.keyed
    if keyed is None:
        return unknown(seen)
    place = Site("Python", keyed.defined.file, keyed.defined.function)
    return Located(place, keyed.asked or keyed.defined, keyed.part or keyed.violates)


def wrong_of(keyed: Keyed) -> str:
    """What is wrong, without what differs between versions of torch: of an error, its class."""
    return keyed.why.partition(": ")[0]


def keep(failure: Failure) -> Failure:
    """The whole failure: it has no calls of a captured program."""
    return failure


def expected(classified: Classified, same_program: bool) -> Expected:
    """By what is wrong with the keys of the tensors a script recognizes it."""
    del same_program
    keyed = classified.failure.observation.keyed
    if keyed is None:
        raise InputError("found no keys in its stored failure, expected those of a key function")
    return Expected("by_key", {"violates": keyed.violates, "wrong": wrong_of(keyed)})


KINDS: Mapping[Kind, KindRow] = {
    kind: KindRow(meaning, title, locate, expected, "wrong-key", about_data=kind == "key-guards")
    for kind, meaning, title in (
        (
            "no-key",
            "a key function raises for a tensor, or gives one tensor two keys, or a key that cannot be hashed",
            "{site} gives no key: {evidence}",
        ),
        (
            "key-guards",
            "a key function adds a guard on unbacked sizes, or fails because it asks for one",
            "{site} guards: {evidence}",
        ),
        (
            "key-confuses",
            "a key function gives equal keys to tensors for which a kernel may have to differ",
            "{site} does not distinguish {anchor}: {evidence}",
        ),
        (
            "key-splits",
            "a key function gives different keys to tensors for which one kernel is enough",
            "{site} distinguishes {anchor}: {evidence}",
        ),
        ("key-holds-tensor", "a key keeps its tensor alive", "{site} keeps the tensor alive: {evidence}"),
        (
            "key-differs-by-process",
            "the text of a key differs between two processes",
            "{site} gives another key in another process: {evidence}",
        ),
    )
}

ORACLE = Oracle("keys", KINDS, judge, keep=keep, stages=(KEY,), by_default=False)
