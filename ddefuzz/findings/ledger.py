"""The guard sites that one run reached, and all so far: one record per site, added up over cases; and the lines that
the hook for outside commands writes, with growth curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import add
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from ddefuzz.classify.anchor import expression_shape
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.signature import Site, SiteLanguage
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Observation
from ddefuzz.files import parse_json
from ddefuzz.instrument.events import Counterfactual, Language, Place

Answer: TypeAlias = Literal["False", "True", "raised"]
"""What came of an undecided guard: its fallback, or the error."""


class SiteVisit(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
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

    @property
    def name(self) -> str:
        """The site without a line, because lines differ by version of torch, and the method.

        If it raised, that is the blamed code: the place of a plain comparison is another one by version.
        """
        function = self.function or self.place.language
        site = f"{self.place.file}:{function}" if self.blamed is None else str(self.blamed)
        return f"{site} {self.call}".strip()


def reached(observation: Observation, failures: Iterable[Classification] = ()) -> tuple[SiteVisit, ...]:
    """What a run reached, each once, sorted. `failures` are those of this observation.

    The place of an error is that of the blamed frame. If the blamed frame is C++, the function identifies it,
    because the place of a plain comparison is the operator's header, or the Python code that gives C++ a
    tensor's sizes.
    """
    sites = set()
    for guard in observation.guards:
        answer: Answer = "True" if guard.fallback else "False"
        shape = expression_shape(guard.expression)
        sites.add(SiteVisit(guard.place, guard.function, guard.method, answer, guard.counterfactual, shape))
    raised = observation.raised
    errors = failures if raised is not None and not raised.withheld else ()
    for failure in (one for one in errors if one.signature.kind == "dde"):
        assert raised is not None
        site, place = failure.signature.site, raised.place
        if site.language == "C++":
            place = Place("C++", place.file, place.line)
        elif failure.frame is not None:
            place = Place("Python", failure.frame.file, failure.frame.line)
        shape = expression_shape(raised.expression)
        sites.add(SiteVisit(place, site.function or "", raised.method, "raised", shape=shape, blamed=site))
    return tuple(sorted(sites, key=repr))


Name = TypeVar("Name", bound=str)


class SiteKey(NamedTuple):
    """What identifies a record: the place and the function that evaluated the guard (empty for C++ fallbacks)."""

    language: Language
    file: str
    line: int
    function: str


def _key(way: SiteVisit) -> SiteKey:
    return SiteKey(way.place.language, way.place.file, way.place.line, way.function)


class SiteRecord(msgspec.Struct, frozen=True):
    """What is known about one guard site. The numbers count cases.

    `fallbacks` counts by the answer taken (`False`, `True`), `old` by the answer under size-oblivious semantics
    (`same`, `other`, `undecided`), `raised` counts data-dependent errors, and `cases` counts each case once.
    `blamed` are the call sites of the errors. `example` is the text of the first program that reached the site,
    in `stage`.
    """

    language: Language
    file: str
    line: int
    function: str
    call: str
    fallbacks: dict[Answer, int] = {}
    old: dict[Counterfactual, int] = {}
    raised: int = 0
    cases: int = 0
    blamed: tuple[str, ...] = ()
    example: str = ""
    stage: str = ""

    @property
    def key(self) -> SiteKey:
        """What makes this site this site."""
        return SiteKey(self.language, self.file, self.line, self.function)


class SiteCount(msgspec.Struct, frozen=True):
    """Distinct places that took a fallback, and distinct call sites of errors (by function), with the C++ ones
    of each.
    """

    fallback: int
    fallback_cxx: int
    dde: int
    dde_cxx: int


class Novel(NamedTuple):
    """What a case reached first."""

    fallback_sites: tuple[SiteKey, ...]
    dde_sites: tuple[str, ...]
    shapes: int

    def __bool__(self) -> bool:
        return bool(self.fallback_sites or self.dde_sites or self.shapes)


@dataclass(slots=True)
class Ledger:
    """The sites reached, and the counts that were not yet saved (`drain`). `dde_sites` has the language of each
    call site of an error.
    """

    fallback_sites: set[tuple[str, str, int]] = field(default_factory=set)
    dde_sites: dict[str, SiteLanguage] = field(default_factory=dict)
    shapes: set[tuple[SiteKey, Answer, str]] = field(default_factory=set)
    _waiting: dict[SiteKey, SiteRecord] = field(default_factory=dict)

    def novel(self, stages: Iterable[tuple[str, Iterable[SiteVisit]]]) -> Novel:
        """What a case is the first to reach, by what it reached in each stage. It is known from then on."""
        fallbacks: list[SiteKey] = []
        errors: list[str] = []
        before = len(self.shapes)
        for way in (one for _, reached in stages for one in reached):
            key = _key(way)
            if way.answer != "raised" and key[:3] not in self.fallback_sites:
                self.fallback_sites.add(key[:3])
                fallbacks.append(key)
            if way.blamed is not None and (blamed := str(way.blamed)) not in self.dde_sites:
                self.dde_sites[blamed] = way.blamed.language
                errors.append(blamed)
            self.shapes.add((key, way.answer, way.shape))
        return Novel(tuple(fallbacks), tuple(errors), len(self.shapes) - before)

    def add(self, stages: Iterable[tuple[str, Iterable[SiteVisit]]], program: str) -> Novel:
        """Count one case, by what it reached in each stage. Returns what it was the first to reach."""
        ways = [(stage, tuple(reached)) for stage, reached in stages]
        of_case: dict[SiteKey, SiteRecord] = {}
        for stage, way in ((stage, one) for stage, reached in ways for one in reached):
            raised, key = way.answer == "raised", _key(way)
            record = SiteRecord(
                *key,
                call=way.call,
                fallbacks={} if raised else {way.answer: 1},
                old={} if way.old is None else {way.old: 1},
                raised=int(raised),
                blamed=() if way.blamed is None else (str(way.blamed),),
                stage=stage,
            )
            of_case[key] = together(of_case[key], record, max) if key in of_case else record
        for key, record in of_case.items():
            counted = msgspec.structs.replace(record, cases=1, example=program)
            self._waiting[key] = together(self._waiting[key], counted) if key in self._waiting else counted
        return self.novel(ways)

    def count(self) -> SiteCount:
        """How many sites there are."""
        return SiteCount(
            fallback=len(self.fallback_sites),
            fallback_cxx=sum(language == "C++" for language, _, _ in self.fallback_sites),
            dde=len(self.dde_sites),
            dde_cxx=sum(language == "C++" for language in self.dde_sites.values()),
        )

    def drain(self) -> tuple[SiteRecord, ...]:
        """The counts since the last call, to be added to the saved ones."""
        waiting = tuple(self._waiting.values())
        self._waiting.clear()
        return waiting


def together(known: SiteRecord, more: SiteRecord, count: Callable[[int, int], int] = add) -> SiteRecord:
    """Two records of one site as one. `count` makes one number of two. The example is that of `known`."""

    def joined(left: dict[Name, int], right: dict[Name, int]) -> dict[Name, int]:
        return {name: count(left.get(name, 0), right.get(name, 0)) for name in sorted({*left, *right})}

    return msgspec.structs.replace(
        known,
        fallbacks=joined(known.fallbacks, more.fallbacks),
        old=joined(known.old, more.old),
        raised=count(known.raised, more.raised),
        cases=count(known.cases, more.cases),
        blamed=tuple(sorted({*known.blamed, *more.blamed})),
        example=known.example or more.example,
        stage=known.stage or more.stage,
    )


ENVIRONMENT = "DDEFUZZ_SITES"
"""Names the file of lines for a process that imports `ddefuzz.site_hook`."""


class ProcessLine(msgspec.Struct, frozen=True, tag="process", tag_field="line_of"):
    """A process that began or ended; `cpu_seconds` are its own so far, `time` is that of the day in seconds."""

    pid: int
    cpu_seconds: float
    time: float
    torch: str
    schema: str = "ddefuzz.outside/1"


class SiteLine(msgspec.Struct, frozen=True, tag="site", tag_field="line_of"):
    """A guard site when a process first reached it."""

    pid: int
    cpu_seconds: float
    time: float
    reached: SiteVisit


Line: TypeAlias = ProcessLine | SiteLine


class Step(msgspec.Struct, frozen=True):
    """How many sites were known after so many CPU seconds."""

    cpu_seconds: float
    sites: SiteCount


def read_lines(path: Path) -> list[Line]:
    """All lines of a file; the last may have been cut short by a kill. Raises InputError where it is no such file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}, expected what the hook wrote") from error
    lines = text.split(b"\n")
    return [
        parse_json(line, Line, f"{path}:{number}: {line[:60]!r}", "a site line")
        for number, line in enumerate(lines[:-1], 1)
    ]


def growth(lines: Iterable[Line], ledger: Ledger | None = None) -> Iterator[Step]:
    """The curve over the CPU seconds of all processes together, one step for each new site and one for the end. The
    sites are added to the ledger.

    CPU seconds before the hook was installed are left out: importing torch is not search.
    """
    spent: dict[int, float] = {}
    before: dict[int, float] = {}
    ledger = ledger or Ledger()
    for line in sorted(lines, key=lambda one: one.time):
        if isinstance(line, ProcessLine):
            before.setdefault(line.pid, line.cpu_seconds)
        spent[line.pid] = max(spent.get(line.pid, 0.0), line.cpu_seconds - before.get(line.pid, 0.0))
        novel = ledger.add([("outside", [line.reached])], "") if isinstance(line, SiteLine) else None
        if novel is None or novel.fallback_sites or novel.dde_sites:
            yield Step(round(sum(spent.values()), 3), ledger.count())
