"""Run programs and print what they did: `python -m ddefuzz.versions.see JOBS`, one JSON line for each line of stdin.

`ddefuzz diff` starts this under each interpreter. The lines are `Ask` and `CaseSeen` of `side_by_side`, in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import IO, Final

import msgspec
import torch

from ddefuzz.classify.cause import Classification
from ddefuzz.errors import InputError
from ddefuzz.execute.observe import observe
from ddefuzz.execute.pool import LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject, Run
from ddefuzz.findings.ledger import reached
from ddefuzz.generate.draw import case_text
from ddefuzz.oracles.program import judge_program, tried_of
from ddefuzz.versions.side_by_side import Ask, CaseSeen, GuardSeen

CASE_SECONDS: Final = 60.0


def draw(ask: Ask) -> str:
    """The text of a case of a uniform campaign."""
    return case_text(ask.profile, ask.seed, ask.number)


def see(ask: Ask) -> CaseSeen:
    """Run a program in its stage, and judge and classify what fails."""
    (judged,) = judge_program(ask.text, (ask.stage,), (EXPLICIT,), observe, compare=False)
    return _seen(ask, judged.observation, judged.failures)


def _seen(ask: Ask, observation: Observation, failures: Iterable[Classification]) -> CaseSeen:
    failed = tuple(failures)
    return CaseSeen(
        number=ask.number,
        stage=ask.stage,
        torch=str(torch.__version__),
        text=ask.text,
        outcome=observation.outcome,
        reason=observation.reason,
        failures=tuple(sorted({one.signature for one in failed}, key=lambda one: one.key)),
        guards=tuple(sorted({GuardSeen(one.name, one.shape, one.answer) for one in reached(observation, failed)})),
    )


def _answer(pool: Pool, ask: Ask) -> CaseSeen:
    nothing = CaseSeen(
        number=ask.number, stage=ask.stage, torch=str(torch.__version__), text=ask.text, outcome="not-judged"
    )
    if not ask.text:
        text = pool.submit(draw, ask, CASE_SECONDS).result()
        if isinstance(text, LostTask):
            return msgspec.structs.replace(nothing, reason=f"while it was drawn: {text.reason}")
        ask = msgspec.structs.replace(ask, text=text)
    try:
        result = pool.submit(see, ask, CASE_SECONDS).result()
    except InputError as error:  # a saved side may have any text as a program
        return msgspec.structs.replace(nothing, reason=str(error))
    if not isinstance(result, LostTask):
        return result
    lost = tried_of(lost_observation(Run(ProgramSubject(ask.text), ask.stage), result))
    return _seen(ask, lost.observation, lost.failures)


def main(jobs: int, asks: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each line. An answer is written as soon as it is known."""
    lock = Lock()
    with Pool(jobs) as pool, ThreadPoolExecutor(jobs) as threads:

        def answer(ask: Ask) -> None:
            encoded = msgspec.json.encode(_answer(pool, ask))
            with lock:
                answers.write(encoded + b"\n")
                answers.flush()

        running = [threads.submit(answer, msgspec.json.decode(line, type=Ask)) for line in asks]
        for future in running:
            future.result()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
