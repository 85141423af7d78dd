"""The records of the daily service: what its file says, how far a day is, and what a day's report has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from ddefuzz.campaign.plan import CPU_SECONDS
from ddefuzz.errors import InputError
from ddefuzz.files import check_folder, read_toml, real_path
from ddefuzz.findings.url import DatabaseUrl, parse_url
from ddefuzz.generate.profiles import PROFILES
from ddefuzz.records import record_of
from ddefuzz.versions.diff import Difference
from ddefuzz.versions.wheels import Index

Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class Shares(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of the day's CPU time, relative to each other. What a step leaves over is for those after it."""

    sweep: Share = 2
    fuzz: Share = 5
    diff: Share = 2
    replay: Share = 1
    bisect: Share = 1


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many of the newest are kept: environments (at least the two that are compared), days, and wheels (0: all)."""

    environments: Annotated[int, msgspec.Meta(ge=2, le=100_000)] = 3
    days: Annotated[int, msgspec.Meta(ge=2, le=100_000)] = 90
    wheels: Count = 0


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The TOML file of the service. Paths are relative to its folder. `budget` is CPU seconds of a day, as `14400cpu`.

    `versions` selects wheels (PEP 440). `profiles` are those of campaigns, with their parts of the share `fuzz`. `hook`
    is a command that gets the paths of the report. `address` is where the service's folder is served, for links.
    """

    wheels: str
    budget: str
    folder: str = "fleet"
    db: str = ""
    versions: str = ""
    index: Index = False
    pre: bool = False
    jobs: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | Literal["auto"] = "auto"
    profiles: dict[str, Share] = msgspec.field(default_factory=lambda: {"default": 1.0})
    shares: Shares = Shares()
    keep: Keep = Keep()
    hook: tuple[str, ...] = ()
    address: str = ""

    @property
    def cpu_seconds(self) -> float:
        """The budget of a day."""
        return float(self.budget.removesuffix("cpu"))

    def selects(self, torch: str) -> bool:
        """Whether a wheel of this version is among `versions`. One before a release counts as the release, unless
        `versions` names one.
        """
        selected, version = SpecifierSet(self.versions), Version(torch)
        counts_as = version.base_version if version.is_prerelease and not selected.prereleases else torch
        return selected.contains(counts_as, prereleases=True)


class Places(msgspec.Struct, frozen=True):
    """The absolute paths of the service, and its database. `home` is the folder of its file."""

    home: Path
    wheels: Path
    folder: Path
    db: DatabaseUrl

    @property
    def days(self) -> Path:
        """A folder for each day."""
        return self.folder / "days"

    @property
    def environments(self) -> Path:
        """A folder for each version, with a Python that has its torch."""
        return self.folder / "environments"

    @property
    def feed(self) -> Path:
        """The Atom feed of all days that are kept."""
        return self.folder / "feed.atom"

    @property
    def history(self) -> Path:
        """The counts of all days, a line of JSON each. They are kept when the days are removed."""
        return self.folder / "history.jsonl"

    def of_day(self, day: str, name: str = "day.json") -> Path:
        """A file of a day."""
        return self.days / day / name


def read_fleet(path: Path) -> tuple[Fleet, Places]:
    """What a file of the service says. Raises `InputError`."""
    fleet = record_of(read_toml(path), Fleet, path)
    if not CPU_SECONDS.fullmatch(fleet.budget) or not fleet.cpu_seconds:
        raise InputError(f"{path}: budget: found {fleet.budget!r}, expected CPU seconds of a day such as '14400cpu'")
    try:
        SpecifierSet(fleet.versions)
    except InvalidSpecifier as error:
        raise InputError(f"{path}: versions: found {fleet.versions!r}, expected such as '>=2.13,<3'") from error
    for name in fleet.profiles:
        if name not in PROFILES:
            raise InputError(f"{path}: profiles: found {name!r}, expected one of {', '.join(sorted(PROFILES))}")
    if not any(fleet.profiles.values()):
        raise InputError(f"{path}: profiles: found no share above 0, expected one")
    if isinstance(fleet.index, str) and not _INDEX.fullmatch(fleet.index):
        raise InputError(
            f"{path}: index: found a text that is no URL, expected true, false or such as https://HOST/PATH"
        )
    if "\0" in "".join(fleet.hook):
        raise InputError(f"{path}: hook: found a word with a null character, expected words of a command")
    home = real_path(path.parent)
    folder = real_path(home / fleet.folder)
    try:
        check_folder(folder, ["lock"])
    except InputError as error:
        raise InputError(f"{path}: folder: {error}") from error
    return fleet, Places(home, real_path(home / fleet.wheels), folder, _database(path, fleet.db, home, folder))


_INDEX: Final = re.compile(r"[a-z+]+://[^\s\0]+")


def _database(path: Path, text: str, home: Path, folder: Path) -> DatabaseUrl:
    """The database that the file names, else one in the folder. A path is relative to the folder of the file."""
    own = folder / "fleet.db"
    try:
        db = parse_url(text or f"sqlite:///{own}")
        name = db.path()
        if text and name is not None and not name.is_absolute():
            whole = db.for_sqlalchemy().set(database=str(home / name))
            db = parse_url(whole.render_as_string(hide_password=False))
    except InputError as error:
        raise InputError(f"{path}: db: {error}") from error
    if not text and db.path() != own:
        raise InputError(f"{path}: folder: found {str(folder)!r}, expected a path without a ?, or the key db")
    if db.is_in_memory():
        raise InputError(f"{path}: db: found {db}, a database in memory, expected one that stays, as sqlite:///PATH")
    return db


Status: TypeAlias = Literal["done", "cut", "failed", "skipped"]
"""
done     it has done all that it had to
cut      its share of the budget ended first: the next day goes on
failed   it ended with an error, or was killed too often; the note says why
skipped  the day had nothing for it; the note says why
"""

MOST_TRIES: Final = 5
"""How often a step is begun: one that ends the whole service, as for lack of memory, must not end all days."""


LAST_STEP: Final = "hook"


class StepEnd(msgspec.Struct, frozen=True):
    """How a step of a day has ended. CPU seconds are those of its commands."""

    status: Status
    note: str = ""
    cpu_seconds: float = 0.0


class FirstVersion(msgspec.Struct, frozen=True):
    """Between which two versions a finding changed. None of those between could be judged."""

    before: str
    after: str


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a day. It is saved before and after each step, so that a day that was killed goes on there.

    `begun` is a time as `model.stamp` writes it. `wheels` are the versions in the folder that the file selects, oldest
    first, and `new` those among them that no earlier day had. `torch` is the version of the day and `base` the one
    that it is compared with; empty where there is none. `is_first` says that no earlier day had this version. `lines`
    is what could not be done. `torches` has what `torch.__version__` is by version, and `tries` how often each step was
    begun. `firsts` are the versions where findings changed.
    """

    day: str
    begun: str
    tries: dict[str, int] = {}
    steps: dict[str, StepEnd] = {}
    wheels: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    torch: str = ""
    base: str = ""
    torches: dict[str, str] = {}
    is_first: bool = False
    lines: tuple[str, ...] = ()
    firsts: dict[str, FirstVersion] = {}
    removed: tuple[str, ...] = ()
    schema: str = "ddefuzz.fleet.day/1"

    @property
    def is_over(self) -> bool:
        """Whether its last step has ended."""
        return LAST_STEP in self.steps


ChangeKind: TypeAlias = Literal["regressed", "new", "moved", "gone"]
"""
regressed  its program passes in the version before, and fails
new        the database has it since this day, and it is none of the others
moved      its program fails in both, now at another site, with another condition or kind
gone       its program failed in the version before, and passes
"""

CHANGE_KINDS: Final[tuple[ChangeKind, ...]] = get_args(ChangeKind)
"""In the order in which a reader wants to see them."""


class FindingChange(msgspec.Struct, frozen=True):
    """A finding that changed. `old` and `new` are what its program does in the version before and in that of the day
    (`versions.model.Status`; empty if it was not run there). `first` is where that began.
    """

    kind: ChangeKind
    id: str
    title: str
    state: str
    old: str = ""
    new: str = ""
    first: FirstVersion | None = None


class CampaignCount(msgspec.Struct, frozen=True):
    """What a campaign of the day did."""

    profile: str
    seed: int
    cases: int
    findings: int
    finished: bool


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a day: the line of the history. `sites` are all guard sites reached under its version so far."""

    day: str
    torch: str
    base: str
    regressed: int = 0
    new: int = 0
    moved: int = 0
    gone: int = 0
    closed: int = 0
    reopened: int = 0
    open: int = 0
    findings: int = 0
    sites: int = 0
    cases: int = 0
    programs: dict[str, int] = {}
    lines: int = 0


class DayReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that a day's report has. `programs` are the differences of the same programs under both versions (`ddefuzz
    diff`). `sweep` is one line, empty if there was none. `closed` and `reopened` are findings. `is_counted` is false if
    the database or a command's document could not be read: then it has only the day's state.
    """

    day: str
    torch: str
    base: str
    wheels: tuple[str, ...]
    new_wheels: tuple[str, ...]
    counts: Counts
    findings: tuple[FindingChange, ...] = ()
    programs: tuple[Difference, ...] = ()
    compared: int = 0
    closed: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    campaigns: tuple[CampaignCount, ...] = ()
    sweep: str = ""
    steps: dict[str, StepEnd]
    removed: tuple[str, ...]
    lines: tuple[str, ...]
    is_counted: bool = True
    schema: str = "ddefuzz.fleet/1"
