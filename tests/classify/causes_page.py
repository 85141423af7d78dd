"""The documentation of the causes, made from their table: `docs/causes.md` and the table of the README.

    python tests/classify/causes_page.py

writes both; `test_causes.py` fails where they are not what this makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ddefuzz.classify.cause import CAUSES, RULES
from ddefuzz.classify.reviewed import REVIEWED

ROOT = Path(__file__).resolve().parents[2]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "causes.md"
BEGIN, END = "<!-- causes: made by tests/classify/causes_page.py -->\n", "<!-- end of causes -->\n"


TITLES = ("cause", "meaning", "who has to change what", "about PyTorch", "example")

HEAD = """# Causes

Made by `tests/classify/causes_page.py` from `ddefuzz/classify/cause.py` and `reviewed.py`: change those.

A cause says why a capture fails and who has to change what. *About PyTorch* are the causes that PyTorch can mend,
and what no rule applies to: `run --fail-on` and the headline of a campaign count these. In the examples `x`, `y` and
`z` are float tensors, `t` is a tensor of one element, `n` and `w` are tensors of ints, `mask` is one of bools.

"""

RULES_HEAD = """
## Rules

The first rule that applies decides. Each has a golden file of a real failure in `tests/classify/golden`.

"""

REVIEWED_HEAD = """
## Reviewed functions

A person has read these in PyTorch's source, because the rules would take them for another cause.

"""


def causes() -> str:
    """A row for each cause."""
    return table(
        TITLES,
        [
            (f"`{row.cause}`", row.meaning, row.mends, "yes" if row.counts else "no", f"`{row.example}`")
            for row in CAUSES
        ],
    )


def page() -> str:
    """The whole of `docs/causes.md`."""
    rules = [(f"`{rule.name}`", f"`{rule.cause}`", rule.when, f"`{rule.example}`") for rule in RULES]
    read = [
        (f"`{row.site}`", f"`{row.anchor}`" if row.anchor else "", f"`{row.cause}`", row.why, row.source)
        for row in REVIEWED
    ]
    return "".join(
        (
            HEAD,
            causes(),
            RULES_HEAD,
            table(("rule", "cause", "it applies when", "example"), rules),
            REVIEWED_HEAD,
            table(("function", "anchor begins with", "cause", "why", "source"), read),
        )
    )


def readme(text: str) -> str:
    """The README with its table as it has to be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{causes()}{END}{after}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    cells = [titles, ["---"] * len(titles), *rows]
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in cells]
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
