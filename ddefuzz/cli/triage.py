"""`ddefuzz triage`: decide on one finding after the other, with one key each. It never imports torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from shutil import get_terminal_size

import rich_click as click

from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.options import DB, WHO, now
from ddefuzz.cli.output import Page, resolve, stdout_page
from ddefuzz.cli.streams import say, write_stdout
from ddefuzz.errors import InputError
from ddefuzz.escape import visible
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, FINDING, By, Decision, undo
from ddefuzz.findings.lifecycle import STATES, State
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.blocks import Block, Code, Facts, Heading, Items, Mark, Paragraph, counted
from ddefuzz.show.evidence import facts_of, similar, site_lines, snippet_of
from ddefuzz.show.terminal import folded, terminal

Ask = Callable[[str], str]

KEYS: dict[str, Decision] = {row.key: row for row in DECISIONS if row.key}
"""The keys that decide."""

MOST_NEAR = 100

LINES_BELOW = 4
"""Lines of a terminal below a screen, besides the menu: its first line, what part it is, a message, and the cursor."""

SKIP, BACK, UNDO, QUIT, MORE, HELP = "s", "z", "u", "q", " ", "?"

MOVES = {SKIP: "skip", BACK: "back", UNDO: "undo", HELP: "help", QUIT: "quit"}

ARROWS = {"\x1b[C": SKIP, "\x1b[B": SKIP, "\x1b[D": BACK, "\x1b[A": BACK}
"""What a terminal sends for right and down, left and up."""


@click_command("triage")
def command(
    ids: tuple[str, ...] = argument("[ID]..."),
    states: tuple[State, ...] = option(f"Show findings in this state: {', '.join(STATES)}.", default=("new",)),
    all_: bool = option("Also show findings that do not depend on data."),
    db: DatabaseUrl = DB,
    who: str = WHO,
) -> None:
    """Decide on findings in the terminal: one finding per screen, one key per decision.

    A screen has the program, the condition that the site evaluates, torch's source around a Python site, what would
    fix it, the verdicts, and similar findings. On a lower terminal it has parts: the space bar shows the next one. Each
    decision is saved at once. `u` undoes the latest one.

    The arrow keys show the next and the previous finding, `?` says what each key does.

    Without a terminal, each line of stdin has one key and its text: `r URL`, `d ID`, `n TEXT`.
    """
    with Database.open(db, create=False) as database:
        if ids:
            queue = [resolve(database, name).id for name in ids]
        else:
            query = listing.Query(states=states)
            matching = database.read(lambda session: listing.selected(session, query))
            queue = [one.id for one in matching if all_ or one.data_dependent is not False]
        decided = Loop(database, queue, who).run()
    left = len(queue) - len(decided)
    say(f"{counted(len(decided), 'finding')} decided, {left} left")


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
        more = bool(self.queue)
        while more:
            if self.at == len(self.queue):
                more = self._read_key(None, f"no more findings  {BACK} back  {UNDO} undo  {QUIT} quit")
                continue
            finding = self.database.get(self.queue[self.at])
            near = self.database.read(partial(listing.near, finding=finding, most=MOST_NEAR))
            page = stdout_page()
            text = screen(finding, near, f"{self.at + 1} of {len(self.queue)}", page)
            words = {key: row.name for key, row in KEYS.items()} | MOVES
            # A key and its word are on one line.
            menu = folded("  ".join(f"{key}\0{name}" for key, name in words.items()), page.width).replace("\0", " ")
            parts = [text]
            if sys.stdout.isatty():
                click.clear()
                parts = parts_of(text, get_terminal_size().lines - menu.count("\n") - LINES_BELOW)
            self.part %= len(parts)
            write_stdout(parts[self.part])
            if len(parts) > 1:
                menu = f"-- part {self.part + 1} of {len(parts)}, space bar: the next one --\n{menu}"
            before = self.at
            more = self._read_key(finding, menu)
            if self.at != before:
                self.part = 0
        return list(dict.fromkeys(self.decided))

    def _read_key(self, finding: Finding | None, menu: str) -> bool:
        """Read keys until the screen changes. Returns False to end. There is no finding after the last one."""
        while True:
            say(menu, kept="\n")
            key, ask = _read_key()
            if key in (QUIT, ""):
                return False
            try:
                if key == BACK:
                    self.at = max(self.at - 1, 0)
                elif key == UNDO and (finding is not None or self.decided):
                    self._undo()
                elif finding is None:
                    continue
                elif key == MORE:
                    self.part += 1
                elif key == SKIP:
                    self.at += 1
                elif key == HELP:
                    say(meanings(), kept="\n")
                    continue
                elif key in KEYS:
                    self._change(finding, KEYS[key], ask)
                else:
                    say(f"found the key {visible(key)!r}, expected one of these:")
                    continue
            except InputError as error:
                say(str(error))
                continue
            return True

    def _change(self, finding: Finding, decision: Decision, ask: Ask) -> None:
        """Decide. The next finding is shown after a decision on the state."""
        value, text = decision.value, None
        if value is not None:
            text = ask(f"{value.label} ({value.hint})" if value.hint else value.label)
        if value is FINDING:
            text = resolve(self.database, text or "").id
        after = self.database.apply(finding.id, [(decision, text)], By(self.who, now()))
        say(f"{finding.id}: {decision.sentence(finding, after)}")
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
        say(f"{name}: undone")


def meanings() -> str:
    """What each key does, a line each."""
    rows = {key: f"{row.name}: {row.help.partition(chr(10))[0]}" for key, row in KEYS.items()}
    moves = {
        SKIP: "the next finding (also → and ↓)",
        BACK: "the finding before (also ← and ↑)",
        UNDO: "reverse the latest decision",
        QUIT: "end; all decisions are saved",
    }
    return "\n".join(f"  {key}  {text}" for key, text in {**rows, **moves}.items())


def _read_key() -> tuple[str, Ask]:
    """One key, and what asks for the text that it needs. An empty key is the end of input.

    On a terminal a key needs no newline, and the text is typed after a question. Otherwise a line has both.
    """
    if sys.stdin.isatty():
        typed = click.getchar()
        return ARROWS.get(typed, typed), lambda what: str(click.prompt(what, default="", show_default=False, err=True))
    typed = next((line.strip() for line in sys.stdin if line.strip()), "")
    key, _, text = typed.partition(" ")
    return key, lambda _what: text


def screen(finding: Finding, others: Iterable[FindingSummary], at: str, page: Page) -> str:
    """The screen. `at` says which finding of how many it is."""
    return terminal(_view(finding, others, at, page.width), page.width, color=page.color)


def _view(finding: Finding, others: Iterable[FindingSummary], at: str, width: int) -> Iterator[Block]:
    yield Paragraph(f"{at}  {finding.id}", "dim")
    yield Heading(finding.title)
    yield Facts(tuple(_facts(finding)))
    yield Code(folded(snippet_of(finding).rstrip(), width))
    source = site_lines(finding)
    if source is not None:
        yield Heading(f"{source.path}:{source.line}")
        yield Code(source.text, first=source.first, marks=(Mark(source.line, source.line, "bold"),))
    close = similar(finding, others)
    if close:
        yield Heading("similar findings")
        yield Items(tuple(f"  {one.id} ({one.state}) {one.title}" for one in close))


def _facts(finding: Finding) -> Iterator[tuple[str, str]]:
    facts = dict(facts_of(finding))
    yield from ((name, facts[name]) for name in ("state", "cause", "what to change"))
    if (answers := finding.answers) is not None:
        tried = f"{answers.verdict} (tried in {counted(answers.programs, 'program')}, torch {answers.torch})"
        patch = answers.fitting_patch(finding.expression)
        yield "what fixes it", tried if patch is None else f"{tried}\n{patch.code}"
    yield from ((name, facts[name]) for name in ("site", "condition", "verdicts", "torch", "links"))
    yield "notes", "\n".join(note.text for note in finding.notes)


def parts_of(text: str, lines: int) -> list[str]:
    """The text of a screen in parts of so many lines, each with as many as fit. Blank lines at the end are left out."""
    rows = text.rstrip("\n").splitlines(keepends=True)
    most = max(lines, 1)
    return ["".join(rows[first : first + most]).rstrip("\n") + "\n" for first in range(0, len(rows), most)]
