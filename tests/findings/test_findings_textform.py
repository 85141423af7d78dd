"""The text form has the content of the database, in the same bytes each time, and is read strictly."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
import tomli_w
from hypothesis import given, settings

from ddefuzz.errors import InputError, refusals
from ddefuzz.files import MAX_OCCURRENCES, _process_numbers
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, By, set_state
from ddefuzz.findings.model import Finding, Occurrence, portable, stamp
from ddefuzz.findings.schema import PackedError, unpacked
from ddefuzz.findings.textform import ObservedFields, read_finding, read_findings, read_known, write_findings
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, START, databases, failure_of, sighting

ROOT = Path(__file__).parents[2]
SEEN = Occurrence("2.13.0", "export", "explicit", "torch.chunk", "open", 1, stamp(START), stamp(START))


def finding(signature: object = CHUNK) -> Finding:
    assert signature in {CHUNK, ROLL}
    one = CHUNK if signature == CHUNK else ROLL
    return Finding(
        id=one.key,
        signature=one,
        cause="avoidable",
        original=PROGRAM,
        minimal=PROGRAM,
        steps=1,
        failure=failure_of(one),
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
@settings(database=None, deadline=None, derandomize=True, max_examples=25)
@given(databases())
def test_database_to_text_to_database(found: tuple[Finding, ...]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name) / "findings"
        write_findings(found, folder)
        written = files(folder)
        assert read_findings(folder, START) == found
        with Database.open(f"sqlite:///{name}/ddefuzz.db") as database:
            database.merge(read_findings(folder, START))
            assert database.findings() == found
            write_findings(reversed(database.findings()), folder)
        assert files(folder) == written


def test_a_folder_a_finding(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    assert sorted(files(tmp_path)) == [
        f"{CHUNK.key}/{name}" for name in ("finding.toml", "minimal.py", "observed.json.gz", "original.py")
    ] + ["known.toml"]
    assert (tmp_path / CHUNK.key / "minimal.py").read_text() == PROGRAM


def test_findings_that_are_gone_leave_but_other_files_stay(tmp_path: Path) -> None:
    write_findings([finding(CHUNK), finding(ROLL)], tmp_path)
    (tmp_path / "README.md").write_text("ours")
    (tmp_path / ROLL.key / "notes.txt").write_text("ours too")
    write_findings([], tmp_path)
    assert sorted(files(tmp_path)) == ["README.md", f"{ROLL.key}/notes.txt", "known.toml"]


def test_a_finding_that_is_gone_leaves_with_what_a_killed_export_left(tmp_path: Path) -> None:
    back = msgspec.structs.replace(finding(), id=f"{CHUNK.key}-2")
    write_findings([finding(), back], tmp_path)
    with subprocess.Popen(["true"]) as ended:
        pass
    (tmp_path / back.id / f".ddefuzz-{_process_numbers()}-{ended.pid}-abcd1234").touch()
    (tmp_path / CHUNK.key / f".ddefuzz-{_process_numbers()}-{ended.pid}-abcd1234").touch()
    write_findings([finding()], tmp_path)
    assert sorted(place.name for place in tmp_path.iterdir()) == [CHUNK.key, "known.toml"]
    assert not any(place.name.startswith(".") for place in (tmp_path / CHUNK.key).iterdir())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f'[{CHUNK.key}]\nstate = "triaged"\n', rf"\[{CHUNK.key}\]: found a decision that only this file has"),
        ('[dde-0000000000]\nstate = "triaged"\n', r"\[dde-0000000000\]: found a decision that only this file has"),
    ],
)
def test_decisions_that_were_not_imported_are_not_replaced(tmp_path: Path, text: str, found: str) -> None:
    write_findings([finding()], tmp_path)
    (tmp_path / "known.toml").write_text(text)
    before = files(tmp_path)
    with pytest.raises(InputError, match=f"known.toml: {found}"):
        write_findings([finding(ROLL)], tmp_path)
    assert files(tmp_path) == before


def test_decisions_that_were_imported_or_exported_are_replaced(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    (tmp_path / "known.toml").write_text(f'[{CHUNK.key}]\nstate = "triaged"\nurl = "https://x"\n')
    write_findings(read_findings(tmp_path, START), tmp_path)
    assert read_known(tmp_path / "known.toml")[CHUNK.key].url == "https://x"
    write_findings([finding()], tmp_path)  # a decision of the database has been undone there
    assert read_known(tmp_path / "known.toml") == {}


def test_a_decision_written_into_known_toml_counts_and_is_logged(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    (tmp_path / "known.toml").write_text(
        f'[{CHUNK.key}]\nstate = "triaged"\nreason = "as in #1"\nexpires = 2027-01-31\nurl = "https://x"\n'
    )
    (read,) = read_findings(tmp_path, START + timedelta(hours=1))
    assert (read.state, read.expires, read.links) == ("triaged", "2027-01-31", ("https://x",))
    assert {(entry.who, entry.field, entry.before, entry.after, entry.why) for entry in read.history} == {
        ("known.toml", "state", "new", "triaged", "as in #1"),
        ("known.toml", "expires", "", "2027-01-31", "as in #1"),
        ("known.toml", "links", "", "https://x", ""),
    }


NOTE_WITH_NUL = '[[notes]]\nwhen = "2025-01-31T00:00:00.000000Z"\nwho = "a"\ntext = "a\\u0000b"'
DUPLICATE = 'state = "duplicate"\nduplicate_of = '
DECISION = 'state = "triaged"\nreason = "as in #1"\nexpires = 2027-01-31\nurl = "https://x"\n'

Damage = Callable[[Path], object]
OCCURRENCE = (
    '{"torch": "2.13.0", "stage": "export", "semantics": "explicit", "op": "torch.chunk", "verdict": "fails", '
    '"count": 1, "first_seen": "2025-01-31T12:00:00.000000Z", '
    '"last_seen": "2025-01-31T12:00:00.000000Z"}'
)

DAMAGES: tuple[tuple[str, Damage, str], ...] = (
    (
        "an unknown key",
        lambda place: append(place / "finding.toml", "typo = 1", at_start=True),
        "finding.toml: found the unknown key 'typo', expected the keys schema, title, ",
    ),
    ("not TOML", lambda place: (place / "finding.toml").write_text("= 1"), "finding.toml: .*line 1"),
    ("not text", lambda place: (place / "finding.toml").write_bytes(b"\xff"), "finding.toml: "),
    (
        "another schema",
        lambda place: replace(place / "finding.toml", "ddefuzz.finding/3", "ddefuzz.finding/9"),
        "found schema 'ddefuzz.finding/9', expected 'ddefuzz.finding/3'",
    ),
    ("another id", lambda place: replace(place / "finding.toml", CHUNK.key, ROLL.key), "expected that of its folder"),
    (
        "another signature",
        lambda place: replace(place / "finding.toml", "guard_int", "guard_bool"),
        "is not of this signature, expected 'dde-",
    ),
    (
        "a title that is a number",
        lambda place: replace(place / "finding.toml", 'title = "', 'title = 5 # "'),
        "finding.toml: found the title 5, expected text",
    ),
    (
        "a title of several",
        lambda place: replace(place / "finding.toml", 'title = "', 'title = ["a"] # "'),
        r"finding.toml: found the title \['a'\], expected text",
    ),
    *(
        (
            f"a link to itself as {name}",
            lambda place, name=name: link(place / name, (place / name).name),
            f"{name}: cannot be read: Too many levels of symbolic links, expected a regular file",
        )
        for name in ("finding.toml", "minimal.py", "original.py", "observed.json.gz", "../known.toml")
    ),
    (
        "a link to nothing as minimal.py",
        lambda place: link(place / "minimal.py", "nothing"),
        "minimal.py: cannot be read: No such file or directory, expected a regular file",
    ),
    (
        "an unknown state",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "done"'),
        "finding.toml: state: found 'done', expected one of by-design, duplicate, ",
    ),
    (
        "a cause of before the table of causes",
        lambda place: replace(place / "finding.toml", 'cause = "avoidable"', 'cause = "framework"'),
        "finding.toml: found the cause 'framework', expected one of avoidable, symbolic-form, int-required, ",
    ),
    (
        "an expiry that is no date",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "new"\nexpires = "soon"'),
        "finding.toml: found the date 'soon', expected one such as 2027-01-31",
    ),
    (
        "a note of no day",
        lambda place: append(
            place / "finding.toml", '[[notes]]\nwhen = "2025-02-30T00:00:00.000000Z"\nwho = "a"\ntext = "b"'
        ),
        r"finding.toml: found the time '2025-02-30T00:00:00.000000Z', expected one such as .* \(notes\[0\]\)",
    ),
    (
        "a change at no time",
        lambda place: append(
            place / "finding.toml", '[[history]]\nwhen = "soon"\nwho = "a"\nfield = "b"\nbefore = ""\nafter = ""'
        ),
        r"finding.toml: found the time 'soon', expected one such as .* \(history\[0\]\)",
    ),
    (
        "a sighting at no time",
        lambda place: sighted(place, OCCURRENCE.replace("-31T", "-32T")),
        r"observed.json.gz: found the time '2025-01-32T12:00:00.000000Z', expected one such as .*occurrences",
    ),
    (
        "a sighting under no version of torch",
        lambda place: sighted(place, OCCURRENCE.replace("2.13.0", "new")),
        "finding.toml: found 'new', expected a version of torch such as 2.14.0",
    ),
    (
        "a version that is none",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "fixed"\nfixed_in = ["soon"]'),
        "finding.toml: found 'soon', expected a version of torch such as 2.14.0",
    ),
    (
        "a link without a host",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "new"\nlinks = ["http://[::1"]'),
        r"finding.toml: URL: found 'http://\[::1', expected one with a host, such as https://github.com/",
    ),
    (
        "a link that a browser would run",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "new"\nlinks = ["data:,x"]'),
        r"finding.toml: URL: found 'data:,x', expected one that starts with https://",
    ),
    *(
        (
            f"the label {label}",
            lambda place, label=label: replace(
                place / "finding.toml", 'state = "new"', f'state = "new"\nlabels = ["{label}"]'
            ),
            "finding.toml: found the label .*, expected a word such as backward",
        )
        for label in (r"a\nb", "a b", "", "-a", "+a", r"a\u001b")
    ),
    (
        "a confirmation by more runs than there were",
        lambda place: append(place / "finding.toml", "[confirmed]\nk = 9\nn = 1\n"),
        "finding.toml: found a confirmation by 9 of 1 runs, expected at most all of them",
    ),
    (
        "a former id that is none",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "new"\nformer = ["../x"]'),
        "finding.toml: found the former id '../x', expected one such as dde-1937c0d9a9",
    ),
    (
        "a decision with a link that is none",
        lambda place: append(place.parent / "known.toml", f'[{CHUNK.key}]\nstate = "triaged"\nurl = "x:y"'),
        rf"known.toml: \[{CHUNK.key}\]: URL: found 'x:y', expected one that starts with https://",
    ),
    (
        "a decision for a version that is none",
        lambda place: append(place.parent / "known.toml", f'[{CHUNK.key}]\nstate = "triaged"\nversions = ["x"]'),
        rf"known.toml: \[{CHUNK.key}\]: found 'x', expected a version of torch such as 2.14.0",
    ),
    (
        "a note with NUL",
        lambda place: append(place / "finding.toml", NOTE_WITH_NUL),
        r"finding.toml: notes\[0\].text: found 'a\\x00b', expected text in UTF-8 without NUL",
    ),
    (
        "an op with NUL",
        lambda place: sighted(place, OCCURRENCE.replace("torch.chunk", r"torch\u0000")),
        r"finding.toml: occurrences\[0\].op: found 'torch\\x00', expected text in UTF-8 without NUL",
    ),
    (
        "a reason with NUL",
        lambda place: append(place.parent / "known.toml", f'[{CHUNK.key}]\nstate = "triaged"\nreason = "a\\u0000b"'),
        r"known.toml: \[dde-.*\]: reason: found 'a\\x00b', expected text in UTF-8 without NUL",
    ),
    (
        "a duplicate of nothing",
        lambda place: replace(place / "finding.toml", 'state = "new"', 'state = "duplicate"'),
        "found state 'duplicate' and duplicate_of None",
    ),
    (
        "a duplicate of itself",
        lambda place: replace(place / "finding.toml", 'state = "new"', f'{DUPLICATE}"{CHUNK.key}"'),
        "expected the id of another finding",
    ),
    (
        "what follows from the observations, otherwise",
        lambda place: replace(place / "finding.toml", "Eq(u0, 0)", "Eq(u0, 1)"),
        r"found expression 'Eq\(u0, 1\)', expected 'Eq\(u0, 0\)' as observed.json.gz says",
    ),
    (
        "what is kept apart",
        lambda place: append(place / "finding.toml", "attempts = 1", at_start=True),
        "found the key 'attempts', expected it in observed.json.gz",
    ),
    (
        "observations that are not compressed",
        lambda place: (place / "observed.json.gz").write_text("{}"),
        "observed.json.gz: found bytes that gzip cannot read",
    ),
    (
        "observations that are cut short",
        lambda place: observed(place, observed(place)[:-9]),
        "observed.json.gz: found a gzip file that is cut short",
    ),
    (
        "more behind the observations",
        lambda place: observed(place, observed(place) + b"more"),
        "observed.json.gz: found a gzip file that is cut short or has data after its end",
    ),
    (
        "observations of another kind",
        lambda place: observed(place, gzip.compress(b'{"schema": "ddefuzz.observed/1", "typo": 1}')),
        "observed.json.gz: found the unknown key 'typo', expected the keys schema, ",
    ),
    *(
        (
            f"a stored failure with {new.decode()}",
            lambda place, old=old, new=new: observed(
                place, gzip.compress(gzip.decompress(observed(place)).replace(old, new, 1))
            ),
            f"finding.toml: {message}",
        )
        for old, new, message in (
            (b'"kind":"dde"', b'"kind":"slow-export"', "found a stored failure of kind 'slow-export', expected 'dde'"),
            (b'"stage":"export"', b'"stage":"grow"', "found the stage 'grow', expected one of eager, "),
            (b'"measured":null', b'"measured":{"type":"keyed"}', "found a measurement of type 'keyed', expected none"),
        )
    ),
    (
        "a number that no frame has",
        lambda place: observed(place, gzip.compress(gzip.decompress(observed(place)).replace(b":4098", b":null"))),
        r"observed.json.gz: failure.observation.raised.place.line: found nothing, expected an integer",
    ),
    (
        "a line that no file has",
        lambda place: observed(place, gzip.compress(gzip.decompress(observed(place)).replace(b":4098", b":-4098"))),
        r"observed.json.gz: failure.observation.raised.place.line: found -4098, expected an integer >= 0",
    ),
    (
        "a version that no torch has",
        lambda place: sighted(place, OCCURRENCE.replace("2.13.0", f"2.{'9' * 5_000}.0")),
        "finding.toml: found '2.9{58}', expected a version of torch such as 2.14.0",
    ),
    (
        "a number that no database has",
        lambda place: replace(place / "finding.toml", "steps = 1", f"steps = {2**63}"),
        r"finding.toml: steps: found \d+, expected an integer <= 9223372036854775807",
    ),
    (
        "more sightings than a database adds up",
        lambda place: sighted(place, OCCURRENCE.replace('"count": 1', f'"count": {10**12 + 1}')),
        r"observed.json.gz: occurrences\[0\].count: found 1000000000001, expected an integer <= 1000000000000",
    ),
    (
        "values nested too deeply",
        lambda place: append(place / "finding.toml", f"typo = {'[' * 20_000}", at_start=True),
        "finding.toml: found values nested too deeply",
    ),
    (
        "one place twice",
        lambda place: observed(place, gzip.compress(f'{{"occurrences": [{OCCURRENCE}, {OCCURRENCE}]}}'.encode())),
        "found two occurrences of one torch, stage, semantics and op",
    ),
    (
        "a hostile program",
        lambda place: append(place / "minimal.py", "import os"),
        r"minimal.py:\d+: found ",
    ),
    (
        "a call that is not in the catalogue",
        lambda place: replace(place / "original.py", "torch.chunk", "torch.load"),
        r"original.py:4: found .*torch\.load",
    ),
    (
        "a decision on nothing",
        lambda place: append(place.parent / "known.toml", '["dde-0000000000"]\nstate = "triaged"'),
        "known.toml: found 'dde-0000000000'",
    ),
    (
        "an unknown key in a decision",
        lambda place: append(
            place.parent / "known.toml",
            f'[{CHUNK.key}]\nstate = "triaged"\nbecause = "?"',
        ),
        "known.toml: .*: found the unknown key 'because', expected the keys state, title, ",
    ),
)


def observed(place: Path, content: bytes | None = None) -> bytes:
    """The file of observations; with content it is written first."""
    if content is not None:
        (place / "observed.json.gz").write_bytes(content)
    return (place / "observed.json.gz").read_bytes()


def sighted(place: Path, occurrence: str) -> None:
    """Replace what the campaign saw by one occurrence, and what follows from it."""
    observed(place, gzip.compress(f'{{"schema": "ddefuzz.observed/1", "occurrences": [{occurrence}]}}'.encode()))
    path = place / "finding.toml"
    followed = ("expression", "stage", "data_dependent", "ops", "stages", "torch_versions")
    fields = {name: value for name, value in tomllib.loads(path.read_text()).items() if name not in followed}
    path.write_text(tomli_w.dumps(fields))


def link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def append(path: Path, text: str, *, at_start: bool = False) -> None:
    old = path.read_text()
    path.write_text(f"{text}\n{old}" if at_start else f"{old}\n{text}\n")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(("damage", "message"), [pytest.param(d, m, id=name) for name, d, m in DAMAGES])
def test_what_does_not_belong_is_said_with_its_place(tmp_path: Path, damage: Damage, message: str) -> None:
    write_findings([finding()], tmp_path)
    damage(tmp_path / CHUNK.key)
    with pytest.raises(InputError, match=message):
        read_findings(tmp_path, START)


def test_measurements_of_older_versions_are_read_and_none_is_lost(tmp_path: Path) -> None:
    kept = ROOT / "findings" / "key-confuses-31e76a6e99"
    before, place = read_finding(kept), tmp_path / kept.name
    shutil.copytree(kept, place)
    fields = json.loads(gzip.decompress(observed(kept)))
    assert "keyed" in fields["failure"]["observation"]
    observed(place, gzip.compress(json.dumps(fields, indent=1).encode()))
    assert read_finding(place) == before
    del fields["shown"]["observation"]["keyed"]
    observed(place, gzip.compress(json.dumps(fields).encode()))
    with pytest.raises(InputError, match=r"31e76a6e99/finding.toml: found no measurement in its stored failure"):
        read_finding(place)


def test_what_is_empty_is_read_again(tmp_path: Path) -> None:
    signature = msgspec.structs.replace(CHUNK, anchor="")
    one = msgspec.structs.replace(finding(), id=signature.key, signature=signature)
    write_findings([one], tmp_path)
    (read,) = read_findings(tmp_path, START)
    assert read.signature == signature


def test_a_finding_that_could_not_be_read_again_is_left_out(tmp_path: Path) -> None:
    write_findings([finding(CHUNK), finding(ROLL)], tmp_path)
    before = files(tmp_path)
    large = msgspec.structs.replace(finding(CHUNK), given_title="t" * 600_000)
    message = f"{CHUNK.key}: found 12[0-9]{{5}} bytes of notes and other text, expected at most the 1048576 "
    with pytest.raises(InputError, match=message):
        write_findings([large], tmp_path)
    with refusals() as left_out:
        assert write_findings([large, msgspec.structs.replace(finding(ROLL), owner="ada")], tmp_path) == 1
    assert len(left_out) == 1
    assert {name for name, content in files(tmp_path).items() if content != before[name]} == {
        f"{ROLL.key}/finding.toml"
    }
    assert len(read_findings(tmp_path, START)) == 2


def test_one_that_cannot_be_read_is_left_out_with_its_duplicates_and_never_removed(tmp_path: Path) -> None:
    double = msgspec.structs.replace(finding(ROLL), state="duplicate", duplicate_of=CHUNK.key)
    write_findings([finding(CHUNK), double], tmp_path)
    (tmp_path / CHUNK.key / "finding.toml").write_text("kind = [")
    before = files(tmp_path)
    with refusals() as left_out:
        assert read_findings(tmp_path, START) == ()
    assert [line.partition(": ")[2][:16] for line in left_out] == ["found an unreada", "duplicate_of 'dd"]
    with refusals() as left_out:
        write_findings([finding(ROLL)], tmp_path)
    assert (len(left_out), files(tmp_path)[f"{CHUNK.key}/finding.toml"]) == (1, b"kind = [")
    assert {name for name in before if name.startswith(CHUNK.key)} <= files(tmp_path).keys()


def test_a_program_that_is_none_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{CHUNK.key}:1: found "):
        write_findings([msgspec.structs.replace(finding(), minimal="import os")], tmp_path)


def test_a_file_of_decisions_with_conflicts_is_not_replaced(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    append(tmp_path / "known.toml", "<<<<<<< ours")
    before = files(tmp_path)
    with pytest.raises(InputError, match=r"known.toml: found an unreadable file"):
        write_findings([finding(ROLL)], tmp_path)
    assert files(tmp_path) == before


def test_a_path_of_the_machine_in_a_failure_is_written_and_read_alike(tmp_path: Path) -> None:
    one = msgspec.structs.replace(finding(), failure=failure_of(CHUNK, "1 > u0 /tmp/a/b"))
    write_findings([one], tmp_path)
    (read,) = read_findings(tmp_path, START)
    assert "/tmp/a" not in (read.expression or "")
    write_findings([read], tmp_path / "again")
    assert read_findings(tmp_path / "again", START) == (read,)


def test_no_decision_makes_a_finding_that_cannot_be_exported(tmp_path: Path) -> None:
    (noted,) = (row for row in DECISIONS if row.name == "note")
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as database:
        database.record(sighting(), START)
        for number in range(9):
            database.apply(CHUNK.key, [(noted, f"{number}" * 110_000)], By("ada", START))
        with pytest.raises(InputError, match="bytes of notes and other text"):
            database.apply(CHUNK.key, [(noted, "9" * 110_000)], By("ada", START))
        write_findings(database.findings(), tmp_path / "text")
    (read,) = read_findings(tmp_path / "text", START)
    assert len(read.notes) == 9


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_findings(tmp_path / "none", START)


def test_a_full_disk_leaves_the_old_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_findings([finding()], tmp_path)
    before = files(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ddefuzz.files.os.fsync", full)
    changed = msgspec.structs.replace(finding(), given_title="another")
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_findings([changed], tmp_path)
    assert files(tmp_path) == before


def test_a_single_finding_is_no_folder_of_findings(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    with pytest.raises(InputError, match="found a finding, expected the folder that it is in"):
        read_findings(tmp_path / finding().id, START)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[" * 100_000, "found maximum recursion depth exceeded"),
        (b'{"failure": 5, "other": "\\ud800x"}', "found "),
        (b'{"failure": 5, "other": "\xff"}', "found "),
    ],
)
def test_damage_after_what_does_not_fit_is_said(text: bytes, said: str) -> None:
    with pytest.raises(PackedError, match=said):
        unpacked(gzip.compress(text), ObservedFields)


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b" " * (1 << 20) + b"{}")
    with pytest.raises(PackedError, match="found more than 0 MiB when unpacked"):
        unpacked(bomb, ObservedFields, most=1 << 10)


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("/home/ada/env/lib/python3.11/site-packages/torch/a.py:3] kept", "torch/a.py:3] kept"),
        ("in:\n/x/dist-packages/sympy/b.py", "in:\nsympy/b.py"),
        ("'/x/site-packages/y/site-packages/torch/c.py'", "'torch/c.py'"),
        ("at /tmp/tmpf272/tmpm\nin /tmp/x/y.py\n/tmp/z.py", "at {0}\nin {0}/y.py\n{0}/z.py"),
        # With a square of the length, each of these takes minutes.
        ("a" * 1_000_000 + "/", "a" * 1_000_000 + "/"),
        ("/site-package" * 80_000, "/site-package" * 80_000),
    ],
    ids=["packages", "after a newline", "twice", "temporary", "no end", "many beginnings"],
)
def test_paths_of_the_machine_are_not_written(message: str, written: str) -> None:
    (error,) = failure_of(CHUNK).observation.exceptions
    small = portable(msgspec.structs.replace(error, message=message))
    assert small.message == written.format("<temporary folder>")


def test_programs_with_line_ends_of_windows(tmp_path: Path) -> None:
    write_findings([finding()], tmp_path)
    (before,) = read_findings(tmp_path, START)
    for path in (tmp_path / CHUNK.key).glob("*.py"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_findings(tmp_path, START) == (before,)
    assert before.minimal or before.original


def test_counts_and_dates_change_no_file_that_people_read(tmp_path: Path) -> None:
    one = msgspec.structs.replace(finding(), occurrences=(SEEN,))
    write_findings([one], tmp_path)
    before = files(tmp_path)
    again = msgspec.structs.replace(SEEN, count=9, last_seen=stamp(START + timedelta(days=365)))
    write_findings([msgspec.structs.replace(one, attempts=7, occurrences=(again,))], tmp_path)
    changed = {name for name, content in files(tmp_path).items() if content != before[name]}
    assert changed == {f"{CHUNK.key}/observed.json.gz"}


def test_a_second_campaign_changes_only_what_is_new(tmp_path: Path) -> None:
    """More sightings of the same change no file that people read. Another op changes one line."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with Database.open(url) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.decide(CHUNK.key, lambda one: set_state(one, "triaged", By("ada", START)))
        write_findings(database.findings(), tmp_path / "findings")
        before = files(tmp_path / "findings")
        for hours in range(1, 20):
            database.record(sighting(CHUNK), START + timedelta(hours=hours))
        write_findings(database.findings(), tmp_path / "findings")
        after = files(tmp_path / "findings")
        assert {name for name in after if after[name] != before.get(name)} == {f"{CHUNK.key}/observed.json.gz"}
        database.record(sighting(CHUNK, ops=("torch.chunk", "torch.split")), START + timedelta(hours=20))
        write_findings(database.findings(), tmp_path / "findings")
        third = files(tmp_path / "findings")
    toml = f"{CHUNK.key}/finding.toml"
    assert {name for name in third if third[name] != after[name]} == {f"{CHUNK.key}/observed.json.gz", toml}
    changed = set(third[toml].splitlines()) ^ set(after[toml].splitlines())
    assert changed == {b'    "torch.split",'}


def test_more_occurrences_than_are_read_again_are_not_written(tmp_path: Path) -> None:
    many = tuple(msgspec.structs.replace(SEEN, op=f"torch.op{number}") for number in range(MAX_OCCURRENCES + 1))
    with pytest.raises(InputError, match="found 10001 occurrences, expected at most 10000"):
        write_findings([msgspec.structs.replace(finding(), occurrences=many)], tmp_path)
    assert not any(tmp_path.iterdir())
