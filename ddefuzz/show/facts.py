"""The facts of a finding for people: names and values, the rows of its experiment, the meaning of verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from ddefuzz.answers.model import Answers, PatchEvidence, Tally
from ddefuzz.classify.cause import MEANINGS, PROOFS
from ddefuzz.classify.wording import question
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, id_of, sequence_of
from ddefuzz.oracles.table import oracle_of
from ddefuzz.oracles.verdict import Verdict
from ddefuzz.show.blocks import Block, Items, Row, Table, counted, table

VERDICTS: MappingProxyType[Verdict, str] = MappingProxyType(
    {
        "ok": "captured, as with size-oblivious semantics",
        "rescued": "captured, where size-oblivious semantics cannot decide a guard",
        "fails": "not captured",
        "changed": "captured as another graph than with size-oblivious semantics",
        "regressed": "not captured, but captured with size-oblivious semantics",
        "diverged": "the captured program computes other values than eager",
        "not-judged": "no verdict: a run was not judged",
    }
)
"""The verdicts: what happens with explicit unbacked semantics, compared with size-oblivious semantics."""


def verdicts_line(shown: Iterable[str | None]) -> str:
    """The meaning of the verdicts on a page, except `ok`."""
    said = set(shown) - {"ok"}
    return "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in said)


def facts_of(finding: Finding) -> tuple[tuple[str, str], ...]:
    """Names and values. A value is empty if it is not known."""
    begun, ended = ((time or "")[:16].replace("T", " ") for time in (finding.first_seen, finding.last_seen))
    times = "once" if finding.count == 1 else f"{finding.count} times"
    seen_in = begun if begun == ended else f"{begun} to {ended}"
    stages_of = {name: [stage for stage, seen in finding.verdicts.items() if seen == name] for name in VERDICTS}
    verdicts = [f"{name} in {', '.join(stages)} ({VERDICTS[name]})" for name, stages in stages_of.items() if stages]
    of = f" of {finding.duplicate_of}" if finding.duplicate_of else ""
    return (
        ("kind", finding.kind),
        ("cause", f"{finding.cause}: {MEANINGS[finding.cause].meaning}"),
        ("what to change", MEANINGS[finding.cause].fix),
        ("site", f"{finding.site} ({finding.site.language})"),
        ("code at the site", finding.anchor),
        ("condition", _undecided(finding)),
        ("calls", "\n".join(_calls(finding))),
        *(oracle_of(finding.kind).facts(finding.evidence) if finding.evidence is not None else ()),
        ("reached by", ", ".join(finding.shown_ops)),
        ("also reached by", ", ".join(op for op in finding.ops if op not in finding.shown_ops)),
        ("depends on data", _depends_on_data(finding)),
        ("verdicts", "\n".join(verdicts)),
        ("torch", ", ".join(finding.torch_versions)),
        ("state", f"{finding.state}{of}: {ROWS[finding.state].meaning}"),
        ("fixed in", ", ".join(finding.fixed_in)),
        ("returned", _ancestor(finding)),
        ("decision for", ", ".join(finding.known_in)),
        ("decision until", finding.expires),
        ("owner", finding.owner),
        ("priority", finding.priority),
        ("labels", ", ".join(finding.labels)),
        ("confirmed", _confirmed(finding)),
        ("seen", f"{times}, {seen_in} UTC" if begun and ended else ""),
        ("former ids", ", ".join(finding.former)),
        ("links", "\n".join(finding.links)),
    )


def _ancestor(finding: Finding) -> str:
    """The fixed finding of the same signature before this one."""
    sequence = sequence_of(finding.id, finding.signature)
    if sequence is None or sequence == 1:
        return ""
    return f"{id_of(finding.signature.key, sequence - 1)} was fixed, and the failure occurred again"


def _calls(finding: Finding) -> Iterator[str]:
    """The calls of the captured program and of eager, at each size that shows the failure."""
    for call in finding.evidence.observation.calls if finding.evidence is not None else ():
        eager, captured = (
            "returns" if ended.returned else f"raises {ended.error}" for ended in (call.eager, call.captured)
        )
        ends = [f"eager {eager}, captured {captured}"]
        ends += [f"{one.what} of {one.where}: {one.how}" for one in call.differences]
        symbols = ", ".join(f"{name} = {value}" for name, value in call.symbols)
        yield f"at size {call.size}{f' ({symbols})' if symbols else ''}: {'; '.join(ends)}"


def _undecided(finding: Finding) -> str:
    """The guard that failed, as people and as torch write it. Symbols are those of one program, so it is named."""
    expression, plain_form = finding.expression, question(finding.expression)
    said = expression if plain_form == expression else f"{plain_form} (torch prints {expression})"
    if not expression or finding.shown is not None or finding.original is None:
        return said
    return f"{said}, in the program that it was found with"


def _depends_on_data(finding: Finding) -> str:
    """The results of the control runs, and what follows from them."""
    said = {True: "yes", False: "no", None: "not known"}[finding.data_dependent]
    if finding.control is None:
        return said if finding.data_dependent is not None else ""
    if finding.data_dependent and "fails" in (finding.control.static, finding.control.backed):
        said = "yes, as torch's message says"
    words = {"fails": "fails in the same way", "not judged": "was not judged"}
    static, backed = (words.get(outcome, outcome) for outcome in (finding.control.static, finding.control.backed))
    again = "" if static == backed else f"{backed} "
    return f"{said}: it {static} with static sizes and {again}with backed dynamic sizes"


def _confirmed(finding: Finding) -> str:
    if finding.confirmed is None:
        return "not yet: `ddefuzz minimize` runs its smallest program in new processes"
    k, n = finding.confirmed.k, finding.confirmed.n
    return f"{k} of {n} runs of the smallest program in new processes show the failure, in {finding.stage}"


TITLES = ("answer", "captured", "agrees", "refuses", "differs", "accepts")


def tallies_table(tallies: Iterable[Tally], details: Mapping[tuple[str, str], str] = MappingProxyType({})) -> Table:
    """A row for each answer of a guard or of a clause of it. `details` are below the rows."""
    rows = []
    for tally in tallies:
        sizes = (tally.agrees, tally.refuses, tally.differs, tally.accepts)
        captured = f"{tally.captures} of {tally.programs}" if tally.programs else "no"
        answer = f"{tally.answer}{f' for {tally.clause}' if tally.clause else ''}"
        rows.append(Row((answer, captured, *map(" ".join, sizes)), details.get((tally.clause, tally.answer), "")))
    return table(TITLES, rows, folding=TITLES[2:])


def evidence_of(document: Mapping[str, Any]) -> Iterator[Block]:
    """The blocks of a finding's document (`as_document`)."""
    if document["answers"] is not None:
        yield from evidence_blocks(msgspec.convert(document["answers"], Answers))


def evidence_blocks(answers: Answers) -> Iterator[Block]:
    """What a finding keeps of its experiment: the rows, the verdict and what it means for the cause, and the patch."""
    if answers.tallies:
        yield tallies_table(answers.tallies)
    where = f"{counted(answers.programs, 'program')} in {answers.stage}, torch {answers.torch}"
    lines = [f"verdict: {answers.verdict} ({where})"]
    lines += [f"so its cause is {proof.cause}: {proof.why}" for proof in PROOFS if proof.verdict == answers.verdict][:1]
    if answers.patch is not None:
        lines += [f"patch: {answers.patch.code}", *scores(answers.patch)]
    yield Items(tuple(lines))


def scores(patch: PatchEvidence) -> tuple[str, str]:
    """What a patch does to programs."""
    return f"kept programs: {patch.kept}", f"samples of torch: {patch.samples}"
