"""`ddefuzz report`: findings in a format for other tools, or one finding as an issue or test for PyTorch."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import DB
from ddefuzz.cli.output import deliver, resolve, writers_of
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import is_open
from ddefuzz.findings.listing import results
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.repro.finding import exportdb_example, issue, unit_test
from ddefuzz.show.findings import findings_report
from ddefuzz.show.table import FORMATS, NAMES
from ddefuzz.versions.model import status_by_version

UPSTREAM: Final = {
    "issue": "an issue as PyTorch asks for it, in Markdown",
    "unittest": "a unit test in PyTorch's style that is expected to fail",
    "exportdb": "an example for PyTorch's ExportDB",
}
"""The formats of one finding, with what they are. Nothing is filed."""


def _formats() -> str:
    """A line for each format, for the help."""
    rows = [(one.name, one.meaning) for one in FORMATS]
    rows += [(name, f"with an ID: {meaning}") for name, meaning in UPSTREAM.items()]
    return "\n".join(f"  {name:9} {meaning}" for name, meaning in rows)


@click_command(
    "report",
    help=f"""Write findings in a format for other tools, or one finding as an issue or test for PyTorch.

Without ID, the report has all findings that are open and depend on data. New findings count as failed, reviewed ones
as known.

\b
Formats:
{_formats()}
""",
)
def command(
    finding_id: str | None = argument("[ID]"),
    all_: bool = option("Also findings that are not open, or do not depend on data."),
    env: bool = option("With the format issue: run torch.utils.collect_env and add what it prints."),
    db: DatabaseUrl = DB,
    output: Output = formats(*("markdown", *(name for name in NAMES if name != "markdown"), *UPSTREAM)),
) -> None:
    """See the decorator: the help lists the table of formats."""
    with Database.open(db, create=False) as database:
        everything = database.findings()
        chosen = resolve(database, finding_id) if finding_id else None
        in_versions = "" if chosen is None else status_by_version(chosen, database.read(results))
    if chosen is None and (alone := sorted(output.formats & set(UPSTREAM))):
        raise InputError(f"--format {alone[0]}: found no ID, expected that of a finding")
    tracked = {version for finding in everything for version in finding.torch_versions}
    if chosen is not None:
        listed = [chosen]
    else:
        listed = [
            finding
            for finding in everything
            if all_ or (is_open(finding.state, finding.fixed_in, tracked) and finding.data_dependent is not False)
        ]
    writers = writers_of(findings_report(listed, ", ".join(sorted(tracked)), lambda finding: finding.state == "new"))
    if chosen is not None:
        about_machine = environment() if env and "issue" in output.formats else ""
        writers |= {
            "issue": lambda _page: issue(chosen, about_machine, in_versions),
            "unittest": lambda _page: unit_test(chosen),
            "exportdb": lambda _page: exportdb_example(chosen),
        }
    deliver(writers, output)


def environment() -> str:
    """What `python -m torch.utils.collect_env` prints. Raises `UnsupportedError`."""
    words = [sys.executable, "-P", "-m", "torch.utils.collect_env"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120.0)
    except (subprocess.SubprocessError, OSError) as error:
        raise UnsupportedError(f"--env: torch.utils.collect_env ended with {error}, expected its output") from error
    return ran.stdout
