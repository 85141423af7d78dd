"""Changes of C++ as text: what becomes of a guard in a function of torch. They are not compiled."""

from __future__ import annotations

import re
from typing import Final

from ddefuzz.classify.signature import Site, Verdict

NUMBER: Final = "a number"
"""What a site needs that takes a SymInt as an int."""

SYMBOLIC: Final = {"==": "sym_eq", "!=": "sym_ne", "<": "sym_lt", "<=": "sym_le", ">": "sym_gt", ">=": "sym_ge"}
"""The methods of c10::SymInt (c10/core/SymInt.h) that compare and give a SymBool."""

_MACROS: Final[dict[Verdict, str]] = {
    "guard_or_false here": "TORCH_GUARD_OR_FALSE({})",
    "guard_or_true here": "TORCH_GUARD_OR_TRUE({})",
    "either answer here": "TORCH_GUARD_OR_FALSE({})",
    "torch._check here": "TORCH_SYM_CHECK({}, …)",
}
"""The macros of c10/core/SymBool.h that ask a SymBool."""


def native_change(site: Site, anchor: str, verdict: Verdict) -> str:
    """What becomes of the guard of a C++ function, or of an op's schema, in a sentence."""
    if anchor.startswith(("guard_int", "guard_float")) or verdict == "needs SymInt":
        if site.language == "op":
            return f"the schema of {site} takes SymInt for int (native_functions.yaml), and its kernels c10::SymInt"
        return f"{site} reads sizes as c10::SymInt (sym_size, sym_sizes) in place of int64_t"
    operator = re.search(r"operator(==|!=|<=|>=|<|>)", anchor)
    asked = f"a.{SYMBOLIC[operator[1]]}(b)" if operator else "the SymBool"
    spelled = f"`a {operator[1]} b` of a SymInt" if operator else "the truth of a SymBool"
    macro = _MACROS.get(verdict)
    if macro is None:
        return f"in {site}, {spelled} is not evaluated: a symbolic form, or a deferred check"
    redundant = "; both answers agree, so see first whether the test can go" if verdict == "either answer here" else ""
    return f"in {site}, {spelled} becomes `{macro.format(asked)}`{redundant}"
