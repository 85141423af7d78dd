"""`ddefuzz doctor`: check the environment, torch's private names, the workers and the reference programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ddefuzz.cli.command import Output, click_command, formats, option
from ddefuzz.cli.options import DB
from ddefuzz.cli.output import LiveLine, deliver, page_writers
from ddefuzz.errors import EXIT_UNSUPPORTED, DatabaseError
from ddefuzz.execute.pool import Pool
from ddefuzz.files import is_there
from ddefuzz.findings import connection
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.torch_api import Check
from ddefuzz.oracles import reference
from ddefuzz.show.blocks import Block, Paragraph, Span, counted, table

SCHEMA = "ddefuzz.doctor/1"


@click_command("doctor")
def command(
    verbose: bool = option("Show each check, not only those that fail.", "-v --verbose"),
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json"),
) -> None:
    """Check this installation: torch's private names, the workers, the classification, the database.

    The classification is checked with reference programs whose site and cause are known.

    Exit code 4: a check fails, or this version of torch is not supported.
    """
    by_part: dict[str, list[Check]] = {}
    with LiveLine("checking") as live:
        for title, part in PARTS:
            live.update(f"checking {title}")
            for check in part(db):
                by_part.setdefault(title, []).append(check)
                live.update(f"checking {title}: {check.name}")
    checks = [check for of_part in by_part.values() for check in of_part]
    document = {"schema": SCHEMA, "checks": [check._asdict() for check in checks]}
    fails = not all(check.ok for check in checks)
    deliver(
        page_writers("ddefuzz doctor", _view(by_part, verbose=verbose), document), output, {EXIT_UNSUPPORTED: fails}
    )


def _names(_: DatabaseUrl) -> Iterable[Check]:
    torch_api.require()
    return torch_api.check()


def _workers(_: DatabaseUrl) -> Iterator[Check]:
    with Pool(1) as pool:
        yield from reference.checks(pool)


def _database(url: DatabaseUrl) -> Iterator[Check]:
    """A missing database is no error: the first campaign creates it. This check does not."""
    path = url.path()
    if path is not None and not is_there(path):
        yield Check("findings database", ok=True, detail=f"{url}: does not exist yet; `ddefuzz run` creates it")
        return
    try:
        yield Check("findings database", ok=True, detail=connection.check(url))
    except DatabaseError as error:
        yield Check("findings database", ok=False, detail=str(error))


PARTS: tuple[tuple[str, Callable[[DatabaseUrl], Iterable[Check]]], ...] = (
    ("the findings database", _database),
    ("the private names of torch", _names),
    ("the workers and the reference programs", _workers),
)
"""The checks by part, cheapest first: a title, and a function that runs them, given the database's URL."""


def _view(by_part: Mapping[str, Sequence[Check]], *, verbose: bool) -> Iterator[Block]:
    """A row for each part, then a row for each check that fails, or for each one."""
    checks = [check for of_part in by_part.values() for check in of_part]
    parts = [(_verdict(all(one.ok for one in of_part)), title, _count(of_part)) for title, of_part in by_part.items()]
    yield table(("", "part", "says"), parts, folding=("says",))
    if rows := [(_verdict(one.ok), one.name, one.detail) for one in checks if verbose or not one.ok]:
        yield table(("", "check", "says"), rows, folding=("says",))
    yield Paragraph(f"{_count(checks)}{'' if verbose else '; -v shows each'}")


def _verdict(ok: bool) -> Span:
    return Span("ok", style="good") if ok else Span("FAILS", style="bad")


def _count(checks: Sequence[Check]) -> str:
    if len(checks) == 1 and checks[0].ok:
        return checks[0].detail or "1 check"
    return f"{counted(len(checks), 'check')}, {sum(not one.ok for one in checks)} failed"
