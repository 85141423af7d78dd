"""Records what inductor asks about unbacked sizes, and answers chosen questions as for sizes that it knows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from types import FrameType
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch

from ddefuzz.cost.model import Question, QuestionKind
from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import Guard
from ddefuzz.instrument.truth import value_at

_PASS_ON = ("functools.py", "contextlib.py")
"""Files that only pass a question on, besides the one with inductor's own functions and this one."""


class QuestionPlace(NamedTuple):
    """Where a question is asked."""

    kind: QuestionKind
    file: str
    line: int


def place_of(question: Question) -> QuestionPlace:
    """Where a question is asked."""
    return QuestionPlace(question.kind, question.file, question.line)


@dataclass(slots=True)
class Interview:
    """The questions of one compilation. `sizes` are the example's sizes of the symbols of inputs, by name. Questions at
    the places `answered` get the answer that these sizes have. So do those that follow from an answer: they are asked
    at other places than `left`, the places of questions that are not answered. Whether an expression has unbacked
    symbols is no such question: code that evaluates it asks first.
    """

    answered: Collection[QuestionPlace] = ()
    left: Collection[QuestionPlace] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    questions: dict[tuple[QuestionPlace, str], Question] = field(default_factory=dict)
    depth: int = 0

    def value(self, expression: Any) -> Any:
        """What an expression is at the sizes of the example; None if that is not known."""
        if not isinstance(expression, sympy.Basic):
            return None
        known = {symbol: self.sizes[str(symbol)] for symbol in expression.free_symbols if str(symbol) in self.sizes}
        if not known or len(known) < len(expression.free_symbols):
            return None
        try:
            return sympy.sympify(expression.xreplace(known))
        except (ArithmeticError, TypeError):  # such as a division by a difference that is 0 here
            return None

    def note(self, kind: QuestionKind, expression: object, answer: object, wish: object) -> bool:
        """Record a question that is answered otherwise for known sizes. Returns whether to answer it so."""
        caller = _caller()
        if caller is None:
            return False
        asked = QuestionPlace(kind, frames.display_file(caller.f_code.co_filename), caller.f_lineno)
        key = asked, str(answer)
        before = self.questions.get(key)
        self.questions[key] = Question(
            *asked,
            caller.f_code.co_name,
            before.expression if before is not None else str(expression),
            str(answer),
            str(wish),
            before.count + 1 if before is not None else 1,
        )
        follows = bool(self.answered) and asked not in self.left and kind != "unbacked"
        return asked in self.answered or follows


def _caller() -> FrameType | None:
    """The function of torch that asks: the innermost one outside of inductor's file of sizes."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = PurePath(frame.f_code.co_filename)
        inner = str(name) == __file__ or name.name in _PASS_ON
        if not inner and frames.display_file(str(name)) not in torch_api.INDUCTOR_SIZES_FILE:
            return frame
        frame = frame.f_back
    return None


def undecided(guards: Collection[Guard], sizes: Mapping[str, int]) -> Iterator[Question]:
    """The guards of a capture that the sizes of the example decide otherwise than their fallback."""
    for guard in guards:
        value = value_at(guard.expression, sizes)
        if guard.place.language == "Python" and isinstance(value, bool) and value is not guard.fallback:
            yield Question(
                "guard",
                guard.place.file,
                guard.place.line,
                guard.function,
                guard.expression,
                str(guard.fallback),
                str(value),
                guard.count,
            )


def sizes_of(graph: torch.fx.GraphModule, inputs: Collection[Any]) -> dict[str, int]:
    """The sizes of the symbols of a graph's inputs, by name."""
    sizes: dict[str, int] = {}
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, real in zip(nodes, inputs, strict=False):
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor) and isinstance(real, torch.Tensor) and value.layout == torch.strided:
            pairs: zip[tuple[Any, int]] = zip(value.shape, real.shape, strict=False)
            sizes |= {str(one.node.expr): size for one, size in pairs if isinstance(one, torch.SymInt)}
    return sizes


@contextmanager
def interviewed(interview: Interview) -> Iterator[None]:
    """In the block, inductor's questions are recorded, and those that are chosen answered."""
    with ExitStack() as stack:
        for api in torch_api.KNOWN_QUESTIONS:
            stack.enter_context(api.replaced(_known(api, interview)))
        for api in torch_api.HINT_QUESTIONS:
            stack.enter_context(api.replaced(_hint(api, interview)))
        stack.enter_context(torch_api.HINT_OR_ERROR.replaced(_hint_or_error(interview)))
        for api in torch_api.UNBACKED_QUESTIONS:
            stack.enter_context(api.replaced_below(torch_api.INDUCTOR_FILES, _unbacked(api, interview)))
        yield


def _outermost(interview: Interview, ask: Callable[[], Any], judge: Callable[[Any], Any]) -> Any:
    """The answer of `ask`, through `judge` if no other question is being asked."""
    interview.depth += 1
    try:
        answer = ask()
    finally:
        interview.depth -= 1
    return judge(answer) if not interview.depth else answer


def _known(api: torch_api.Api, interview: Interview) -> Callable[..., Any]:
    inner = api.get()

    def ask(self: Any, expr: Any, *more: Any) -> Any:
        def judge(answer: Any) -> Any:
            question = sympy.Eq(sympy.Mod(expr, more[0]), 0) if more else expr
            truth = interview.value(question)
            if answer or truth is not sympy.true:
                return answer
            return interview.note("known", question, answer, True) or answer

        return _outermost(interview, lambda: inner(self, expr, *more), judge)

    return ask


def _hint(api: torch_api.Api, interview: Interview) -> Callable[..., Any]:
    inner = api.get()

    def ask(self: Any, expr: Any, *more: Any, **named: Any) -> Any:
        def judge(answer: Any) -> Any:
            number = interview.value(expr)
            if number is None or not number.is_Integer or int(number) == answer:
                return answer
            return int(number) if interview.note("hint", expr, answer, int(number)) else answer

        return _outermost(interview, lambda: inner(self, expr, *more, **named), judge)

    return ask


def _hint_or_error(interview: Interview) -> Callable[..., Any]:
    """For unbacked sizes it raises, which some callers expect."""
    inner = torch_api.HINT_OR_ERROR.get()

    def ask(self: Any, expr: Any) -> Any:
        number = interview.value(expr)
        if number is None or not number.is_Integer:
            return inner(self, expr)
        return int(number) if interview.note("hint", expr, "an error", int(number)) else inner(self, expr)

    return ask


def _unbacked(api: torch_api.Api, interview: Interview) -> Callable[..., Any]:
    inner = api.get()

    def ask(x: Any) -> Any:
        def judge(answer: Any) -> Any:
            symbols = inner_symbols(x)
            if not answer or not all(str(symbol) in interview.sizes for symbol in symbols):
                return answer
            named = ", ".join(sorted(map(str, symbols)))
            return type(answer)() if interview.note("unbacked", x, named, "none") else answer

        return _outermost(interview, lambda: inner(x), judge)

    inner_symbols = torch_api.UNBACKED_QUESTIONS[0].get()
    return ask
