"""The identity of a bug: kind + framework call site + anchor, exact, explainable, without line numbers."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.failure import Kind

Cause: TypeAlias = Literal[
    "avoidable",
    "int-required",
    "no-kernel",
    "result-depends-on-data",
    "python-value",
    "refused",
    "user",
    "wrong-capture",
    "unclassified",
]

USER_CODE = "user code"

SiteLanguage: TypeAlias = Literal["Python", "C++", "op"]
"""What a site's function is: of Python, of C++, or an op as users and the dispatcher name it (`torch.chunk`,
`aten::chunk`), where no line of torch but the op's schema, kernel or support is to blame."""


class Site(msgspec.Struct, frozen=True, order=True):
    """The framework call site; `module` is Python's file relative to torch's folder, None for C++ and ops.

    A failure of the user's own code has the module `user code`.
    """

    language: SiteLanguage
    module: str | None
    function: str | None

    def __str__(self) -> str:
        if self.language != "Python":
            return self.function or self.language
        if self.module is None:
            return "an unknown place"
        return f"{self.module}:{self.function}" if self.function else self.module


class Signature(msgspec.Struct, frozen=True, order=True):
    """Which bug a failure is.

    `anchor` is the code at the site as `ast.unparse` has it; for C++ the SymNode method and the operator; for an op the
    reason.
    """

    kind: Kind
    site: Site
    anchor: str

    @property
    def key(self) -> str:
        """A short stable name of the signature: kind and 10 hex digits of its content."""
        content = "\x00".join(
            (self.kind, self.site.language, self.site.module or "", self.site.function or "", self.anchor)
        )
        return f"{self.kind}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"

    def __str__(self) -> str:
        return f"{self.kind} at {self.site} [{self.anchor}]"
