"""The records in the findings database: findings, where they were seen, their states and decisions, and campaigns.

Times are UTC in ISO 8601 (`2025-01-31T12:00:00.000000Z`), so sorting the text sorts by time. Collections are sets,
stored sorted and without repetitions (`normalized`), so that the result of merging two databases does not depend on
their order.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from ddefuzz.answers.model import Answers, Control, data_dependent
from ddefuzz.classify.anchor import abridged, shortened
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.chain import op_name
from ddefuzz.classify.evidence import called, failing_ops
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import RETRACES
from ddefuzz.findings.lifecycle import State
from ddefuzz.oracles.oracle import after
from ddefuzz.oracles.program import kept
from ddefuzz.oracles.table import own_stage, row_of
from ddefuzz.oracles.table import stages as every_stage

Record = TypeVar("Record", bound=msgspec.Struct)

SCHEMA = "ddefuzz.finding/3"

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The range of stored numbers. It is checked, because people edit the text form."""

MOST_SIGHTINGS = 10**12
"""The largest number of sightings of one occurrence. A database can add up millions of these."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A duration that is neither negative nor infinite."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
"""A time as `model.stamp` writes it, in UTC."""

TEMPORARY = "<temporary folder>"

_IN_PATH = r"""[^\s"'\\:,()\[\]]"""
"""A character of a path in a message."""

_PACKAGES = re.compile(rf"(?<!{_IN_PATH}){_IN_PATH}*/(?:site|dist)-packages/")
"""It begins at no place inside of a path, so its time grows with the text."""

MOST_OBSERVED = 48
"""The number of occurrences of one finding that keep their failure."""


def checked_time(text: str) -> str:
    """The time. Raises `ValueError` if it is none, which msgspec reports with the place in the record."""
    with suppress(ValueError):
        if TIME.fullmatch(text) and datetime.fromisoformat(text):
            return text
    raise ValueError(f"found the time {text[:40]!r}, expected one such as 2025-01-31T12:00:00.000000Z")


class Confirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`k` of `n` cold replays showed the same signature."""

    k: Number
    n: Number

    def __str__(self) -> str:
        return f"{self.k}/{self.n}"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One failure from a campaign. It is recorded before anything else is done with it.

    `ops` are the catalogue functions or aten ops that reach the site. `program` is the text form, None for user code.
    `verdict` is that of the stage: fails, regressed and so on.
    """

    classified: Classification
    verdict: str
    ops: tuple[str, ...]
    torch: str
    program: str | None

    @property
    def signature(self) -> Signature:
        """Which bug it is."""
        return self.classified.signature

    @property
    def cause(self) -> Cause:
        """Who has to change what."""
        return self.classified.cause

    @property
    def failure(self) -> Failure:
        """What was observed."""
        return self.classified.failure


def sighting(classified: Classification, program: str | None, verdict: str, torch: str) -> Sighting:
    """One sighting; `program` is None where there was none yet. Its ops are the functions of the program that lead to
    the site; of a captured program that is wrong, the op blamed.
    """
    site = classified.signature.site
    if classified.cause == "wrong-capture" and site.language == "op" and program:
        ops = tuple(name for name in called(program) if op_name(name) == site.function)[:1]
    else:
        ops = failing_ops(classified.failure.observation, program or "")
    return Sighting(classified=classified, verdict=verdict, ops=ops, torch=torch, program=program)


class Occurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sightings of a finding under one torch, stage, semantics and op. `verdict` is that of the latest one.

    `observed` is the failure of the first sighting with its raw frames (`slim`), so that later rules can classify it
    again. It is None beyond the first `MOST_OBSERVED` occurrences of a finding.
    """

    torch: str
    stage: str
    semantics: str
    op: str
    verdict: str
    count: Annotated[int, msgspec.Meta(ge=0, le=MOST_SIGHTINGS)]
    first_seen: str
    last_seen: str
    observed: Failure | None = None

    def __post_init__(self) -> None:
        checked_time(self.first_seen)
        checked_time(self.last_seen)

    @property
    def order(self) -> tuple[str, str, str, str, str, int, str, str, bytes]:
        """The key for sorting, by place. It is a total order, so merging does not depend on which record came first."""
        raw = b"" if self.observed is None else msgspec.json.encode(self.observed)
        return *self.place, self.verdict, self.count, self.first_seen, self.last_seen, raw

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The key of an occurrence. Sightings with the same key are one occurrence."""
        return self.torch, self.stage, self.semantics, self.op


class Note(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A person's note."""

    when: str
    who: str
    text: str

    def __post_init__(self) -> None:
        checked_time(self.when)


class HistoryEntry(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One change: `field` went from `before` to `after`. `why` is the reason that a person gave, else empty."""

    when: str
    who: str
    field: str
    before: str
    after: str
    why: str = ""

    def __post_init__(self) -> None:
        checked_time(self.when)


Priority: TypeAlias = Literal["", "high", "medium", "low"]
"""How soon a finding should be fixed. Empty if nobody has decided."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All data on one signature, which is the identity of the finding.

    `failure` is the first failure with its raw frames, without its guards and graph, so that later rules can classify
    it again. `minimal`, `steps` and `attempts` are None until the finding is minimized. `shown` is the failure of the
    smallest program, observed in a fresh process when it was confirmed. `control` has the results of its control runs.
    Both are unset until then. `answers` has the results of the experiment on its guard. `former` are the ids that this
    finding, or findings merged into it, had before the rules of classification changed. `given_title` is a person's
    title, else empty. `models` are the names of the models of a study (`ddefuzz study --db`) that meet it.

    `expires` is the date (ISO) until which a decision holds, empty for ever. `known_in` are the versions of torch for
    which it was made, empty for all. A campaign fails on the finding again after that date and in other versions.
    """

    id: str
    signature: Signature
    cause: Cause
    given_title: str = ""
    state: State = "new"
    duplicate_of: str | None = None
    fixed_in: tuple[str, ...] = ()
    owner: str = ""
    priority: Priority = ""
    labels: tuple[str, ...] = ()
    expires: str = ""
    known_in: tuple[str, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    original: str | None = None
    minimal: str | None = None
    steps: Number | None = None
    attempts: Number | None = None
    confirmed: Confirmation | None = None
    failure: Failure | None = None
    shown: Failure | None = None
    control: Control | None = None
    answers: Answers | None = None
    former: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    def __post_init__(self) -> None:
        with suppress(ValueError):
            if not self.expires or date.fromisoformat(self.expires).isoformat() == self.expires:
                return
        raise ValueError(f"found the date {self.expires[:40]!r}, expected one such as 2027-01-31")

    @property
    def kind(self) -> Kind:
        """The kind of failure."""
        return self.signature.kind

    @property
    def site(self) -> Site:
        """The code that evaluated the guard, or is blamed."""
        return self.signature.site

    @property
    def anchor(self) -> str:
        """What the code there is."""
        return self.signature.anchor

    @property
    def title(self) -> str:
        """A person's title if there is one, else a title made from op, site and expression."""
        if self.given_title:
            return self.given_title
        title = title_of(self.signature, self.cause, self.evidence, self.shown_ops)
        if ", out=" in (self.minimal or "") and (op := next(iter(self.shown_ops), "")) and title.startswith(op):
            title = f"{op} with out={title.removeprefix(op)}"
        if options := _OPTIONS.search(self.minimal or ""):
            title += f", with {options[1]}"
        if self.data_dependent is not False or self.control is None:
            return title
        return f"{title} (fails with {'static' if self.control.static == 'fails' else 'backed'} sizes, too)"

    @property
    def expression(self) -> str:
        """The expression that the failure could not decide, as torch prints it. Empty if the failure is not a guard."""
        raised = self.evidence.observation.raised if self.evidence is not None else None
        return raised.expression if raised is not None else ""

    @property
    def program_digest(self) -> str:
        """Equal for findings with the same smallest program, whose names minimizing makes alike. Empty without one."""
        return hashlib.sha256(self.minimal.encode()).hexdigest()[:12] if self.minimal is not None else ""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All that it stores."""
        stored = (self.failure, self.shown, *(seen.observed for seen in self.occurrences))
        return tuple(failure for failure in stored if failure is not None)

    @property
    def evidence(self) -> Failure | None:
        """The failure to display and replay: that of the smallest program, else the first one seen."""
        return self.shown or self.failure

    @property
    def stage(self) -> str | None:
        """The stage in which the smallest program was confirmed, else the first one in which the finding was seen."""
        return None if self.evidence is None else self.evidence.observation.stage

    @property
    def data_dependent(self) -> bool | None:
        """Whether the failure depends on data (see `control.model`). None if it was not judged."""
        return None if self.evidence is None else data_dependent(self.evidence, self.control)

    @property
    def shown_ops(self) -> tuple[str, ...]:
        """The function by which the smallest program reaches the site. If it is unknown, all functions that the program
        calls and that were seen to reach it.
        """
        program = self.minimal or self.original or ""
        known = failing_ops(self.evidence.observation, program) if self.evidence else ()
        return known or tuple(op for op in self.ops if not program or op in called(program))

    @property
    def ops(self) -> tuple[str, ...]:
        """The functions seen to reach the site."""
        return tuple(sorted({seen.op for seen in self.occurrences if seen.op}))

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in which it was seen to fail."""
        seen_in = {seen.stage for seen in self.occurrences}
        return tuple(stage for stage in every_stage() if stage in seen_in)

    @property
    def verdicts(self) -> dict[str, str]:
        """The latest verdict of each stage that was compared with size-oblivious semantics. The fake stage is not, and
        neither are the stages of one oracle alone.
        """
        in_time = sorted(self.occurrences, key=lambda seen: (seen.last_seen, seen.order))
        latest = {seen.stage: seen.verdict for seen in in_time if seen.verdict}
        return {stage: latest[stage] for stage in every_stage() if stage in latest and own_stage(stage) is None}

    @property
    def torch_versions(self) -> tuple[str, ...]:
        """The versions of torch in which it was seen."""
        return tuple(sorted({seen.torch for seen in self.occurrences}))

    @property
    def first_seen(self) -> str | None:
        """The time of the first sighting, None if there is none."""
        return min((seen.first_seen for seen in self.occurrences), default=None)

    @property
    def last_seen(self) -> str | None:
        """The time of the last sighting, None if there is none."""
        return max((seen.last_seen for seen in self.occurrences), default=None)

    @property
    def count(self) -> int:
        """The number of sightings."""
        return sum(seen.count for seen in self.occurrences)


class FindingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What lists show of a finding. The database has it next to the whole, so that lists need not read that."""

    id: str
    title: str
    signature: Signature
    cause: Cause
    ops: tuple[str, ...]
    stage: str | None
    stages: tuple[str, ...]
    torch: tuple[str, ...]
    state: State
    fixed_in: tuple[str, ...] = ()  # empty in rows of schema 0014
    models: tuple[str, ...] = ()
    duplicate_of: str | None
    priority: Priority
    owner: str
    labels: tuple[str, ...]
    steps: Number | None
    confirmed: Confirmation | None
    count: Number
    first_seen: str | None
    last_seen: str | None
    data_dependent: bool | None
    program_digest: str = ""  # empty in rows that were saved without it

    def __post_init__(self) -> None:
        for time in filter(None, (self.first_seen, self.last_seen)):
            checked_time(time)


def summary_of(finding: Finding) -> FindingSummary:
    """What lists show of a finding."""
    fields = {name: getattr(finding, name) for name in FindingSummary.__struct_fields__ if name != "torch"}
    return FindingSummary(**fields, torch=finding.torch_versions)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign: what its cases depend on, and its progress.

    `next_index` is the first case that is not done. `ahead` are later cases that are done.
    """

    id: int
    profile: str
    seed: int
    generator: str
    options: dict[str, object]
    next_index: Number
    ahead: tuple[Number, ...]
    finished: bool
    started: str
    updated: str

    def __post_init__(self) -> None:
        checked_time(self.started)
        checked_time(self.updated)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a running campaign at one time: cases done, and guard sites and findings seen.

    `seconds` is the wall-clock time and `cpu_seconds` that of the workers, since the campaign was started or resumed.
    """

    when: str
    cases: Number
    seconds: Seconds
    cpu_seconds: Seconds
    fallback_sites: Number
    dde_sites: Number
    findings: Number

    def __post_init__(self) -> None:
        checked_time(self.when)


class Result(msgspec.Struct, frozen=True):
    """One finding or case under one torch: its failure showed in `shows` of `runs` runs.

    `program` identifies what was run: the result does not describe another program. `status` is one of
    `versions.model.Status`, and `reason` says more.
    """

    case: str
    torch: str
    program: str
    status: str
    shows: Number
    runs: Number
    reason: str
    when: str


class Token(msgspec.Struct, frozen=True):
    """Whose token it is, the SHA-256 of it in hexadecimal digits, and when it was made."""

    name: str
    digest: str
    made: str


def stamp(when: datetime) -> str:
    """The text form of a time with a time zone."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def slim(failure: Failure) -> Failure:
    """The failure as it is stored: the fields that classification reads.

    Guards that took their fallback, the graph, measurements, and calls that do not show the failure are left out. Paths
    do not depend on the machine.
    """

    def small(observation: Record) -> Record:
        return replace(observation, guards=(), graph=None, compiles=0, cpu_seconds=0.0, peak_rss_mb=0.0, digest="")

    failure = kept(failure)
    second = None if failure.second is None else small(failure.second)
    return portable(replace(failure, observation=small(failure.observation), second=second))


def portable(record: Record) -> Record:
    """A record of failures with paths in frames and messages that do not depend on the machine.

    `/x/lib/python3.11/site-packages/torch/a.py` becomes `torch/a.py`. A temporary file keeps its name only.
    """
    folders = "|".join(re.escape(one) for one in sorted({tempfile.gettempdir(), "/tmp", "/var/tmp"}, reverse=True))
    temporary = re.compile(rf"(?<![\w/.-])(?:{folders})/{_IN_PATH}*")

    def without_folders(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_folders(item) for name, item in value.items()}
        if isinstance(value, list):
            return [without_folders(item) for item in value]
        return temporary.sub(_name, _PACKAGES.sub("", value)) if isinstance(value, str) and "/" in value else value

    plain = without_folders(msgspec.json.decode(msgspec.json.encode(record)))
    return msgspec.json.decode(msgspec.json.encode(plain), type=type(record))


def _name(temporary: re.Match[str]) -> str:
    name = temporary[0].rpartition("/")[2]
    return f"{TEMPORARY}/{name}" if "." in name.strip(".") else TEMPORARY


_OPTIONS: Final = re.compile(r"^# options: (.+)$", re.MULTILINE)


def title_of(signature: Signature, cause: Cause, failure: Failure | None = None, ops: tuple[str, ...] = ()) -> str:
    """`torch.diff: at::native::diff_helper needs 2*u0 < 1`, and similar titles for failures that are not guards.

    `failure` is the displayed failure of the finding; `ops` are the functions that reach its site.
    """
    retrace = RETRACES.get(failure.observation.stage) if failure is not None else None
    if failure is not None and retrace is not None:
        signature = replace(signature, anchor=signature.anchor.removeprefix(after(failure)))
    text = _title_of(signature, cause, failure, ops)
    if retrace is None:
        return text
    begun = "exported" if retrace.begins == "export" else f"captured in {retrace.begins}"
    fails = f"{retrace.how} raises" if row_of(signature.kind).cause is None else f"wrong after {retrace.how}"
    return f"{begun}, but {fails}: {text}"


def _title_of(signature: Signature, cause: Cause, failure: Failure | None, ops: tuple[str, ...]) -> str:
    title = row_of(signature.kind).title
    if failure is None:
        text = f"{signature.kind} at {signature.site}"
    elif not isinstance(title, str):
        text = title(Classification(failure, signature, cause, ""))
    else:
        text = title.format(
            site="the program" if cause == "user" else signature.site,
            anchor=shortened(signature.anchor),
            stage=failure.observation.stage,
            evidence=abridged(failure.evidence),
        )
    op = shortened(ops[0]) if ops else ""
    return f"{op}: {text}" if op and not text.startswith(f"{op} ") else text


def normalized(finding: Finding) -> Finding:
    """The same finding with its collections sorted and without repetitions."""
    names = ("fixed_in", "labels", "known_in", "models", "links", "notes", "history")
    return replace(
        finding,
        **{name: tuple(sorted(set(getattr(finding, name)))) for name in names},
        former=tuple(sorted({*finding.former} - {finding.id})),
        occurrences=tuple(sorted(finding.occurrences, key=lambda seen: seen.order)),
    )


_DOCUMENTED = (
    *("id", "title", "kind", "cause", "site", "anchor", "ops", "models", "expression", "stages", "verdicts"),
    *("state", "duplicate_of", "fixed_in", "owner", "priority", "labels", "expires", "known_in", "steps", "minimal"),
    *("original", "attempts", "confirmed", "torch_versions", "count", "first_seen", "last_seen", "occurrences"),
    *("links", "notes", "history", "former", "control", "answers", "data_dependent", "stage", "shown", "failure"),
)
"""The fields and properties of a finding that machine-readable output has, in order."""

_RENAMED = {"minimal": "program", "torch_versions": "torch"}


def as_document(finding: Finding) -> dict[str, object]:
    """The finding as in every machine-readable output, in JSON's types. Occurrences are without their failures."""
    document = {_RENAMED.get(name, name): getattr(finding, name) for name in _DOCUMENTED}
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({"schema": SCHEMA, **document}))
    for seen in plain["occurrences"]:
        del seen["observed"]
    return plain


ID = re.compile(r"[a-z][a-z-]*-[0-9a-f]{10}(-[1-9][0-9]{0,5})?")
"""The ids of findings: a kind, a part of a hash, and the number of a finding that came back (`id_of`)."""


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
