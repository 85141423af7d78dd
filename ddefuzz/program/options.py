"""The options under which a program is captured: settings of torch, and what `mark_unbacked` is told of a size.

`OPTIONS` has a row for each. In a program's text they are the line `# options: dynamic; min(u0=2)`. Nothing here
imports torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from ddefuzz.program.model import Call, Input, Option, Program, expressions, walk


class TorchSetting(NamedTuple):
    """A setting of torch: an attribute of a module of settings, or `NO_GRAD`."""

    path: str
    value: bool

    def __str__(self) -> str:
        return f"{self.path}({self.value})" if self == NO_GRAD else f"{self.path} = {self.value}"


NO_GRAD: Final = TorchSetting("torch.set_grad_enabled", False)
"""The setting that a function changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionKind:
    """A kind of option: `settings` of torch, or the argument of `mark_unbacked` of that name for the dims of a symbol.

    `numbers` are those that are drawn, and `argument` is the argument's value. `means` says what the option does, and
    `allows` what may differ from a capture without it. With `alone`, the symbol has to have one dim only.
    """

    means: str
    allows: str
    settings: tuple[TorchSetting, ...] = ()
    argument: str = ""
    numbers: tuple[int, ...] = ()
    alone: bool = False


OPTIONS: Final[Mapping[str, OptionKind]] = MappingProxyType(
    {
        "dynamic": OptionKind(
            settings=(TorchSetting("torch._dynamo.config.assume_static_by_default", False),),
            means="torch.compile(dynamic=True): sizes that are not marked are backed",
            allows="a call at other static sizes may compile again",
        ),
        "no_duck_shapes": OptionKind(
            settings=(TorchSetting("torch.fx.experimental._config.use_duck_shape", False),),
            means="backed sizes that are equal in the example have a symbol each",
            allows="nothing without `dynamic`",
        ),
        "backed_size_oblivious": OptionKind(
            settings=(TorchSetting("torch.fx.experimental._config.backed_size_oblivious", True),),
            means="guards decide backed sizes as they decide unbacked ones",
            allows="no guard for the sizes 0 and 1",
        ),
        "unified_views": OptionKind(
            settings=(
                TorchSetting("torch.fx.experimental._config.backed_size_oblivious", True),
                TorchSetting("torch.fx.experimental._config.unify_view_symbols_bso_meta", True),
            ),
            means="backed_size_oblivious, and a view makes two sizes equal before it makes one a number",
            allows="no guard for the sizes 0 and 1",
        ),
        "deferred_asserts": OptionKind(
            settings=(TorchSetting("torch._dynamo.config.prefer_deferred_runtime_asserts_over_guards", True),),
            means="dynamo makes run-time assertions in place of guards",
            allows="inputs are refused inside of the graph, not before it",
        ),
        "no_grad": OptionKind(
            settings=(NO_GRAD,),
            means="the capture and all calls are under torch.no_grad()",
            allows="no result requires a gradient",
        ),
        "freezing": OptionKind(
            settings=(TorchSetting("torch._inductor.config.freezing", True), NO_GRAD),
            means="inductor takes parameters for constants",
            allows="no result requires a gradient",
        ),
        "strict": OptionKind(
            argument="True",
            alone=True,
            means="mark_unbacked(strict=True): a capture that makes the size a number fails",
            allows="an error where a size becomes a number",
        ),
        "hint_override": OptionKind(
            argument="{}",
            numbers=(1, 64, 1_000),
            means="inductor takes the number for the size where it only estimates",
            allows="other kernels, the same results",
        ),
        "min": OptionKind(
            argument="{}",
            numbers=(1, 2, 3),
            means="the size is at least the number",
            allows="smaller sizes are refused: no call has them",
        ),
        "max": OptionKind(
            argument="{}",
            numbers=(12, 64, 1_000),
            means="the size is at most the number",
            allows="larger sizes are refused: no call has them",
        ),
        "specialize_on": OptionKind(
            alone=True,
            argument="[lambda size: size == {}]",
            numbers=(2, 8),
            means="dynamo also compiles for this number alone",
            allows="a call at this size may compile again",
        ),
    }
)


def marks_in(program: Program) -> dict[str, dict[str, int]]:
    """The options that are arguments of `mark_unbacked`, with their numbers, by symbol. `strict` has the number 1."""
    marks: dict[str, dict[str, int]] = {}
    for option in program.options:
        if option.symbol is not None:
            marks.setdefault(option.symbol, {})[option.name] = 1 if option.number is None else option.number
    return marks


def mark_calls(marks: Mapping[str, int]) -> list[dict[str, int]]:
    """The options of a symbol for each call of `mark_unbacked`, one call at least.

    `strict` has a call of its own: with it, torch ignores what else it is told (torch/_dynamo/decorators.py).
    """
    strict = {name: number for name, number in marks.items() if name == "strict"}
    others = {name: number for name, number in marks.items() if name != "strict"}
    return [one for one in (strict, others) if one] or [{}]


def settings_in(program: Program) -> tuple[TorchSetting, ...]:
    """The settings of torch that the program's options change, each once."""
    return tuple(dict.fromkeys(one for option in program.options for one in OPTIONS[option.name].settings))


def range_of(program: Program, symbol: str) -> tuple[int, int | None]:
    """The least and the most that the size may be by the options. None if it has no bound."""
    marks = marks_in(program).get(symbol, {})
    return marks.get("min", 0), marks.get("max")


def with_symbols(options: Iterable[Option], symbols: Mapping[str, str]) -> tuple[Option, ...]:
    """The options under other names of symbols. Those of symbols that have none are dropped."""
    return tuple(
        option if option.symbol is None else replace(option, symbol=symbols[option.symbol])
        for option in options
        if option.symbol is None or option.symbol in symbols
    )


def fault_in(option: Option, inputs: tuple[Input, ...]) -> tuple[str, str] | None:
    """What is wrong with an option of a program with these inputs, and what was expected."""
    kind = OPTIONS.get(option.name)
    if kind is None:
        return f"the option {option.name!r}", f"one of {', '.join(OPTIONS)}"
    if kind.settings:
        if option.symbol is None:
            return None
        return f"the option {option}", option.name
    sizes = [dim.size for item in inputs for dim in item.shape if dim.symbol == option.symbol]
    form = f"{option.name}(u0{'=2' if kind.numbers else ''})"
    if option.symbol is None or (option.number is None) != (not kind.numbers):
        return f"the option {option}", form
    if not sizes:
        return f"the option {option}", "a symbol that an input has"
    if kind.alone and len(sizes) > 1:
        return f"the option {option} of {len(sizes)} dims", "a symbol of one dim"
    if option.name == "min" and sizes[0] < (option.number or 0):
        return f"the option {option} of a size of {sizes[0]}", "at most the size of the example"
    if option.name == "max" and sizes[0] > (option.number or 0):
        return f"the option {option} of a size of {sizes[0]}", "at least the size of the example"
    return None


def with_fitting(program: Program) -> Program:
    """The program without the options that its inputs no longer allow."""
    return replace(
        program, options=tuple(option for option in program.options if fault_in(option, program.inputs) is None)
    )


def fitting(program: Program) -> Iterator[Option]:
    """All options that a program may have, with the numbers that are drawn. Those of gradients fit no gradients."""
    symbols = dict.fromkeys(dim.symbol for item in program.inputs for dim in item.shape if dim.symbol is not None)
    has_gradients = any(item.requires_grad for item in program.inputs) or any(
        isinstance(node, Call) and ("grad" in node.function or "backward" in node.function)
        for expr in expressions(program)
        for node in walk(expr)
    )
    for name, kind in OPTIONS.items():
        if kind.settings:
            if not (has_gradients and NO_GRAD in kind.settings):
                yield Option(name)
            continue
        for symbol in symbols:
            for option in [Option(name, symbol, number) for number in kind.numbers] or [Option(name, symbol)]:
                if fault_in(option, program.inputs) is None:
                    yield option
