"""The part of a stand-alone script that recognizes an exception by its message and the op that the message names.

The source from the line `# ---` on is copied into scripts. It is written for Python 3.9 and torch 2.6, and later.
"""

from __future__ import annotations

import re


# ---
def seen(errors: list[BaseException], expected: dict[str, str]) -> dict[str, str]:
    """The first line of the message, and the op that the message names."""
    last = errors[-1]
    message = "\n".join(map(str, last.args)) if isinstance(last, KeyError) else str(last)  # it prints a repr
    title = message.strip().partition("\n")[0]
    known = lasting(expected["message"])  # a later torch may say more after it
    is_same = lasting(title)[: len(known) or None] == known
    facts = {"message": expected["message"] if is_same else title[:200]}
    if "op" in expected:
        named = any(re.search(rf"\b{re.escape(expected['op'])}\b", str(error)) for error in errors)
        facts["op"] = expected["op"] if named else "another"
    return facts


def lasting(text: str) -> list[str]:
    """The message's words that are the same in every run: without numbers, symbols, addresses and folders.

    Of a message that quotes another (`… got RuntimeError('…')`), the words of the quoted message's first line.
    """
    quoted = re.search(r"\bgot \w+\(['\"](.*?)(?:\\n|['\"]\)|$)", text)
    text = quoted[1] if quoted else text
    return re.findall(r"\b[A-Za-z_.]+\b", re.sub(r"\S*/\S*|0x\w+|\w*\d\w*", " ", text))
