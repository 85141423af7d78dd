"""The records of advice: a change to try, what trying it showed, and a change that is offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.execute.protocol import Observation, Stage, Subject

ChangeKind: TypeAlias = Literal["rewrite", "input-promise", "inside-promise", "example-value"]

HARM: dict[ChangeKind, int] = {"rewrite": 1, "input-promise": 2, "inside-promise": 3, "example-value": 4}
"""The rank of each kind. The least harmful change is offered first."""

MEANING: dict[ChangeKind, str] = {
    "rewrite": "the same results for all inputs tried",
    "input-promise": "a promise about the inputs",
    "inside-promise": "a promise about data inside",
    "example-value": "fixes a size to its value in the example",
}


DECIDED = "ddefuzz_decided"
"""The function that a probed source calls with each outcome of a decision."""


class ChangedFile(msgspec.Struct, frozen=True):
    """A file and what it would be. `path` is absolute, or `<program>`."""

    path: str
    before: str
    after: str


class Candidate(msgspec.Struct, frozen=True):
    """A change to try.

    `files` have changed functions. `wrapper` is the source of a class `Promised` around the subject; empty for none.
    `probed` are the original files in which each decision that the change removes is reported. `may_refuse` says
    that a call may raise where the original returns. `held_out` asks for inputs that the search does not use.
    """

    subject: Subject
    stages: tuple[Stage, ...]
    files: tuple[ChangedFile, ...] = ()
    wrapper: str = ""
    probed: tuple[ChangedFile, ...] = ()
    may_refuse: bool = False
    held_out: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """One set of inputs: what the original, the changed code in eager and the captured programs did with it.

    `inputs` says what they are in words. Errors are empty if the call returned. `captured` are the stages whose program
    raised, with the error. `differs` is the first difference of results.
    """

    inputs: str
    original: str = ""
    changed: str = ""
    captured: tuple[tuple[Stage, str], ...] = ()
    differs: str = ""

    @property
    def refused(self) -> bool:
        """Whether the original takes these inputs and the change does not."""
        return not self.original and bool(self.changed or self.captured)


class TrialResult(msgspec.Struct, frozen=True):
    """What trying a change showed.

    `observations` are the captures, up to the first that failed; none if the change was rejected before. `sides` are
    the outcomes of the decision in the original that were seen over all inputs.
    """

    observations: tuple[Observation, ...] = ()
    compared: tuple[Comparison, ...] = ()
    sides: tuple[bool, ...] = ()
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the change returns what the original returns, for the example at least."""
        example_fails = bool(self.compared and (self.compared[0].changed or self.compared[0].captured))
        return bool(self.compared) and not example_fails and not any(one.differs for one in self.compared)


Trial: TypeAlias = Callable[[Candidate], TrialResult]
"""Tries a change in a worker. Tests pass a plain function."""


class InputDim(msgspec.Struct, frozen=True):
    """A dim of an input. `size` is the example's, `symbol` is empty unless it is unbacked."""

    leaf: str
    dim: int
    size: int
    symbol: str = ""

    def __str__(self) -> str:
        return f"{self.leaf}.shape[{self.dim}]"


class Interface(msgspec.Struct, frozen=True):
    """A user's subject: the parameters that the example fills, the dims of its inputs, and where its function is.

    There are no parameters if one of them has no name that a wrapper could use, as with `*args`.
    """

    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    dims: tuple[InputDim, ...] = ()
    file: str = ""
    line: int = 0


class Where(msgspec.Struct, frozen=True):
    """A place that a change touches. `owner` is the name of an installed package, empty for the user's own files."""

    file: str
    line: int
    owner: str = ""


class Fix(msgspec.Struct, frozen=True):
    """A part of a change, and the keys of the failures that are gone in the captures with it.

    `continued` says that the failures seen only after answers are gone too: the change removes no code.
    """

    does: str
    keys: tuple[str, ...]
    continued: bool = False


class Change(msgspec.Struct, frozen=True):
    """A change that passes all stages asked for.

    `diff` is a unified diff. `paste` is code to paste for what lies outside of the project: a wrapper, or new functions
    in place of a package's. `refuses` says in words which inputs are refused that eager takes, each with an example.
    `agrees` is the number of sets of inputs on which the results are those of the original. `files` are those of the
    project. `fixes` has the parts of the change that are known to remove failures.
    """

    kind: ChangeKind
    harm: int
    does: str
    diff: str
    where: tuple[Where, ...]
    paste: str = ""
    passes: tuple[Stage, ...] = ()
    refuses: tuple[str, ...] = ()
    agrees: int = 0
    files: tuple[ChangedFile, ...] = ()
    fixes: tuple[Fix, ...] = ()


class FailedAttempt(msgspec.Struct, frozen=True):
    """A change that was tried and does not help, and why."""

    does: str
    ended: str


class Advice(msgspec.Struct, frozen=True):
    """What happened in a sentence, and what helps.

    Without a change that helps, `tried` says what was tried. `remaining` is the failure that is left by the change that
    got furthest. `stopped` says that time was over before all changes were tried.
    """

    summary: str
    changes: tuple[Change, ...] = ()
    tried: tuple[FailedAttempt, ...] = ()
    remaining: str = ""
    stopped: bool = False
