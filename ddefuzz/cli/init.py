"""`ddefuzz init`: the files with which a repository runs ddefuzz in its CI, from templates."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from ddefuzz import __version__
from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError
from ddefuzz.escape import shell_word
from ddefuzz.files import check_folder, is_folder, is_there, write_files

CORPUS: Final = "corpora"

WORKFLOWS: Final[dict[str, tuple[str, str]]] = {
    "github": ("github.yml", ".github/workflows/ddefuzz.yml"),
    "gitlab": ("gitlab.yml", ".gitlab-ci.yml"),
}
"""The template and the place of the workflow of each CI."""

FILES: Final[dict[str, str]] = {"ddefuzz.toml": "ddefuzz.toml", "smoke.txt": f"{CORPUS}/smoke/relu.py"}
"""The other files: template and place."""

BASELINE: Final = "findings/baseline.toml"
"""The findings that ddefuzz knows, as a list of known findings. ci/baseline.py writes it from findings/."""

OF_PEOPLE: Final = frozenset({"findings/known.toml", "findings/rules.toml"})
"""What people write there is never replaced."""

TORCHES: Final = ("2.13.0", "2.14.1", "2.15.0")
"""The versions of torch under which the workflow runs cases and findings, besides the one that it installs."""

EMPTY: Final[dict[str, str]] = {
    "findings/known.toml": "# Known findings, by id: state, reason, url, expires, versions.\n",
    "findings/rules.toml": "# Rules for signatures: [[alias]] and [[split]], each with reason and source.\n",
    ".ddefuzz/.gitignore": "*\n",
    "ddefuzz-report/.gitignore": "*\n",
}


@click_command("init")
def command(
    folder: Path = argument(default=Path()),
    ci: str = option(
        "The workflow to write: github, gitlab or none.", default="github", type_=(*WORKFLOWS, "none"), metavar="NAME"
    ),
    baseline: bool = option(
        "Write findings/baseline.toml: the findings that ddefuzz knows. They do not make a campaign red.",
        "--baseline/--no-baseline",
        default=True,
    ),
    force: bool = option("Replace files that exist, but not your decisions (findings/known.toml and rules.toml)."),
) -> None:
    """Write the files with which a repository runs ddefuzz in its CI.

    FOLDER (default: the current one) gets ddefuzz.toml, a corpus with one case, lists of known findings, and a workflow
    that calls `ddefuzz ci`. It needs nothing but the package. Files that exist are not replaced.
    """
    if not is_folder(folder):
        raise InputError(f"{folder}: found no such folder, expected that of a repository")
    package = any(is_there(folder / name) for name in ("pyproject.toml", "setup.py"))
    written = contents(ci, baseline=baseline, package=package)
    check_folder(folder, written)
    exist = [name for name in written if is_there(folder / name)]
    if exist and not force:
        raise InputError(f"{folder / exist[0]}: found this file, expected none there (--force replaces it)")
    written = {name: text for name, text in written.items() if name not in exist or name not in OF_PEOPLE}
    write_files(folder, written)
    for name in written:
        say(f"wrote {folder / name}")
    there = "" if folder == Path() else f"cd {shell_word(str(folder))} && "
    say("\nNext: name your models in ddefuzz.toml (check.targets), then", kept="\n")
    say(f"  {there}ddefuzz ci pull-request\n  {there}ddefuzz ci accept --reason 'not yet'", kept="\n")


def contents(ci: str, *, baseline: bool = True, package: bool = False) -> dict[str, str]:
    """The text of each file, by its place in the repository. Its own package is installed, if it is one."""
    environment = Environment(
        loader=PackageLoader("ddefuzz.cli", "templates/init"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    torch = _torch()
    others = [one for one in TORCHES if one != torch]
    values = {
        "version": __version__,
        "torch": torch,
        "others": others,
        "corpus": CORPUS,
        "baseline": baseline,
        "package": package,
    }
    templates = FILES | dict([WORKFLOWS[ci]] if ci in WORKFLOWS else [])
    known = {BASELINE: baseline_text()} if baseline else {}
    return {place: environment.get_template(name).render(values) for name, place in templates.items()} | known | EMPTY


def baseline_text() -> str:
    """The findings that this ddefuzz knows, as a list of known findings."""
    return (files("ddefuzz.cli") / "templates/init/baseline.toml").read_text(encoding="utf-8")


def _torch() -> str:
    """The release of torch in this environment, else the oldest that ddefuzz supports."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return "2.13.0"
