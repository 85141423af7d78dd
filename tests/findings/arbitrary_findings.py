"""Hypothesis strategies for findings in databases and text forms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import get_args

import msgspec
from hypothesis import strategies as st

from ddefuzz.answers.model import GIVEN, Answers, Control, ControlOutcome, PatchEvidence, Score, Tally
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site, Verdict
from ddefuzz.execute.protocol import EXPLICIT, STAGES, ExceptionInfo, Observation
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.model import (
    Confirmation,
    Finding,
    HistoryEntry,
    Note,
    Occurrence,
    Priority,
    Sighting,
    id_of,
    normalized,
    slim,
    stamp,
)
from ddefuzz.instrument.events import Frame, Place, RaisedError

START = datetime(2025, 1, 31, 12, tzinfo=UTC)

CHUNK = Signature("dde", Site("C++", None, "at::native::chunk"), "guard_int operator==")
ROLL = Signature("dde", Site("Python", "torch/_refs/__init__.py", "roll"), "a.numel() == 0")

PROGRAM = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.chunk(x, 2)
"""

OTHER_PROGRAM = PROGRAM.replace("chunk(x, 2)", "roll(x, 1)")

# Any text that a database and TOML can hold: PostgreSQL takes no NUL, UTF-8 no surrogates.
text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
urls = st.text("abc/?#%", max_size=9).map(lambda rest: f"https://example.org/{rest}")
times = st.integers(0, 5).map(lambda hours: stamp(START + timedelta(hours=hours)))


def failure_of(signature: Signature, expression: str = "Eq(u0, 0)") -> Failure:
    """A failure with raw frames."""
    frame = Frame("torch/_refs/__init__.py", 4_098, "roll", "a.numel() == 0", exact=True)
    raised = RaisedError(expression, "guard_bool", Place("Python", frame.file, frame.line), (frame,))
    error = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")
    return Failure(signature.kind, Observation("export", EXPLICIT, "fail", "", (error,), raised), expression)


def failures(signature: Signature) -> st.SearchStrategy[Failure]:
    """Failures as they are stored, of any expression."""
    return text.map(lambda expression: slim(failure_of(signature, expression)))


def sighting(
    signature: Signature = CHUNK, *, torch: str = "2.13.0", ops: tuple[str, ...] = ("torch.chunk",)
) -> Sighting:
    """A sighting as a campaign makes it."""
    return Sighting(
        classified=Classification(
            failure_of(signature),
            signature,
            "avoidable",
            "rule",
        ),
        verdict="fails",
        ops=ops,
        torch=torch,
        program=PROGRAM,
    )


def with_failure(seen: Sighting, failure: Failure) -> Sighting:
    """The sighting with another failure."""
    return msgspec.structs.replace(seen, classified=msgspec.structs.replace(seen.classified, failure=failure))


occurrences = st.builds(
    Occurrence,
    torch=st.sampled_from(["2.13.0", "2.15.0"]),
    stage=st.sampled_from(["export", "compile"]),
    semantics=st.just("explicit"),
    op=st.sampled_from(["", "torch.chunk", "torch.roll"]),
    verdict=st.sampled_from(["fails", "regressed"]),
    count=st.integers(1, 9),
    first_seen=times,
    last_seen=times,
    observed=st.none() | text.map(lambda expression: slim(failure_of(CHUNK, expression))),
)

outcomes: st.SearchStrategy[ControlOutcome] = st.sampled_from(get_args(ControlOutcome))
controls = st.builds(Control, static=outcomes, backed=outcomes)

scores = st.builds(Score, agree=st.integers(0, 9), differ=st.integers(0, 2), same=st.integers(0, 9))
tallies = st.builds(
    Tally,
    answer=st.sampled_from(GIVEN),
    programs=st.integers(0, 3),
    captures=st.integers(0, 3),
    clause=st.sampled_from(["", "Eq(u0, 1)"]),
    agrees=st.sampled_from([(), ("0", "random-1")]),
)
answers = st.builds(
    Answers,
    verdict=st.sampled_from(get_args(Verdict)),
    stage=st.sampled_from(STAGES),
    torch=st.just("2.13.0+cpu"),
    programs=st.integers(0, 3),
    tallies=st.lists(tallies, max_size=2).map(tuple),
    patch=st.none()
    | st.builds(
        PatchEvidence, form=st.just("guard_or_false"), code=st.just("guard_or_false(n)"), kept=scores, samples=scores
    ),
)

notes = st.builds(Note, when=times, who=text, text=text)
entries = st.builds(
    HistoryEntry, when=times, who=text, field=st.sampled_from(["state", "cause"]), before=text, after=text, why=text
)
programs = st.sampled_from([None, PROGRAM, OTHER_PROGRAM])
states: st.SearchStrategy[State] = st.sampled_from(["new", "triaged", "fixed", "wont-fix"])


@st.composite
def findings(draw: st.DrawFn, signatures: tuple[Signature, ...] = (CHUNK, ROLL), sequences: int = 3) -> Finding:
    """A finding that is no duplicate."""
    one = draw(st.sampled_from(signatures))
    minimal = draw(programs)
    return normalized(
        Finding(
            id=id_of(one.key, draw(st.integers(1, sequences))),
            signature=one,
            cause=draw(st.sampled_from(get_args(Cause))),
            given_title=draw(st.just("") | text),
            state=draw(states),
            owner=draw(st.just("") | text),
            priority=draw(st.sampled_from(get_args(Priority))),
            labels=tuple(draw(st.lists(st.sampled_from(["backward", "cpu"]), max_size=2))),
            expires=draw(st.sampled_from(["", "2027-01-31"])),
            known_in=tuple(draw(st.lists(st.sampled_from(["2.13.0", "2.15.0"]), max_size=1))),
            fixed_in=tuple(draw(st.lists(st.sampled_from(["2.13.0", "2.15.0"])))),
            occurrences=tuple(draw(st.lists(occurrences, max_size=3, unique_by=lambda seen: seen.place))),
            original=draw(programs),
            minimal=minimal,
            steps=draw(st.integers(0, 9)) if minimal else None,
            attempts=draw(st.integers(0, 99)) if minimal else None,
            confirmed=draw(st.none() | st.builds(Confirmation, k=st.integers(0, 3), n=st.just(3))),
            failure=draw(st.none() | failures(one)),
            shown=draw(st.none() | failures(one)),
            control=draw(st.none() | controls),
            answers=draw(st.none() | answers),
            former=tuple(draw(st.lists(st.sampled_from(["dde-0123456789", "dde-abcdef0123"]), max_size=2))),
            models=tuple(draw(st.lists(st.sampled_from(["bert", "llama"]), max_size=2))),
            links=tuple(draw(st.lists(urls, max_size=2))),
            notes=tuple(draw(st.lists(notes, max_size=2))),
            history=tuple(draw(st.lists(entries, max_size=2))),
        )
    )


@st.composite
def databases(draw: st.DrawFn) -> tuple[Finding, ...]:
    """Findings with different ids, some a duplicate of another; by id."""
    found = sorted(draw(st.lists(findings(), max_size=4, unique_by=lambda one: one.id)), key=lambda one: one.id)
    if len(found) > 1 and draw(st.booleans()):
        found[1] = msgspec.structs.replace(found[1], state="duplicate", duplicate_of=found[0].id)
    return tuple(found)
