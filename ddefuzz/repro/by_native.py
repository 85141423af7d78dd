"""The part of a stand-alone script that recognizes a C++ function and the expression that it evaluated.

The source from the line `# ---` on is copied into scripts. It is written for Python 3.9 and torch 2.6, and later.
"""

from __future__ import annotations

import itertools
import re

# ---
BINDINGS = ("torch::autograd::THP", "THP", "pybind11::cpp_function::dispatcher")
UNNAMED = ("??", "<unknown function>")
TAKING_THE_STACK = ("torch::unwind::", "torch::CapturedTraceback::", "pybind11::")


def seen(errors: list[BaseException], expected: dict[str, str], internal: tuple[str, ...]) -> dict[str, str]:
    """The innermost C++ function that is not internal to guards and dispatch, and the expression that it
    evaluated.
    """
    expression = expression_of(errors[-1])
    known = expected.get("evaluated", expression)
    facts = {"evaluated": known if question(expression) == question(known) else expression}
    for name in (name for error in reversed(errors) for name in native_functions(str(error))):
        if re.search(rf"(^|[\s*&]){re.escape(expected['function'])}$", name):
            return {"function": expected["function"], **facts}
        if name in UNNAMED or not any(re.search(rf"(^|[\s*&]){re.escape(prefix)}", name) for prefix in internal):
            return {"function": name, **facts}
    return {"function": "none in C++", **facts}


def expression_of(error: BaseException) -> str:
    """The expression of a data-dependent error, or of one that the message quotes; else the message's first line."""
    quoted = re.search(r"data-dependent expression (.+?) \(unhinted", str(error))
    text = quoted[1] if quoted else str(error).partition("\n")[0]
    return str(getattr(error, "cond", text))


def native_functions(message: str) -> list[str]:
    """The C++ functions of a message's innermost native call, innermost first, without parameters and templates."""
    message = message.replace("\\n", "\n")  # of a quoted message
    stack = message.partition("C++ stack trace:\n")[2]
    names = re.findall(r"^frame #\d+: (.+?)(?: \+ 0x|$)", message, re.MULTILINE)
    names += reversed(re.findall(r'^  File "[^"\n]*", line \d+, in (.+)$', stack, re.MULTILINE))
    # Python's own functions print without parameters.
    names = [plain(name) for name in names if "(" in name or name in UNNAMED]
    names = list(itertools.dropwhile(lambda name: name in UNNAMED or name.startswith(TAKING_THE_STACK), names))
    start = [at for at, name in enumerate(names) if "PythonSymNodeImpl" in name]
    call: list[str] = []
    for name in names[min(start, default=0) :]:
        call.append(name)
        if name.startswith(BINDINGS):
            # A functional tensor reads the sizes of the tensor that it wraps through Python: the call around it guards.
            if not any("FunctionalTensorWrapper" in name for name in call):
                break
            call.clear()
    return call


def plain(name: str) -> str:
    """A printed C++ function without its parameters and template arguments."""
    count = 1 if name not in UNNAMED else 0
    while count:
        name, count = re.subn(r"(?<!operator)<[^<>]*>", "", name)
    return re.split(r"\((?!anonymous)", name)[0]


def question(expression: str) -> list[str]:
    """The parts of an expression, independent of symbol names and operands' order; of a comparison also
    independent of its direction (`a < b`, `b > a`) and negation (`a >= b`).
    """
    text = re.sub(r"\b(u|s|zf|zuf)\d+\b", "u", expression.replace("Ne(", "Eq("))
    text = re.sub(r"\b(\d+)\.0\b", r"\1", text)
    sides = re.split(r" ([<>]=?) ", text)
    if len(sides) != 3 or "|" in text or "&" in text:
        return parts(text)
    left, sign, right = sides
    smaller, other = (left, right) if sign in {"<", ">="} else (right, left)
    return [*parts(smaller), "<", *parts(other)]


def parts(text: str) -> list[str]:
    """The names, numbers and operators of a text, sorted."""
    return sorted(re.findall(r"\w+|[-+*/%&|<>=]+", text))
