"""`ddefuzz init`: write the files with which a repository runs ddefuzz in its CI."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import rich_click as click
from jinja2 import Environment, PackageLoader, StrictUndefined

from ddefuzz import __version__
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

TORCHES: Final = ("2.13.0", "2.14.1", "2.15.0")
"""The versions of torch under which the workflow runs cases and findings, besides the one that it installs."""

EMPTY: Final[dict[str, str]] = {
    "findings/known.toml": "# Known findings, by id: state, reason, url, expires, versions.\n",
    "findings/rules.toml": "# Rules for signatures: [[alias]] and [[split]], each with reason and source.\n",
    ".ddefuzz/.gitignore": "*\n",
}


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), default=Path(), required=False)
@click.option(
    "--ci",
    type=click.Choice([*WORKFLOWS, "none"]),
    metavar="NAME",
    default="github",
    show_default=True,
    help="The workflow to write: github, gitlab or none.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def command(folder: Path, ci: str, force: bool) -> None:
    """Write the files with which a repository runs ddefuzz in its CI.

    FOLDER (default: the current one) gets ddefuzz.toml, a corpus with one case, an empty list of known findings, and a
    workflow that calls `ddefuzz ci`. It needs nothing but the package. Files that exist are not replaced.
    """
    if not is_folder(folder):
        raise InputError(f"{folder}: found no such folder, expected that of a repository")
    written = contents(ci)
    check_folder(folder, written)
    exist = [name for name in written if is_there(folder / name)]
    if exist and not force:
        raise InputError(f"{folder / exist[0]}: found this file, expected none there (--force replaces it)")
    write_files(folder, written)
    for name in written:
        click.echo(f"wrote {folder / name}", err=True)
    there = "" if folder == Path() else f"cd {shell_word(str(folder))} && "
    click.echo(f"\nNext:\n  {there}ddefuzz ci pull-request --budget 1m", err=True)


def contents(ci: str) -> dict[str, str]:
    """The text of each file, by its place in the repository."""
    environment = Environment(
        loader=PackageLoader("ddefuzz.cli", "templates/init"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    torch = _torch()
    others = [one for one in TORCHES if one != torch]
    values = {"version": __version__, "torch": torch, "others": others, "corpus": CORPUS}
    templates = dict([*FILES.items(), *([WORKFLOWS[ci]] if ci in WORKFLOWS else [])])
    return {place: environment.get_template(name).render(values) for name, place in templates.items()} | EMPTY


def _torch() -> str:
    """The release of torch in this environment, else the oldest that ddefuzz supports."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return "2.13.0"
