"""`ddefuzz replay` executes nothing that a given folder brings along, and its page obeys nothing that a case says."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from ddefuzz.campaign.corpus import Expectation, KeptCase
from ddefuzz.campaign.replay import Replayed
from ddefuzz.cli.check_page import check_page
from ddefuzz.cli.output import Page
from ddefuzz.cli.replay import _page, command
from ddefuzz.errors import NothingRanError
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.findings.database import Database
from ddefuzz.report.check import Row

ESCAPE = "\x1b[2J"


def test_a_list_in_a_given_folder_is_told_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "trusted.toml").write_text('[[module]]\npath = "cases.py"\nexpected = "expected.json"\n')
    (tmp_path / "expected.json").write_text('{"one": {"export": {"outcome": "ok"}}}')
    (tmp_path / "cases.py").write_text("raise SystemExit")
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert isinstance(result.exception, NothingRanError)
    assert result.stderr == f"not executed, `--trust` executes it: the user module {tmp_path / 'cases.py'}\n"


def test_pages_show_control_characters_and_do_not_obey_them() -> None:
    case = KeptCase(f"a{ESCAPE}.py", ProgramSubject(""), Expectation("export", kind="dde", site=f"at{ESCAPE}"))
    page = _page((Replayed(case, "fails otherwise", f"seen{ESCAPE}", ESCAPE),), Page(80))
    row = Row(f"a{ESCAPE}", "export", "explicit", "fail", f"because{ESCAPE}", exception=f"Error: {ESCAPE}")
    for text in (page, check_page([row], Page(80)), check_page([row], Page(160))):
        assert "\x1b" not in text
        assert r"\x1b[2J" in text


def test_the_sites_that_cases_reach_are_added_to_a_database(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(
        "# ddefuzz program v1\n"
        "# expect: export/explicit ok\n"
        "# inputs: x = normal\n"
        'def program(x: Float32[Tensor, "u0 4"]):\n'
        "    return torch.cat((x, x))\n"
    )
    url = f"sqlite:///{tmp_path / 'sites.db'}"
    result = CliRunner().invoke(command, [str(tmp_path), "--sites", url, "-j", "1"])
    assert result.exit_code == 0, result.output
    with Database.open(url, create=False) as database:
        (torch,) = database.torch_versions()
        sites = database.sites(torch)
    assert sites
    assert {site.stage for site in sites} == {"export"}
    assert all("torch.cat" in site.example for site in sites)
