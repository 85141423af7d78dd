"""`ddefuzz triage`: decide on one finding after the other, with one key each. It never imports torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from shutil import get_terminal_size

import rich_click as click
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from ddefuzz.answers.model import Answers
from ddefuzz.classify.cause import MEANINGS
from ddefuzz.classify.wording import question
from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.layout import counted, facts_grid, folded
from ddefuzz.cli.options import db_option, now, who_option
from ddefuzz.cli.output import Page, plain, rendered, stdout_page
from ddefuzz.cli.streams import write_stdout
from ddefuzz.errors import InputError
from ddefuzz.escape import visible
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, FINDING, By, Decision, undo
from ddefuzz.findings.lifecycle import ROWS, STATES, State
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.facts import verdict_lines
from ddefuzz.show.source import similar, site_lines, snippet_of

Ask = Callable[[str], str]

KEYS: dict[str, Decision] = {row.key: row for row in DECISIONS if row.key}
"""The keys that decide."""

MOST_NEAR = 100

LINES_BELOW = 4
"""Lines of a terminal below a screen, besides the menu: its first line, what part it is, a message, and the cursor."""

SKIP, BACK, UNDO, QUIT, MORE = "s", "z", "u", "q", " "


@click.command("triage")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    metavar="STATE",
    multiple=True,
    default=("new",),
    show_default=True,
    help=f"Show findings in this state: {', '.join(STATES)}. Can be repeated.",
)
@click.option("--all", "all_", is_flag=True, help="Also show findings that do not depend on data.")
@db_option
@who_option
def command(ids: tuple[str, ...], states: tuple[State, ...], all_: bool, db: DatabaseUrl, who: str) -> None:
    """Decide on findings in the terminal: one finding per screen, one key per decision.

    A screen has the program, the condition that the site evaluates, torch's source around a Python site, what would
    fix it, the verdicts, and similar findings. On a lower terminal it has parts: the space bar shows the next one. Each
    decision is saved at once. `u` undoes the latest one.

    Without a terminal, each line of stdin has one key and its text: `r URL`, `d ID`, `n TEXT`.
    """
    with Database.open(db, create=False) as database:
        if ids:
            queue = [resolve(database, name).id for name in ids]
        else:
            query = listing.Query(states=states)
            found = database.read(lambda session: listing.selected(session, query))
            queue = [one.id for one in found if all_ or one.data_dependent is not False]
        decided = Loop(database, queue, who).run()
    left = len(queue) - len(decided)
    click.echo(f"{counted(len(decided), 'finding')} decided, {left} left", err=True)


class Loop:
    """The findings to decide on, and the place in them. `decided` has those with a decision, in order."""

    def __init__(self, database: Database, queue: list[str], who: str) -> None:
        self.database = database
        self.queue = queue
        self.who = who
        self.at = 0
        self.part = 0
        self.decided: list[str] = []

    def run(self) -> list[str]:
        """Show and decide until the end of the queue, `q`, or the end of input. Returns the ids decided on."""
        while self.queue:
            if self.at == len(self.queue):
                if not self._end():
                    break
                continue
            finding = self.database.get(self.queue[self.at])
            place = f"{self.at + 1} of {len(self.queue)}"
            page = stdout_page()
            text = screen(finding, self._near(finding), place, page)
            menu = _menu(page.width)
            parts = [text]
            if sys.stdout.isatty():
                click.clear()
                parts = parts_of(text, get_terminal_size().lines - menu.count("\n") - LINES_BELOW)
            self.part %= len(parts)
            write_stdout(parts[self.part])
            before = self.at
            if not self._decide(finding, f"{_place(self.part, len(parts))}{menu}"):
                break
            if self.at != before:
                self.part = 0
        return list(dict.fromkeys(self.decided))

    def _near(self, finding: Finding) -> tuple[FindingSummary, ...]:
        """The findings among which similar ones are sought."""
        return self.database.read(lambda session: listing.near(session, finding, MOST_NEAR))

    def _end(self) -> bool:
        """Read keys after the last finding. Returns False to end."""
        while True:
            click.echo(f"no more findings  {BACK} back  {UNDO} undo  {QUIT} quit", err=True)
            key, _ = _read_key()
            if key in (QUIT, ""):
                return False
            if key == BACK:
                self.at -= 1
                return True
            if key == UNDO and self.decided:
                self._undo()
                return True

    def _decide(self, finding: Finding, menu: str) -> bool:
        """Read keys until the screen changes. Returns False to end."""
        while True:
            click.echo(menu, err=True)
            key, ask = _read_key()
            if key in (QUIT, ""):
                return False
            if key == MORE:
                self.part += 1
                return True
            if key == SKIP:
                self.at += 1
                return True
            if key == BACK:
                self.at = max(self.at - 1, 0)
                return True
            try:
                if key == UNDO:
                    self._undo()
                    return True
                if key in KEYS:
                    self._change(finding, KEYS[key], ask)
                    return True
            except InputError as error:
                click.echo(visible(str(error)), err=True)
                continue
            click.echo(f"found the key {visible(key)!r}, expected one of these:", err=True)

    def _change(self, finding: Finding, decision: Decision, ask: Ask) -> None:
        """Decide. The next finding is shown after a decision on the state."""
        value, text = decision.value, None
        if value is not None:
            text = ask(f"{value.label} ({value.hint})" if value.hint else value.label)
        if value is FINDING:
            text = resolve(self.database, text or "").id
        after = self.database.apply(finding.id, [(decision, text)], By(self.who, now()))
        click.echo(f"{finding.id}: {visible(decision.said(finding, after))}", err=True)
        if decision.group == "state" or after.state != finding.state:
            self.decided.append(finding.id)
            self.at += 1

    def _undo(self) -> None:
        """Undo the latest decision of this loop, and show its finding again."""
        if not self.decided:
            raise InputError("found no decision since the start, expected one to undo (`ddefuzz findings undo ID`)")
        name = self.decided[-1]
        self.database.decide(name, lambda one: undo(one, By(self.who, now())))
        self.decided.pop()
        self.at = self.queue.index(name)
        click.echo(f"{name}: undone", err=True)


def _place(part: int, parts: int) -> str:
    """What is said of a screen in parts."""
    return "" if parts == 1 else f"-- part {part + 1} of {parts}, space bar: the next one --\n"


def _menu(width: int) -> str:
    """The keys. A key and its word are on one line."""
    keys = [f"{key}\0{decision.name}" for key, decision in KEYS.items()]
    others = [f"{SKIP}\0skip", f"{BACK}\0back", f"{UNDO}\0undo", f"{QUIT}\0quit"]
    return folded("  ".join([*keys, *others]), width).replace("\0", " ")


def _read_key() -> tuple[str, Ask]:
    """One key, and what asks for the text that it needs. An empty key is the end of input.

    On a terminal a key needs no newline, and the text is typed after a question. Otherwise a line has both.
    """
    if sys.stdin.isatty():
        return click.getchar(), lambda what: str(click.prompt(what, default="", show_default=False, err=True))
    typed = next((line.strip() for line in sys.stdin if line.strip()), "")
    key, _, text = typed.partition(" ")
    return key, lambda _what: text


def screen(finding: Finding, others: Iterable[FindingSummary], at: str, page: Page) -> str:
    """The screen. `at` says which finding of how many it is."""
    width = page.width
    parts: list[RenderableType] = [
        plain(folded(f"{at}  {finding.id}", width), style="dim"),
        plain(folded(finding.title, width), style="bold"),
        "",
        facts_grid(_facts(finding), width),
        Text(""),
        _python(snippet_of(finding)),
    ]
    source = site_lines(finding)
    if source is not None:
        parts += [Text(""), plain(f"{source.path}:{source.line}", style="bold")]
        parts.append(
            Syntax(
                visible(source.text),
                "python",
                line_numbers=True,
                start_line=source.first,
                highlight_lines={source.line},
                word_wrap=True,
                theme="ansi_dark",
            )
        )
    close = similar(finding, others)
    if close:
        parts += [Text(""), plain("similar findings", style="bold")]
        parts += [plain(folded(f"  {one.id} ({one.state}) {one.title}", width)) for one in close]
    return rendered(Group(*parts), page)


def _facts(finding: Finding) -> Iterator[tuple[str, str]]:
    meaning = MEANINGS[finding.cause]
    yield "state", f"{finding.state}: {ROWS[finding.state].meaning}"
    yield "cause", f"{finding.cause}: {meaning.meaning}"
    yield "what to change", meaning.fix
    if finding.answers is not None:
        yield "what fixes it", "\n".join(_tried(finding.answers))
    yield "site", f"{finding.site} ({finding.site.language})"
    yield "evaluates", question(finding.expression)
    yield "verdicts", "\n".join(verdict_lines(finding))
    yield "torch", ", ".join(finding.torch_versions)
    yield "links", "\n".join(finding.links)
    yield "notes", "\n".join(note.text for note in finding.notes)


def _tried(answers: Answers) -> Iterator[str]:
    """The verdict of the experiment with other answers of the guard, and the patch that was tried."""
    yield f"{answers.verdict} (tried in {counted(answers.programs, 'program')}, torch {answers.torch})"
    if answers.patch is not None:
        yield answers.patch.code


def parts_of(text: str, lines: int) -> list[str]:
    """The text of a screen in parts of so many lines, each with as many as fit. Blank lines at the end are left out."""
    rows = text.rstrip("\n").splitlines(keepends=True)
    most = max(lines, 1)
    return ["".join(rows[first : first + most]).rstrip("\n") + "\n" for first in range(0, len(rows), most)]


def _python(text: str) -> Syntax:
    return Syntax(visible(text.rstrip()), "python", word_wrap=True, theme="ansi_dark")
