"""The whole catalogue by group, and the parsing of case files that use it. Nothing here imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ddefuzz.ops.broadcast import BROADCAST
from ddefuzz.ops.contiguity import CONTIGUITY
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.ops.distributions import DISTRIBUTIONS, INITIALIZED, JACOBIANS
from ddefuzz.ops.dtensors import DISTRIBUTED
from ddefuzz.ops.factories import FACTORIES
from ddefuzz.ops.gradients import GRADIENTS, MAPPED
from ddefuzz.ops.higher_order import CONTEXTS, CONTROL, FLEXIBLE, FUNCTIONAL, SCANS
from ddefuzz.ops.jagged_tensors import JAGGED
from ddefuzz.ops.linalg import DECOMPOSITIONS, PRODUCTS, TRANSFORMS
from ddefuzz.ops.losses import LOSSES
from ddefuzz.ops.modules import LAYERS, SEQUENTIAL, STATEFUL
from ddefuzz.ops.nn import ATTENTION, CONVOLUTION, NORMALIZATION, POOLING, RESAMPLING
from ddefuzz.ops.opinfo import OPINFO
from ddefuzz.ops.others import OTHERS
from ddefuzz.ops.pointwise import POINTWISE
from ddefuzz.ops.python import LISTS, NUMBERS
from ddefuzz.ops.reductions import REDUCTIONS
from ddefuzz.ops.references import REFERENCES
from ddefuzz.ops.reshape import RESHAPE
from ddefuzz.ops.scalars import SCALARS
from ddefuzz.ops.selection import SELECTION
from ddefuzz.ops.sizes import BRANCHES, SIZES
from ddefuzz.ops.slicing import SLICING
from ddefuzz.ops.sources import SOURCES
from ddefuzz.ops.sparse import SPARSE
from ddefuzz.ops.spec import OpSpec, callables_in
from ddefuzz.ops.subscripts import SUBSCRIPTS
from ddefuzz.program import text as program_text
from ddefuzz.program.text import Case

GROUPS: Final[dict[str, tuple[OpSpec, ...]]] = {
    "sources": SOURCES,
    "sizes": SIZES,
    "branches": BRANCHES,
    "factories": FACTORIES,
    "slicing": SLICING,
    "selection": SELECTION,
    "reshape": RESHAPE,
    "broadcast": BROADCAST,
    "contiguity": CONTIGUITY,
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "products": PRODUCTS,
    "decompositions": DECOMPOSITIONS,
    "transforms": TRANSFORMS,
    "normalization": NORMALIZATION,
    "attention": ATTENTION,
    "convolution": CONVOLUTION,
    "pooling": POOLING,
    "resampling": RESAMPLING,
    "losses": LOSSES,
    "layers": LAYERS,
    "stateful": STATEFUL,
    "sequential": SEQUENTIAL,
    "gradients": GRADIENTS,
    "mapped": MAPPED,
    "control": CONTROL,
    "scans": SCANS,
    "functional": FUNCTIONAL,
    "contexts": CONTEXTS,
    "flexible": FLEXIBLE,
    "numbers": NUMBERS,
    "lists": LISTS,
    "subscripts": SUBSCRIPTS,
    "scalars": SCALARS,
    "jagged": JAGGED,
    "sparse": SPARSE,
    "others": OTHERS,
    "distributions": DISTRIBUTIONS,
    "initialized": INITIALIZED,
    "jacobians": JACOBIANS,
    "distributed": DISTRIBUTED,
    "references": REFERENCES,
}

OPS: Final[tuple[OpSpec, ...]] = tuple(spec for specs in GROUPS.values() for spec in specs)

DRAWN: Final[frozenset[str]] = frozenset(
    name for template in (*(spec.template for spec in OPS), *TEMPLATES) for name in callables_in(template)
)
"""The names that a generated program may call."""

CALLABLES: Final = DRAWN | OPINFO
"""The names that any program may call. A case file that calls others is rejected."""


def parse(text: str, path: str) -> Case:
    """Parse the text of a case. Raises ProgramError, with `path`, if it is not a program of the catalogue."""
    return program_text.parse(text, path, CALLABLES)


def read(path: Path) -> Case:
    """Read a case from a file. Raises InputError if the file cannot be read, ProgramError if it is not a program."""
    return program_text.read_case(path, CALLABLES)
