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


def seen(
    errors: list[BaseException], expected: dict[str, str], internal: tuple[str, ...], callers: tuple[str, ...]
) -> dict[str, str]:
    """The innermost C++ function that is not internal to guards and dispatch, and the expression that it
    evaluated.

    Some builds of torch do not print the names of static functions: then a caller stands for the function, if its
    innermost call has no name. If the exception has no C++ frames, only the expression is compared.
    """
    expression = expression_of(errors[-1])
    known = expected.get("evaluated", expression)
    evaluated = known if words(expression) == words(known) else expression
    names = [head for error in reversed(errors) for head in native_functions(str(error))]
    hidden = False
    for name in names:
        if name in UNNAMED:
            hidden = True
        elif re.search(rf"(^|[\s*&]){re.escape(expected['function'])}$", name) or (hidden and name in callers):
            return {"function": expected["function"], "evaluated": evaluated}
        elif not any(re.search(rf"(^|[\s*&]){re.escape(prefix)}", name) for prefix in internal):
            return {"function": name, "evaluated": evaluated}
        else:
            hidden = False
    names = [name for name in names if name not in UNNAMED]
    return {"function": names[-1] if names else expected["function"], "evaluated": evaluated}


def expression_of(error: BaseException) -> str:
    """The expression of a data-dependent error, or of one that the message quotes; else the message's first line."""
    quoted = re.search(r"data-dependent expression (.+?) \(unhinted", str(error))
    text = quoted[1] if quoted else str(error).partition("\n")[0]
    return str(getattr(error, "cond", text))


def native_functions(message: str) -> list[str]:
    """The C++ functions of a message's innermost native call, innermost first, without parameters and templates."""
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


def words(expression: str) -> list[str]:
    """The parts of an expression, independent of symbol names, order and direction."""
    expression = re.sub(r"\b(u|s|zf|zuf)\d+\b", "u", expression.replace("Ne(", "Eq("))
    return sorted(re.findall(r"\w+|[-+*/%&|<]+", re.sub("[<>]=?", "<", expression)))
