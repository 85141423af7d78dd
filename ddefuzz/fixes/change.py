"""The changes of torch's Python source to try for a finding, in the form of the file that they are in.

Functions that `torch.jit.script` compiles may have neither imports nor lambdas, and dynamo refuses the message of a
check that closes over a tensor. In `torch.jit.trace` sizes are tensors. So in their files the new code is a function of
its own beside the old code, as torch has it in `multi_head_attention_forward`:

    if torch.jit.is_scripting() or torch.jit.is_tracing():
        (the old code)
    else:
        _check_unpool_output_size(ret, d)
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from ddefuzz import syntax
from ddefuzz.answers.patch import (
    CHECKS,
    LONGEST_LINE,
    SHAPES,
    Change,
    Patch,
    Source,
    call_of,
    changes,
    falsity,
    located,
    names_in,
    placed,
    raised_by,
    shown,
    source_of,
    truth,
)
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.site import site
from ddefuzz.fixes.out_meta import with_out
from ddefuzz.instrument.events import RaisedError

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

DELETED: Final = "a redundant test is deleted"

OLD: Final = "torch.jit.is_scripting() or torch.jit.is_tracing()"
"""Where the old code runs."""

SCRIPTED: Final = ("torch/nn/functional.py", "torch/nn/modules/", "torch/_lowrank.py", "torch/functional.py")
"""Files whose functions and methods `torch.jit.script` compiles and dynamo traces."""

TRACED: Final = ("torch/nn/attention/", "torch/_functorch/vmap.py")
"""Files whose functions dynamo traces, and nobody scripts."""


def candidates(
    raised: RaisedError, order: Callable[[str], Any] = bool, texts: dict[str, str] | None = None
) -> Iterator[Patch]:
    """The changes to try for an undecided guard of Python, sorted by their form, or for a kernel of C++ (`out_meta`).

    `texts` are files of torch that are changed already.
    """
    where, frame = site(raised)
    if where.language == "C++":
        yield from with_out(raised)
    if where.language != "Python" or where.module is None or frame.file != where.module:
        return
    source = Source(texts[where.module]) if texts and where.module in texts else source_of(where.module)
    if source is not None:
        yield from in_form_of_file(source, where.module, frame.line, python_anchor(frame), order)


def in_form_of_file(
    source: Source, file: str, line: int, anchor: str, order: Callable[[str], Any] = bool
) -> Iterator[Patch]:
    """The changes of the branch that evaluates an anchor at a line, sorted by their form."""
    node = located(source, line, anchor)
    if node is None:
        return
    made = [*_deleted(source, node), *changes(source, node)]
    for change in sorted(made, key=lambda one: (order(one.form), one.form == DELETED)):
        after = _changed(source, node, change, file)
        if after is not None and syntax.compiles(after):
            yield Patch(change.form, file, shown(source, change), source.text, after)


def noting(raised: RaisedError) -> str:
    """The text of the file with a guard that notes its truth (`fixes.probe.note`). Empty if its code is not known."""
    where, frame = site(raised)
    source = source_of(where.module) if where.language == "Python" and where.module is not None else None
    node = None if source is None else located(source, frame.line, python_anchor(frame))
    if source is None or node is None:
        return ""
    note = '__import__("ddefuzz.fixes.probe", fromlist=["note"]).note'
    return syntax.replaced(source.text, node, f"{note}({source.of(node)})")


def _deleted(source: Source, node: ast.expr) -> Iterator[Change]:
    """The code without the test: one clause less, or without the branch that returns early."""
    parent = source.parents[node]
    match parent:
        case ast.BoolOp(values=values) if len(values) == 2:
            (other,) = (value for value in values if value is not node)
            yield Change(DELETED, parent, source.of(other))
        case ast.If(test, [ast.Return()], []) if test is node and not source.of(parent).startswith("elif"):
            yield Change(DELETED, parent, "")
        case _:
            return


def _changed(source: Source, node: ast.expr, change: Change, file: str) -> str | None:
    if change.form == DELETED:
        after = syntax.replaced(source.text, change.node, change.text)
        return after if change.text else _without_blank_line(after, change.node.lineno)
    if not file.startswith((*SCRIPTED, *TRACED)):
        return source.edited(change.node, change.text, names_in(change.text))
    function = source.function(change.node)
    if function is None:
        return None
    if isinstance(change.node, ast.If | ast.Assert):
        return _check_apart(source, function, change.node, node, is_scripted=file.startswith(SCRIPTED))
    if file.startswith(TRACED):
        return source.edited(change.node, change.text, names_in(change.text))
    return _value_apart(source, function, change) if isinstance(change.node, ast.expr) else None


def _without_blank_line(text: str, line: int) -> str:
    """The text without the line of a statement that was deleted."""
    lines = text.splitlines(keepends=True)
    follows = 1 if lines[line].strip() else 2
    return "".join([*lines[: line - 1], *lines[line - 1 + follows :]])


def _check_apart(
    source: Source,
    function: Function,
    statement: ast.If | ast.Assert,
    node: ast.expr,
    is_scripted: bool,
) -> str | None:
    """A branch that raises, or an assert: a function that raises what it raised, and defers what is undecided.

    The old code stays for scripting.
    """
    test, error, raising, place = statement.test, "AssertionError", "", ("", "", source.indent(statement))
    if isinstance(statement, ast.If):
        raises, around = raised_by(source, statement), placed(source, statement)
        if raises is None or around is None:
            return None
        error = raises[0]
        place = ("el", "", source.indent(statement)) if around[0] else around
        raising = textwrap.dedent(_lines(source, *statement.body))
        decided: ast.expr = node if _is_clause(test, node) else test
        condition = falsity(source, decided)
    else:
        decided, condition = test, truth(source, test)
        message = "" if statement.msg is None else source.of(statement.msg)
        raising = f"raise AssertionError({message})"
    check = CHECKS.get(error, f"torch._check_with({error}, {{}}, None)")
    deferred = f"{check}(holds)" if "{" not in check else check.format("holds")
    indented = textwrap.indent(raising, "    ")
    known = (
        []
        if _is_of_sizes(function, condition)
        else ["if not isinstance(holds, torch.SymBool):\n    holds = bool(holds)"]
    )
    lines = [f"holds = {condition}", *known, f"if not guard_or_true(holds):\n{indented}", deferred]
    body = "\n".join(lines)
    if decided is not test and isinstance(test, ast.BoolOp):
        others = [source.of(value) for value in test.values if value is not decided]
        if isinstance(test.op, ast.Or):
            body = f"if {' or '.join(others)}:\n{indented}\n{body}"
        else:
            body = f"if {' and '.join(others)}:\n{textwrap.indent(body, '    ')}"
    name = _helper_name(source, function, statement, condition)
    if not syntax.compiles(body):  # a clause of several lines loses its parentheses
        return None
    names = _locals(function, body)
    before, after, indent = place
    last = statement.body[-1] if isinstance(statement, ast.If) else statement
    kept = textwrap.dedent(_lines(source, statement, last)).removeprefix("el")
    old = textwrap.indent(kept, f"{indent}    ")
    if not indent or (before and not is_scripted):
        return None
    inner = f"{indent}    " if is_scripted else indent
    call = call_of(name, names, inner, LONGEST_LINE - len(inner))
    text = f"{call}{after}"
    if is_scripted:
        text = f"{before}if {OLD}:\n{old}\n{indent}else:\n{inner}{call}{after}"
    return _with_helper(source, function, syntax.replaced(source.text, statement, text), name, names, body, "None")


def _value_apart(source: Source, function: Function, change: Change) -> str | None:
    """Another value of an expression, from a function of its own."""
    assert isinstance(change.node, ast.expr)
    old = source.of(change.node)
    if "\n" in old:
        return None
    name = _helper_name(source, function, change.node, change.text)
    names = _locals(function, change.text)
    is_symbolic = change.form == "a symbolic form"
    called = change.text if is_symbolic else f"{name}({', '.join(names)})"
    after = syntax.replaced(source.text, change.node, _either(source, change.node, old, called))
    if is_symbolic:
        return after
    return _with_helper(source, function, after, name, names, f"return {change.text}", "bool")


def _either(source: Source, node: ast.expr, old: str, new: str) -> str:
    """The old code for scripting, else the new one, as PyTorch's formatter writes it."""
    line = source.text.splitlines()[node.lineno - 1]
    whole = f"{old} if {OLD} else {new}"
    is_test = isinstance(parent := source.parents[node], ast.If) and parent.test is node
    if len(line) - len(old) + len(whole) + 2 * (not is_test) <= LONGEST_LINE:
        return whole if is_test else f"({whole})"
    indent = " " * (len(line) - len(line.lstrip()))
    parts = (old, f"if {OLD}", f"else {new}")
    return "".join(["(\n", *(f"{indent}    {part}\n" for part in parts), f"{indent})"])


def _lines(source: Source, *nodes: ast.stmt) -> str:
    """The lines from the first statement to the end of the last one, with their indentation."""
    return "\n".join(source.text.splitlines()[nodes[0].lineno - 1 : nodes[-1].end_lineno])


def _is_clause(test: ast.expr, node: ast.expr) -> bool:
    return isinstance(test, ast.BoolOp) and node in test.values


def _helper_name(source: Source, function: Function, node: ast.expr | ast.stmt, condition: str) -> str:
    """A new name for the function of a check or of another condition: what it is in (of a method, the class), and which
    argument it reads first. With a number if the module has it, or if an earlier check of the function would.
    """
    method = next((one.name for one in source.above(function) if isinstance(one, ast.ClassDef)), "")
    owner = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", method).lower() or function.name.strip("_")
    subject = _subject(function, condition)
    start = f"_check_{owner.removeprefix('check_')}" if isinstance(node, ast.stmt) else f"_{owner}_condition"
    name = start if not subject or start.endswith(f"_{subject}") else f"{start}_{subject}"
    checks = [one for one in ast.walk(function) if isinstance(one, ast.If | ast.Assert) and _raises(source, one)]
    earlier = (one.test for one in checks if one.lineno < node.lineno)
    number = 1 + sum(_subject(function, ast.unparse(test)) == subject for test in earlier)
    while re.search(rf"\b{name}{f'_{number}' if number > 1 else ''}\b", source.text):
        number += 1
    return f"{name}_{number}" if number > 1 else name


def _raises(source: Source, node: ast.If | ast.Assert) -> bool:
    return isinstance(node, ast.Assert) or raised_by(source, node) is not None


def _subject(function: Function, code: str) -> str:
    """The first argument of a function that a code reads, else the first local name; empty if there is none."""
    names = [one for one in _locals(function, code) if one != "self"]
    given = [one.arg for one in _arguments(function)]
    return next((one for one in names if one in given), names[0] if names else "")


_SIZES = frozenset({"size", "shape", "numel", "dim", "ndim"})
"""What a tensor says of its sizes."""


def _is_of_sizes(function: Function, condition: str) -> bool:
    """Whether a condition reads nothing but sizes of tensors, which are no numbers of numpy."""
    names = set(_locals(function, condition))
    nodes = list(ast.walk(syntax.parse(condition)))
    sizes = {id(one.value) for one in nodes if isinstance(one, ast.Attribute) and one.attr in _SIZES}
    read = (one for one in nodes if isinstance(one, ast.Name) and one.id in names)
    return all(id(one) in sizes and one.id != "self" for one in read)


def _arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _locals(function: Function, code: str) -> list[str]:
    """The local names of a function that a code reads, in the order of the code."""
    given = [one.arg for one in _arguments(function)]
    stored = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    tree = syntax.parse(code.replace("return ", "", 1) if code.startswith("return ") else code)
    bound = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    read = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    read.sort(key=lambda one: (one.lineno, one.col_offset))
    return [name for name in dict.fromkeys(one.id for one in read) if name in {*given, *stored} and name not in bound]


def _with_helper(
    source: Source,
    function: Function,
    text: str,
    name: str,
    names: list[str],
    body: str,
    returns: str,
) -> str | None:
    """The text with a function before the function or the class that calls it. None for a function in a function."""
    outer = [one for one in source.above(function) if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    if len(outer) > 1 or any(isinstance(one, ast.FunctionDef) for one in outer):
        return None
    top = outer[0] if outer else function
    anything = next(
        (one for one in ("_Any", "Any") if re.search(rf"^from typing import .*\b{one}\b", source.text, re.M)), "object"
    )
    typed = {
        one.arg: source.of(one.annotation).removesuffix(" | None")  # what is compared is not None
        for one in _arguments(function)
        if one.annotation is not None
    }
    if outer:
        typed["self"] = f'"{top.name}"'
    parameters = [f"{one}: {typed.get(one, anything)}" for one in names]
    head = f"def {name}({', '.join(parameters)}) -> {returns}:"
    if len(head) > LONGEST_LINE:
        head = "\n".join([f"def {name}(", *(f"    {one}," for one in parameters), f") -> {returns}:"])
    shapes = sorted(names_in(body) - {"torch"})
    imported = f"from {SHAPES} import {', '.join(shapes)}\n\n" if shapes else ""
    # What `is_scripting` excludes is not compiled. `torch.jit` may not be there yet when the file is imported.
    unused = "@_jit_unused\n" if "as _jit_unused" in source.text else ""
    helper = f"{unused}{head}\n{textwrap.indent(imported + body, '    ')}\n\n\n"
    first = min([top.lineno, *(one.lineno for one in top.decorator_list)])
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: first - 1], helper, *lines[first - 1 :]])
