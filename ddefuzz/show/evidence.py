"""What shows a finding: its program, the stack from the user's line to the call site, torch's source there, and
findings like it. The stack is without plumbing (internal frames).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ddefuzz.answers.patch import source_of
from ddefuzz.classify.cxx import function_name, native_call
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.kind import decisive
from ddefuzz.classify.plumbing import is_cxx_plumbing, is_framework, is_python_plumbing
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import USER_SITE, inside_tracer
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.instrument.events import Frame
from ddefuzz.oracles.capture import KINDS, classify
from ddefuzz.oracles.table import oracle_of
from ddefuzz.repro.finding import finding_snippet

AROUND = 3
"""Lines of torch's source shown before and after the site."""

MOST_SIMILAR = 4


class Lines(msgspec.Struct, frozen=True):
    """Lines of a file of the installed torch. `first` is the number of the first one, `line` that of the site."""

    path: str
    first: int
    line: int
    text: str


def snippet_of(finding: Finding) -> str:
    """The snippet for an issue, else the program."""
    try:
        return finding_snippet(finding)
    except DdefuzzError:  # too long, or a stage without a capture
        return finding.minimal or finding.original or "# a program of a user"


def site_lines(finding: Finding) -> Lines | None:
    """The lines of the installed torch around a Python site. None if it is C++, or another version of torch."""
    if finding.evidence is None:
        return None
    frame = oracle_of(finding.kind).frame(finding.evidence)
    if frame is None:
        frame = site_frame(finding.evidence, finding.site)
    source = source_of(frame.file) if frame is not None and frame.file.endswith(".py") else None
    if frame is None or source is None:
        return None
    lines = source.text.splitlines()
    if frame.code and (frame.line > len(lines) or frame.code.split("\n")[0].strip() not in lines[frame.line - 1]):
        return None  # the lines have moved since this finding was seen
    first = max(1, frame.line - AROUND)
    return Lines(frame.file, first, frame.line, "\n".join(lines[first - 1 : frame.line + AROUND]))


def similar(finding: Finding, others: Iterable[FindingSummary]) -> Sequence[FindingSummary]:
    """Findings at the same function, or of the same question in the same file."""

    def shared(other: FindingSummary) -> int:
        site, anchor = other.signature.site, other.signature.anchor
        same_file = site.module is not None and site.module == finding.site.module
        return 2 * (site == finding.site) + (same_file and anchor == finding.anchor)

    found = [other for other in others if other.id != finding.id and shared(other)]
    return sorted(found, key=lambda other: (-shared(other), other.id))[:MOST_SIMILAR]


MARK = "→"


class StackLines(msgspec.Struct, frozen=True):
    """The lines of a stack, outermost frame first.

    `marked` says whether one of them is the site. `left_out` is the number of frames that are plumbing.
    """

    lines: tuple[str, ...]
    marked: bool
    left_out: int


def site_frame(failure: Failure, site: Site) -> Frame | None:
    """The frame at a site that was stored. Rules that changed since then may give the failure another one."""
    if failure.kind not in KINDS:
        return None
    classified = classify(failure)
    if classified.signature.site == site:
        return classified.frame
    real, traced, native = _stacks(failure)
    names = [(frame, frame.file, frame.function) for frame in (*traced, *real)]
    names += [(frame, "", function_name(frame.function)) for frame in native]
    place = (site.module or "", site.function)
    return next((frame for frame, *name in reversed(names) if tuple(name) == place), None)


def stack_to_site(failure: Failure, place: Site) -> StackLines:
    """The frames from the user's line on that are not plumbing, C++ after Python. That at the site is marked.

    If a captured program failed, they lead to what made the assertion that it failed, if it is known.
    """
    if failure.kind in KINDS:
        frame = site_frame(failure, place)
        real, traced, native = _stacks(failure)
    else:
        failed = {call.captured.expression for call in failure.observation.calls}
        made = next((one for one in failure.observation.constraints if one.text in failed), None)
        frame, traced, native = None, (), ()
        real = () if made is None else (*made.traced, *made.python)
    site = frame if frame is not None and _shows(frame, place) else None
    whole = (*traced, *inside_tracer(real)) if traced else real
    python = [frame for frame in whole if frame == site or not is_python_plumbing(frame)]
    own = next((index for index, frame in enumerate(python) if not is_framework(frame)), 0)
    inner = tuple(reversed(native_call(native)))
    if site in native and site not in inner:  # a call through a kernel in Python
        inner = native[native.index(site) :]
    cxx = [frame for frame in inner if frame is site or not is_cxx_plumbing(function_name(frame.function))]
    shown = [*_without_repeats(python[own:]), *_without_repeats(cxx)]
    lines = [line for frame in shown for line in _lines(frame, marked=site is not None and frame == site)]
    if site is not None and place.language == "C++" and function_name(site.function) != place.function:
        lines.append(f"      the compiler inlined {place.function} into {function_name(site.function)}")
    left_out = len(real) + len(traced) + len(native) - len(shown)
    return StackLines(tuple(lines), site in shown, left_out)


def _shows(frame: Frame, site: Site) -> bool:
    """Whether a frame is at the site. C++ sites have no file, user code no name; an op has the frame of its call."""
    if site == USER_SITE:
        return not is_framework(frame)
    if site.language == "op":
        return True
    return frame.file == (site.module or "")


def _stacks(failure: Failure) -> tuple[tuple[Frame, ...], tuple[Frame, ...], tuple[Frame, ...]]:
    """The Python stack, the traced stack and the C++ stack of a failure."""
    observation = failure.observation
    if observation.raised is not None:
        return observation.raised.python, observation.raised.traced, observation.raised.native
    if not observation.exceptions:
        return (), (), ()
    _, exception = decisive(observation)
    traced = next((one.traced for one in observation.exceptions if one.traced), ())
    return exception.frames, traced, exception.native


def _without_repeats(frames: Iterable[Frame]) -> list[Frame]:
    """Adjacent frames of one function once. An op that modes intercept has a frame for each mode."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and (kept[-1].file, kept[-1].function) == (frame.file, frame.function):
            kept.pop()
        kept.append(frame)
    return kept


def _lines(frame: Frame, *, marked: bool) -> Iterable[str]:
    mark = MARK if marked else " "
    if not frame.file:
        yield f"{mark} {function_name(frame.function)}  (C++)"
        return
    yield f"{mark} {frame.file}:{frame.line} in {frame.function}"
    if frame.code:
        yield f"      {' '.join(frame.code.split())}"
