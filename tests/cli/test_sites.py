"""`ddefuzz sites`: text, JSON and HTML output, and that torch is not imported."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli.sites import command
from ddefuzz.errors import DatabaseError, InputError, UnsupportedError
from ddefuzz.findings import inventory
from ddefuzz.findings.database import Database
from ddefuzz.findings.inventory import Inventory
from ddefuzz.findings.ledger import SiteRecord
from tests.findings.arbitrary_findings import PROGRAM

TORCH = "2.13.0+made.up"
HOSTILE = "[bold]]\x1b[31m<script>alert(1)</script>|`"

REFS = '''\
"""A docstring.

def guard_or_false(x): not code
"""

from torch.fx import guard_or_false, guard_or_true


def unrelated(text="<script>"):
    return text


def _broadcast_shapes(shape, common_shape):
    for idx in shape:
        if guard_or_false(shape[idx] == 1) or guard_or_false(common_shape[idx] == 1):
            continue
        if not guard_or_true(
            shape[idx]
            < common_shape[idx]
        ):
            return None


def roll(a):
    """Has
    some lines."""
    if a.numel() == 0:
        return guard_or_false(a == "<b>&amp;")
'''

IR = "def size(x):\n    return V.guard_or_true(x)\n\n\n\x0c\ndef other(): ...\n\n\n"

RECORDS = (
    SiteRecord(
        *("Python", "torch/_refs/__init__.py", 15, "_broadcast_shapes", "guard_or_false"),
        fallbacks={"False": 3},
        old={"same": 2, "other": 1},
        cases=3,
        example=PROGRAM,
        stage="fake",
    ),
    SiteRecord(
        *("Python", "torch/_refs/__init__.py", 27, "roll", "guard_bool"),
        raised=2,
        cases=2,
        blamed=("torch/_refs/__init__.py:roll",),
        example=f"{PROGRAM}# {HOSTILE}",
        stage="export",
    ),
    SiteRecord(
        *("C++", "aten/src/ATen/ExpandUtils.cpp", 34, "", "guard_or_false"),
        fallbacks={"False": 1},
        old={"undecided": 1},
        cases=1,
        example=PROGRAM,
        stage="compile",
    ),
    SiteRecord(
        *("C++", "c10/core/SymInt.h", 301, f"at::native::chunk{HOSTILE}", "guard_bool"),
        raised=1,
        cases=1,
        blamed=("at::native::chunk",),
        example=PROGRAM,
        stage="export",
    ),
    SiteRecord("Python", "<program>", 4, "", "guard_int", raised=1, cases=1, blamed=("user code",), example=PROGRAM),
)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """A small torch, in the place of the installed one."""
    files = {"version.py": f"__version__ = {TORCH!r}\n", "_refs/__init__.py": REFS, "_inductor/ir.py": IR}
    for name, text in files.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = inventory.read(tmp_path / "torch")
    monkeypatch.setattr("ddefuzz.cli.sites.installed", lambda: found)
    return found


@pytest.fixture
def url(tmp_path: Path, made_up: Inventory) -> str:
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.add_sites(made_up.torch, RECORDS)
    return url


def sites(url: str, *args: str, columns: int = 160) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(command, [*args, "--db", url], catch_exceptions=False)


def rows(url: str, *args: str) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = json.loads(sites(url, "--format", "json", *args).stdout)
    return documents


def test_a_row_a_site(url: str) -> None:
    found = rows(url)
    assert [(row["language"], row["file"], row["line"], row["reached"]) for row in found] == [
        ("C++", "aten/src/ATen/ExpandUtils.cpp", 34, True),
        ("C++", "c10/core/SymInt.h", 301, True),
        ("Python", "<program>", 4, True),
        ("Python", "torch/_inductor/ir.py", 2, False),
        ("Python", "torch/_refs/__init__.py", 15, True),
        ("Python", "torch/_refs/__init__.py", 15, True),
        ("Python", "torch/_refs/__init__.py", 17, False),
        ("Python", "torch/_refs/__init__.py", 27, True),
        ("Python", "torch/_refs/__init__.py", 28, False),
    ]
    assert {row["schema"] for row in found} == {"ddefuzz.site/1"}
    first = next(row for row in found if row["line"] == 15)
    assert (first["function"], first["call"], first["on_line"]) == ("_broadcast_shapes", "guard_or_false", 2)
    assert (first["fallbacks"], first["old"]) == ({"False": 3}, {"same": 2, "other": 1})
    assert (first["raised"], first["cases"], first["example"], first["stage"]) == (0, 3, PROGRAM, "fake")
    lines = sites(url, "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == found


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--part", "core"], {15, 17, 27, 28}),
        (["--part", "inductor", "--part", "user"], {2, 4}),
        (["--language", "C++"], {34, 301}),
        (["--file", "*/_refs/*", "--raised"], {27}),
        (["--file", "aten/*", "--file", "c10/*"], {34, 301}),
        (["--uncovered"], {2, 17, 28}),
        (["--uncovered", "--part", "c++"], set()),
    ],
)
def test_filters(url: str, args: list[str], expected: set[int]) -> None:
    assert {row["line"] for row in rows(url, *args)} == expected


def test_the_table_says_what_was_reached_and_what_is_left(url: str) -> None:
    shown = sites(url, columns=200).stdout
    row = next(line for line in shown.splitlines() if "__init__.py:15" in line)
    assert row.split()[:2] == ["core", "torch/_refs/__init__.py:15"]
    assert "False 3" in row
    assert "not reached" in next(line for line in shown.splitlines() if "ir.py:2" in line)
    core = next(line for line in shown.splitlines() if line.startswith("core  ") and "%" in line)
    assert core.split() == ["core", "4", "2", "(50%)", "1", "1"]
    assert "2 reached calls on a line with another call of the same name" in shown
    assert "fallback sites: 2 seen, 1 of them in one case, 0 in two; the next one reached is new with a chance" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 160, 200])
@pytest.mark.parametrize("args", [[], ["--uncovered"], ["--summary"]])
def test_pages_fit(url: str, columns: int, args: list[str]) -> None:
    lines = sites(url, *args, columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in "".join(lines)
    assert any("inductor" in line for line in lines)
    if not args:
        shown = "".join("".join(lines).split())
        assert "torch/_refs/__init__.py:15" in shown
        assert "_broadcast_shapes" in shown


def test_the_summary_alone(url: str) -> None:
    assert "_broadcast_shapes" not in sites(url, "--summary").stdout
    said = json.loads(sites(url, "--summary", "--format", "json").stdout)
    assert (said["schema"], said["torch"], said["call_sites"]) == ("ddefuzz.sites/1", TORCH, 3)
    assert said["parts"][0] == {"part": "core", "listed": 4, "reached": 2, "unlisted": 1, "fell_back": 1}
    assert said["estimates"]["fallback sites"]["seen"] == 2


def test_markdown_and_files(url: str, tmp_path: Path) -> None:
    result = sites(url, "--format", "markdown", "--output", f"text={tmp_path}/a.txt")
    table = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert table[0] == "| part | site | function | call | fell back | size-oblivious | raised | cases |"
    assert all(line.replace("\\|", "").count("|") in (6, 9) for line in table)
    assert "torch/_refs/__init__.py:15" in (tmp_path / "a.txt").read_text()


def test_a_database_without_sites_lists_what_there_is_to_reach(made_up: Inventory, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    Database.open(url).close()
    assert len(rows(url)) == len(made_up.calls) == 5
    shown = sites(url).stdout
    assert "no run has reached a site yet: start with `ddefuzz run`" in shown
    assert "Chao1" not in shown


def test_another_torch_in_the_database(made_up: Inventory, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/other.db"
    with Database.open(url) as database:
        database.add_sites("2.12.0", RECORDS)
    with pytest.raises(
        InputError, match=r"found sites of torch 2.12.0, expected some of the installed .*--torch 2.12.0"
    ):
        sites(url)
    assert {row["listed"] for row in rows(url, "--torch", "2.12.0")} == {False}
    assert f"the installed source is that of torch {TORCH}" in sites(url, "--torch", "2.12.0", columns=200).stdout
    with Database.open(url) as database:
        database.add_sites(made_up.torch, RECORDS)
    assert "the database also has torch 2.12.0: `--torch 2.12.0`" in sites(url, columns=200).stdout
    with pytest.raises(InputError, match=r"--torch: found '1.0', expected .* that .* has sites of: 2.12.0"):
        sites(url, "--torch", "1.0")


def test_no_database_no_torch_and_no_sense(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatabaseError):
        sites(f"sqlite:///{tmp_path}/none.db")
    assert sites(url, "--raised", "--uncovered").exit_code == 2
    assert sites(url, "--part", "kitchen").exit_code == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("ddefuzz.cli.sites.installed", inventory.installed)
    with pytest.raises(UnsupportedError, match="found no torch"):
        sites(url)


class Page(HTMLParser):
    """What a page refers to, and what it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.classes: dict[str, str] = {}
        self.titles: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("href", "src") and value is not None]
        if (name := known.get("id")) is not None:
            self.ids.append(name)
            self.classes[name] = known.get("class") or ""
        if (title := known.get("title")) is not None:
            self.titles.append(title)


def test_the_pages(url: str, tmp_path: Path) -> None:
    result = sites(url, "--summary", "--html", str(tmp_path / "html"))
    assert result.stderr == f"written: {tmp_path / 'html' / 'index.html'}\n"
    pages = {path.name: Page(path) for path in (tmp_path / "html").iterdir()}
    assert set(pages) == {"index.html", "elsewhere.html", "torch._refs.__init__.html", "torch._inductor.ir.html"}
    for name, page in pages.items():
        assert not page.tags & {"script", "link", "img", "iframe"}
        assert len(page.ids) == len(set(page.ids))
        for link in page.links:
            target, part = urldefrag(link)
            assert not part or unquote(part) in pages[target or name].ids
            assert not target or target in pages
    source = pages["torch._refs.__init__.html"]
    of_ir = pages["torch._inductor.ir.html"]
    assert [int(name[1:]) for name in of_ir.ids if name.startswith("L")] == [1, 2, 3, 4, 5]
    assert "lines 6 to 8, without sites" in (tmp_path / "html" / "torch._inductor.ir.html").read_text()
    states = {name: of for name, of in source.classes.items() if of not in ("", "source-line")}
    assert states == {
        "L15": "source-line good",
        **{f"L{number}": "source-line bad" for number in (17, 18, 19, 20, 28)},
        "L27": "source-line warn",
    }
    assert any("False 3; size-oblivious: same 2, other 1; 2 calls on this line" in tip for tip in source.titles)
    text = (tmp_path / "html" / "torch._refs.__init__.html").read_text()
    assert "lines 1 to 12, without sites" in text
    assert "&lt;script&gt;" in text


def test_pages_of_a_filter_and_of_another_torch(url: str, tmp_path: Path) -> None:
    sites(url, "--language", "C++", "--html", str(tmp_path / "cxx"))
    assert {path.name for path in (tmp_path / "cxx").iterdir()} == {"index.html", "elsewhere.html"}
    with Database.open(url) as database:
        database.add_sites("2.12.0", RECORDS)
    sites(url, "--torch", "2.12.0", "--html", str(tmp_path / "old"))
    assert {path.name for path in (tmp_path / "old").iterdir()} == {"index.html", "elsewhere.html"}
    assert "_broadcast_shapes" in (tmp_path / "old" / "elsewhere.html").read_text()


def test_a_site_shows_no_other_file_than_a_source_of_torch(url: str, made_up: Inventory, tmp_path: Path) -> None:
    """A row may have come from the database of another person (`findings merge`)."""
    (tmp_path / "secret.py").write_text("SECRET = 1\n")
    (tmp_path / "torch" / "notes.txt").write_text("SECRET = 2\n")
    files = (
        "torch/../secret.py",
        "secret.py",
        f"{tmp_path}/secret.py",
        "torch/notes.txt",
        "torch/../../../../proc/kmsg",
    )
    with Database.open(url) as database:
        database.add_sites(made_up.torch, [SiteRecord("Python", file, 1, "f", "g", cases=1) for file in files])
    sites(url, "--html", str(tmp_path / "html"))
    pages = {path.name: path.read_text() for path in (tmp_path / "html").iterdir()}
    assert set(pages) == {"index.html", "elsewhere.html", "torch._refs.__init__.html", "torch._inductor.ir.html"}
    assert not any("SECRET" in text for text in pages.values())
    assert all(file in pages["elsewhere.html"] for file in files)


def test_a_folder_that_cannot_be_written(url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert sites(url, "--html", str(tmp_path / "file")).exit_code == 2


@pytest.mark.slow
def test_torch_is_not_imported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    Database.open(url).close()
    args = ["--db", url, "--part", "core", "--uncovered", "--html", str(tmp_path / "html")]
    code = f"""
import sys
from ddefuzz.cli.sites import command

command({args!r}, standalone_mode=False)
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pages_of_others_are_left_alone(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text("<title>mine</title>")
    with pytest.raises(InputError, match=r"index\.html: found a file that ddefuzz did not write"):
        sites(url, "--summary", "--html", str(folder))
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    (folder / "index.html").unlink()
    assert [sites(url, "--summary", "--html", str(folder)).exit_code for _ in range(2)] == [0, 0]
