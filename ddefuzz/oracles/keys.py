"""The oracle of key functions: the key of a tensor distinguishes what a cache of kernels has to, and no more.
`check_key` tries every property of a function, each as a task of a worker: the function ends or spoils no more than
that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Template
from textwrap import indent
from typing import Final

import msgspec

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import KeySubject, Run, Runner, Stage
from ddefuzz.execute.worker import Task, late
from ddefuzz.files import real_path
from ddefuzz.instrument.events import Frame
from ddefuzz.keys.argument_lists import Given, row_of
from ddefuzz.keys.case import KEY_FUNCTIONS, KeyCase, KeyReport, Options, Property, PropertyName, TensorSpec, parse_key
from ddefuzz.keys.case import KINDS as TENSOR_KINDS
from ddefuzz.keys.case import Kind as TensorKind
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage, Script, measured_in
from ddefuzz.program.text import is_key

KIND_OF: Mapping[PropertyName, Kind] = {
    "gives-a-key": "no-key",
    "adds-no-guard": "key-guards",
    "tells-apart": "key-confuses",
    "shares": "key-splits",
    "holds-no-tensor": "key-holds-tensor",
    "same-in-other-process": "key-differs-by-process",
}
"""The kind of failure for each property that a key function violates."""


def untrusted_function(text: str) -> str:
    """The function of a stored case that is called only with --trust; empty for `KEY_FUNCTIONS` and for programs."""
    function = parse_key(text, "<key>").function if is_key(text) else ""
    return "" if function in KEY_FUNCTIONS else function


def check_trust(text: str, *, trust: bool) -> None:
    """Raise InputError if a stored case executes code that needs `trust`. All runs of stored cases pass here, in a
    worker (`keys_run`) and as a stand-alone script (`repro.run`).
    """
    function = "" if trust else untrusted_function(text)
    if function:
        raise InputError(f"found the key function {function}, which is executed only with --trust")


class KeyCheck(msgspec.Struct, frozen=True, tag="keyed"):
    """What a key function did. `why` says how it violates the property; it is empty if it does not.

    `part` is the part of the tensors that the key confuses, the error, or the line that evaluated a guard. `defined` is
    the definition of the function, `asked` the line in it that evaluated a guard or raised.
    """

    violates: PropertyName
    defined: Frame
    why: str = ""
    part: str = ""
    tensors: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    asked: Frame | None = None


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the property that the tensors of a case violate."""
    keyed = seen.observation.measurement(KeyCheck)
    if keyed is None or not keyed.why:
        return ()
    return (Failure(KIND_OF[keyed.violates], seen.observation, f"{keyed.why}: {', '.join(keyed.tensors)}"),)


def locate(failure: Failure, _seen: OracleInput, _runner: Runner) -> Location:
    """The key function. The anchor is what it confuses, or its line that asks."""
    keyed = measured_in(failure, KeyCheck)
    place = Site("Python", keyed.defined.file, keyed.defined.function)
    return Location(place, keyed.asked or keyed.defined, keyed.part or keyed.violates)


def facts(failure: Failure) -> Iterator[tuple[str, str]]:
    """What a key function did with the tensors of a case."""
    keyed = measured_in(failure, KeyCheck)
    yield "violates", f"{keyed.violates}: {keyed.why}"
    yield "defined at", f"{keyed.defined.file}:{keyed.defined.line}"
    if keyed.asked is not None:
        yield "asks at", f"{keyed.asked.file}:{keyed.asked.line}"
    yield "tensors", "\n".join(keyed.tensors)
    yield "keys", "\n".join(keyed.keys)


def frame(failure: Failure) -> Frame | None:
    """The line that asks, else the definition of the key function."""
    keyed = measured_in(failure, KeyCheck)
    return keyed.asked or keyed.defined


_IMPORTED: Final = """
def key_function():
    from importlib import import_module

    return getattr(import_module($module), $name)
"""

_OF_FILE: Final = """
def key_function():
    from runpy import run_path

    return run_path($module)[$name]
"""

_OWN_TENSOR: Final = """
class OwnTensor(torch.Tensor):
    pass
"""

_PLAIN: Final = """
def $name(use):
    return use($made)
"""

_WITHIN: Final[dict[str, str]] = {
    "batched": """
def $name(use):
    found = []

    def inner(tensor):
        found.append(use(tensor))
        return tensor

    torch.vmap(inner)($made)
    return found[0]
""",
    "grad": """
def $name(use):
    found = []

    def inner(tensor):
        found.append(use(tensor))
        return tensor.sum()

    torch.func.grad(inner)($made)
    return found[0]
""",
}
"""How a tensor is made that exists within a transform only."""

_UNBACKED: Final = """
def unbacked():
    \"""Two tensors whose sizes are all unbacked, and their ShapeEnv.\"""
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    kind = getattr(DimDynamic, "UNBACKED", None) or DimDynamic.SIZE_LIKE_UNBACKED
    env, tensors = ShapeEnv(), []
    for name in ("x", "y"):
        context = StatelessSymbolicContext(dynamic_sizes=[kind] * $rank)
        mode, source = FakeTensorMode(shape_env=env), ConstantSource(name)
        made = mode.from_tensor(torch.zeros($sizes), symbolic_context=context, source=source)
        tensors.append($made)
    return *tensors, env
"""

_CHECKS: Final[dict[PropertyName, str]] = {
    "gives-a-key": """
    def twice(tensor):
        keys = key(tensor), key(tensor)
        hash(keys[0])
        return keys

    try:
        keys = (*first(twice), *first(twice))
    except Exception as error:
        return type(error).__name__, [str(error).partition("\\n")[0]]
    same = all(one == keys[0] and hash(one) == hash(keys[0]) for one in keys)
    return "" if same else "two keys of the same tensor differ", keys
""",
    "adds-no-guard": """
    first, second, env = unbacked()
    before = state(env)
    made = None
    with fallbacks() as fell_back:
        try:
            made = key(first)
            if state(env) == before and not fell_back:
                bool(made == key(second))
            hash(made)
        except Exception as error:
            return type(error).__name__, [str(error).partition("\\n")[0]]
    if fell_back:
        return f"evaluates {fell_back[0]}", [made]
    return "" if state(env) == before else "adds a guard or a replacement", [made]


def state(env):
    return len(env.guards), dict(env.replacements), env.num_deferred_runtime_asserts, dict(env.var_to_range)


@contextlib.contextmanager
def fallbacks():
    \"""The expressions that ShapeEnv could not decide, and for which it returned a fallback.\"""
    import inspect

    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original, found = ShapeEnv.evaluate_expr, []

    def evaluate_expr(self, *args, **kwargs):
        given = inspect.signature(original).bind(self, *args, **kwargs).arguments
        if given.get("fallback_value") is not None and self._maybe_evaluate_static(args[0]) is None:
            found.append(str(args[0]))
        return original(self, *args, **kwargs)

    ShapeEnv.evaluate_expr = evaluate_expr
    try:
        yield found
    finally:
        ShapeEnv.evaluate_expr = original
""",
    "tells-apart": """
    keys = first(key), second(key)
    return "equal keys for different tensors" if keys[0] == keys[1] else "", keys
""",
    "shares": """
    keys = first(key), second(key)
    return "" if keys[0] == keys[1] else "two keys where one would do", keys
""",
    "holds-no-tensor": """
    alive = []

    def keyed(tensor):
        alive.append(weakref.ref(tensor))
        return key(tensor)

    made = first(keyed)
    gc.collect()
    return "" if alive[0]() is None else "the tensor is alive as long as its key", [made]
""",
    "same-in-other-process": """
    here = first(lambda tensor: repr(key(tensor)))
    if "--text" in sys.argv:
        return here, []
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, __file__, "--text"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
    there = json.loads(done.stdout.splitlines()[-1])["seen"]["wrong"]
    return "" if here == there else "two texts", [here, there]
""",
}
"""What `wrong_keys` returns for each property: what is wrong, empty if nothing is, and the keys."""

_IMPORTS: Final[dict[PropertyName, tuple[str, ...]]] = {
    "holds-no-tensor": ("gc", "weakref"),
    "same-in-other-process": ("os", "subprocess"),
}

_SCRIPT: Final = Script(
    needs="""torch (2.6 or later) and the module of the key function. It prints one JSON line, and
exits with""",
    verdicts=(
        "the key is wrong in the way described at EXPECTED",
        ": nothing is wrong with the key of these tensors",
        "",
        "there is no such key function, or this torch cannot make the tensors",
    ),
    body='''\
$key
$tensors

EXPECTED = $expected


def wrong_keys(key):
    """What is wrong with the keys, empty if nothing is, and the keys."""
    $check
''',
    start='verdict, found = "not judged", None\nwarnings.simplefilter("ignore")',
    attempt="""\
key = key_function()
$make
verdict = "fails otherwise"
wrong, keys = wrong_keys(key)
found = {"violates": EXPECTED["violates"], "wrong": wrong}
print(*map(repr, keys), sep="\\n")
verdict = "passes" if not wrong else "shows" if found == EXPECTED else "fails otherwise\"""",
)

_NAMES: Final = ("first", "second")


def script(text: str, _stage: Stage, failure: Failure) -> Script:
    """The script makes the keys of the tensors of a case, and compares them."""
    keyed = measured_in(failure, KeyCheck)
    case = parse_key(text, "<key>")
    module, _, name = case.function.rpartition(":")
    is_file = module.endswith(".py")
    place = str(real_path(module)) if is_file else module
    symbolic, check = case.violates == "adds-no-guard", _CHECKS[case.violates].strip()
    made = "unbacked()" if symbolic else "\n            ".join(f"{one}(type)" for one in _NAMES[: len(case.tensors)])
    if case.given:
        tensors = _given(case, symbolic)
        made, check = ("unbacked()", check) if symbolic else ("given()", f"first, second = given()\n    {check}")
    else:
        tensors = _unbacked(case.tensors[0]) if symbolic else "\n".join(map(_tensor, _NAMES, case.tensors))
    wrong = keyed.why.partition(": ")[0]  # of an error, its class: the rest differs between versions of torch
    return _SCRIPT._replace(
        expected={"violates": keyed.violates, "wrong": wrong},
        copied="\n".join(f"import {one}" for one in ("warnings", *_IMPORTS.get(case.violates, ()))),
        parts={
            "key": Template(_OF_FILE if is_file else _IMPORTED).substitute(module=repr(place), name=repr(name)),
            "tensors": "\n".join([*_needed(case), tensors]),
            "check": check,
            "make": made,
        },
    )


def snippet(text: str, _stage: Stage, _failure: Failure) -> str:
    """The lines for an issue: the import, the tensors, and what is wrong. Raises InputError if they are not enough."""
    case = parse_key(text, "<key>")
    module, _, name = case.function.rpartition(":")
    line = _LINES.get(case.violates)
    if line is None or module.endswith(".py") or any(one.kind in _WITHIN for one in case.tensors):
        raise InputError(f"found a case that a snippet cannot show ({case.violates}), expected another: use --repro")
    lines = ["import torch", *_needed(case), f"from {module} import {name}", ""]
    row = _row(case)
    if row is not None:
        first, second = case.given
        lines += [row.setup.strip()]
        if case.violates == "adds-no-guard":
            return "\n".join([*lines, f"first, second = {first}, {second}", line.format(key=name)]) + "\n"
        sign = "!=" if row.differ(case.given) else "=="
        return "\n".join([*lines, f"assert {name}({first}) {sign} {name}({second})"]) + "\n"
    if case.violates == "adds-no-guard":
        lines += [_unbacked(case.tensors[0]).strip(), "", "", "first, second, env = unbacked()"]
    else:
        lines += [f"{one} = {tensor.plain}" for one, tensor in zip(_NAMES, case.tensors, strict=False)]
    return "\n".join([*lines, line.format(key=name)]) + "\n"


_LINES: Final[dict[PropertyName, str]] = {
    "gives-a-key": "assert hash({key}(first)) == hash({key}(first))",
    "adds-no-guard": "{key}(first) == {key}(second), hash({key}(first))\n"
    "assert not env.guards and not env.replacements",
    "tells-apart": "assert {key}(first) != {key}(second), {key}(first)",
    "shares": "assert {key}(first) == {key}(second), ({key}(first), {key}(second))",
}
"""The last lines of a snippet, which fail."""


def _row(case: KeyCase) -> Given | None:
    return row_of(case.given, guarded=case.violates == "adds-no-guard") if case.given else None


_GIVEN: Final = """
def given():
    \"""Functions that call a function with each of two argument lists.\"""
$setup
    return lambda use: use($first), lambda use: use($second)
"""

_SYMBOLIC: Final = """
def unbacked():
    \"""Two symbolic tensors, and their ShapeEnv.\"""
$setup
    return $first, $second, env
"""


def _given(case: KeyCase, symbolic: bool) -> str:
    row = _row(case)
    setup = indent(row.setup.strip(), "    ") if row is not None else ""
    first, second = case.given
    return Template(_SYMBOLIC if symbolic else _GIVEN).substitute(setup=setup, first=first, second=second)


def _needed(case: KeyCase) -> list[str]:
    kinds = {one.kind for one in case.tensors} if case.violates != "adds-no-guard" else set()
    fake = ["from torch._subclasses.fake_tensor import FakeTensorMode"] if "fake" in kinds else []
    return [*fake, *([_OWN_TENSOR] if "subclass" in kinds else [])]


def _tensor(name: str, spec: TensorSpec) -> str:
    return Template(_WITHIN.get(spec.kind, _PLAIN)).substitute(name=name, made=spec.plain)


def _unbacked(spec: TensorSpec) -> str:
    exact = "torch.empty_strided(made.shape, made.stride(), device='meta')"
    made = exact if spec.kind == "meta" else "made"
    return Template(_UNBACKED).substitute(rank=len(spec.sizes), sizes=repr(spec.sizes), made=made)


KINDS: Mapping[Kind, KindRow] = {
    kind: KindRow(
        meaning,
        title,
        locate,
        cause="wrong-key",
        about_data=kind == "key-guards",
        severity="wrong values" if kind == "key-confuses" else "compiles again",
        script=script,
        snippet=snippet,
    )
    for kind, meaning, title in (
        (
            "no-key",
            "a key function raises for a tensor, or gives one tensor two keys, or a key that cannot be hashed",
            "{site} gives no key: {evidence}",
        ),
        (
            "key-guards",
            "a key function adds a guard on unbacked sizes, or fails because it asks for one",
            "{site} guards: {evidence}",
        ),
        (
            "key-confuses",
            "a key function gives equal keys to tensors for which a kernel may have to differ",
            "{site} does not distinguish {anchor}: {evidence}",
        ),
        (
            "key-splits",
            "a key function gives different keys to tensors for which one kernel is enough",
            "{site} distinguishes {anchor}: {evidence}",
        ),
        ("key-holds-tensor", "a key keeps its tensor alive", "{site} keeps the tensor alive: {evidence}"),
        (
            "key-differs-by-process",
            "the text of a key differs between two processes",
            "{site} gives another key in another process: {evidence}",
        ),
    )
}

STAGE: Final = OwnStage("key", run="ddefuzz.oracles.keys_run:run", label="the key function", owners="module: unknown")

ORACLE = Oracle(
    "keys",
    "the key of a tensor distinguishes too little or too much",
    KINDS,
    judge,
    keep=lambda failure: failure,
    stages=(STAGE,),
    by_default=False,
    of_programs=False,
    measures=KeyCheck,
    facts=facts,
    frame=frame,
)


START_SECONDS: Final = 120.0
"""How long the module of the function may take to import."""

PROPERTY_SECONDS: Final = 600.0
"""How long one property may take, unless the caller says otherwise."""


class PropertyTask(msgspec.Struct, frozen=True):
    """One property of a function to try, on so many drawn tensors, or pairs of them, of these kinds."""

    target: str
    name: PropertyName
    options: Options
    examples: int
    kinds: tuple[TensorKind, ...]


def check_key(
    pool: Pool,
    target: str,
    options: Options,
    examples: int,
    names: Sequence[str],
    timeout: float,
    tell: Callable[..., None],
) -> KeyReport:
    """Every property of the function. `tell` gets the progress. Raises InputError for a target that has none."""
    wrong = next((name for name in names if name not in TENSOR_KINDS), None)
    if wrong is not None:
        raise InputError(f"--kind: found {wrong!r}, expected one of {', '.join(TENSOR_KINDS)}")
    kinds: tuple[TensorKind, ...] = tuple(kind for kind in TENSOR_KINDS if not names or kind in names)
    version = pool.submit(find_key, target, START_SECONDS).result()
    if isinstance(version, LostTask):
        raise InputError(f"{target}: found a module whose import ends in {version.outcome}: {version.reason}")
    tried: list[Property] = []
    for name in KIND_OF:
        tried.append(_tried(pool, PropertyTask(target, name, options, examples, kinds), timeout))
        tell(f"{len(tried)} of {len(KIND_OF)} properties", is_last=len(tried) == len(KIND_OF))
    return KeyReport(target, options, version, tuple(tried))


def _tried(pool: Pool, task: PropertyTask, timeout: float) -> Property:
    try:
        result = pool.submit(try_property, task, timeout).result()
    except InputError as error:
        return Property(task.name, "", 0, (), str(error))
    if isinstance(result, LostTask):
        lost = lost_observation(Run(KeySubject(task.target), STAGE.name), result)
        return Property(task.name, "", 0, (), lost.reason)
    return result


def find_key(target: str) -> str:
    """Import the function that the target names, as a task. It returns the version of torch."""
    late("ddefuzz.oracles.keys_run").load_key(target)
    return str(late("torch").__version__)


try_property = Task("ddefuzz.oracles.keys_run:try_property", PropertyTask, Property)
