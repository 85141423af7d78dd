"""Names the inputs of a subject as the user does, for symbols that are dims of these inputs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType

MASK_FUNCTION = "_kept"
"""The function of a stage whose local `symbol` names the size that it makes unbacked."""

_DIM = re.compile(r"L\['(?P<name>\w+)'\](?P<path>.*)\.size\(\)\[(?P<dim>\d+)\]")
"""A dim of an input as dynamo's sources are named: `L['batch']['ids'].size()[1]`."""


def _empty() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Inputs:
    """`masked` are the dims (`dim 0 of ids`) of each symbol that masks make unbacked. `leaves` are the names of all
    leaves of the arguments, `positional` those of the positional arguments: a stage may pass them as `args`, and
    strict export numbers the leaves. `written` is how the user writes a leaf, by torch's name of it.
    """

    masked: Mapping[str, str] = field(default_factory=_empty)
    positional: tuple[str, ...] = ()
    leaves: tuple[str, ...] = ()
    written: Mapping[str, str] = field(default_factory=_empty)

    def dim(self, source: str, frame: FrameType | None) -> str:
        """The dim of an input that a new symbol stands for, from torch's name of the symbol or from the mask that makes
        it.

        Empty if it is not known.
        """
        named = _DIM.fullmatch(source)
        if named is not None:
            name = self._name(named["name"], named["path"])
            return f"dim {named['dim']} of {self.written.get(name, name)}"
        while frame is not None and frame.f_code.co_name != MASK_FUNCTION:
            frame = frame.f_back
        if frame is not None:
            return self.masked.get(str(frame.f_locals.get("symbol")), "")
        return next(iter(self.masked.values())) if len(self.masked) == 1 else ""

    def _name(self, name: str, path: str) -> str:
        index = re.match(r"\[(\d+)\]", path)
        numbered = {"args": self.positional, "flat_args": self.leaves}.get(name, ())
        if index is not None and int(index[1]) < len(numbered):
            return numbered[int(index[1])] + path[index.end() :]
        key = re.match(r"\['(\w+)'\]", path)
        return key[1] + path[key.end() :] if name == "kwargs" and key is not None else name + path
