"""A subject at several data sizes: a program by its recipes, the user's own code by its dynamic dims."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch

from ddefuzz.execute.exercise import resized
from ddefuzz.execute.prepared import Prepared, leaves_of, with_leaves
from ddefuzz.execute.protocol import ProgramSubject, Subject
from ddefuzz.execute.subject import prepare
from ddefuzz.program.sizes import CallSize

Sized: TypeAlias = tuple[CallSize, Callable[[], Prepared]]
"""A size, and a function that prepares a new subject of that size."""


def at_sizes(subject: Subject, sizes: Iterable[CallSize]) -> list[Sized]:
    """The subject at each size that its inputs can have. The sizes of user code must be numbers."""
    if isinstance(subject, ProgramSubject):
        found = ((size, resized(subject, size)) for size in sizes)
        return [(size, partial(prepare, at)) for size, at in found if at is not None]
    return [(size, partial(_with_size, subject, int(size))) for size in sizes]


def refusal(prepared: Prepared) -> str:
    """Why user code cannot be called at other sizes; empty if it can."""
    tensors = [leaf for leaf in leaves_of(prepared) if isinstance(leaf, torch.Tensor)]
    if prepared.kwargs or len(tensors) > sum(isinstance(one, torch.Tensor) for one in prepared.args):
        return "only tensors that are positional arguments can get other sizes"
    if not prepared.unbacked:
        return "no dim of its arguments is said to be unbacked (--unbacked, NAME_unbacked)"
    if any(not leaves_of(prepared)[place.leaf].shape[place.dim] for place in prepared.unbacked):
        return "an unbacked dim of its example arguments has the size 0"
    return ""


def _with_size(subject: Subject, size: int) -> Prepared:
    """The subject with this size in each of its unbacked dims: the example's values, repeated or cut."""
    prepared = prepare(subject)

    def sized(at: int, leaf: Any) -> Any:
        places = [place for place in prepared.unbacked if place.leaf == at]
        if not places:
            return leaf
        grows = leaf.requires_grad
        for place in places:
            leaf = leaf.detach().index_select(place.dim, torch.arange(size) % leaf.shape[place.dim])
        return leaf.requires_grad_(grows)

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, sized)
    return replace(prepared, args=args, kwargs=kwargs)
