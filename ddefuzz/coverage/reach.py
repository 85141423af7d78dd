"""The guard sites that one run reached: where a guard took its fallback, and where a data-dependent error ended the
run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.anchor import expression_shape
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import Counterfactual, Place

Answer: TypeAlias = Literal["False", "True", "raised"]
"""What came of an undecided guard: its fallback, or the error."""


class Reached(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One way in which a run reached a guard site, counted once.

    `function` is the function that evaluated the guard, empty for a C++ place. `call` is the method of the
    guard. `old` is the answer under size-oblivious semantics if the guard took its fallback. `shape` is the
    expression without the names of its symbols and without numbers other than 0 and 1. `blamed` is the call
    site of an error.
    """

    place: Place
    function: str
    call: str
    answer: Answer
    old: Counterfactual | None = None
    shape: str = ""
    blamed: Site | None = None


def reached(observation: Observation, failures: Iterable[Classified] = ()) -> tuple[Reached, ...]:
    """What a run reached, each once, sorted. `failures` are those of this observation.

    The place of an error is that of the blamed frame. If the blamed frame is C++, the function identifies it,
    because the place of a plain comparison is the operator's header, or the Python code that gives C++ a
    tensor's sizes.
    """
    found = {
        Reached(
            guard.place,
            guard.function,
            guard.method,
            "True" if guard.fallback else "False",
            guard.counterfactual,
            expression_shape(guard.expression),
        )
        for guard in observation.guards
    }
    raised = observation.raised
    if raised is not None and not raised.withheld:
        for failure in failures:
            if failure.signature.kind != "dde":
                continue
            site, place = failure.signature.site, raised.place
            if site.language != "C++" and failure.frame is not None:
                place = Place("Python", failure.frame.file, failure.frame.line)
            elif site.language == "C++":
                place = Place("C++", place.file, place.line)
            found.add(
                Reached(
                    place,
                    site.function or "",
                    raised.method,
                    "raised",
                    shape=expression_shape(raised.expression),
                    blamed=site,
                )
            )
    return tuple(sorted(found, key=repr))
