"""Strategies of Hypothesis for tests of code that captures programs."""

from __future__ import annotations

from hypothesis import strategies as st

from ddefuzz.generate.draw import drawn_programs
from ddefuzz.generate.profiles import profile_named
from ddefuzz.program.model import Program

__all__ = ["programs"]


def programs(profile: str = "default") -> st.SearchStrategy[Program]:
    """Programs with data-dependent sizes, which run in eager. `ddefuzz.check` takes them.

    `profile` is the kind of programs: a name that `ddefuzz run --profile` takes, else InputError is raised.
    """
    return drawn_programs(profile_named(profile)).map(lambda drawn: drawn.program)
