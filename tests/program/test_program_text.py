from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.errors import InputError, ProgramError
from ddefuzz.program.model import (
    Binary,
    Dim,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
    Step,
)
from ddefuzz.program.text import MAX_BYTES, MAX_LINE, digest, is_program, parse, print_program, read_case, read_program

SAMPLE = """\
# ddefuzz program v1
# expect: export/explicit dde at::native::chunk
# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "u0 4"]):
    kept = x[mask]
    parts = torch.chunk(kept, 2)
    return parts[0]
"""

CATALOGUE = frozenset({"torch.chunk", "Tensor.view", "int"})


def test_the_sample_of_the_design_is_canonical() -> None:
    case = parse(SAMPLE, "sample.py", CATALOGUE)
    assert print_program(case.program, case.expect) == SAMPLE
    assert case.expect == ("export/explicit dde at::native::chunk",)
    assert case.program.inputs == (
        Input("mask", "bool", (Dim(6),), Recipe("trues", (4,))),
        Input("x", "float32", (Dim(6, "u0"), Dim(4)), Recipe("normal")),
    )
    assert case.program.steps[0] == Step(("kept",), Index(Name("x"), Name("mask")))


def test_what_is_expected_is_not_part_of_the_digest() -> None:
    case = parse(SAMPLE, "sample.py")
    silent = parse(SAMPLE.replace("# expect: export/explicit dde at::native::chunk\n", ""), "silent.py")
    assert digest(case.program) == digest(silent.program)
    assert digest(case.program) != digest(parse(SAMPLE.replace("trues(4)", "trues(3)"), "other.py").program)


def test_layouts_and_expressions_over_several_lines_are_read() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = values([1, -2.5]), sliced, grad
def program(
    x: Float32[Tensor, "u3=2"],
):
    # a comment of the author's

    a = (
        1
        - (2 - -3)
    )
    return a
"""
    case = parse(text, "long.py")
    assert case.program == Program(
        (Input("x", "float32", (Dim(2, "u3"),), Recipe("values", (1, -2.5)), "sliced", True),),
        (Step(("a",), Binary("-", Literal(1), Binary("-", Literal(2), Literal(-3)))),),
        Name("a"),
    )
    assert parse(text.replace("\n", "\r\n"), "crlf.py") == case


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (SAMPLE, True),
        ("# ddefuzz program v2\n", True),
        ("", False),
        ("import os\n", False),
        ("\n# ddefuzz program v1\n", False),
        ("def program(): return 1\n", False),
    ],
)
def test_the_header_makes_a_file_a_program(text: str, program: bool) -> None:
    assert is_program(text) is program


def with_step(step: str) -> str:
    return SAMPLE.replace("    kept = x[mask]\n", f"    {step}\n")


FORBIDDEN_STEPS = [
    "kept = __import__('os').system('touch pwned')",
    "kept = torch.load('pwned')",
    "kept = torch.os.system('touch pwned')",
    "kept = torch.vmap(torch.load)('pwned')",
    "kept = torch.vmap(torch.chunk)",
    "kept = torch.vmap(torch.chunk)(x)",
    "kept = torch.vmap(torch.chunk, 1)(x)",
    "kept = torch.vmap(torch.vmap(torch.chunk))(x)",
    "kept = torch.compile(torch.chunk)(x)",
    "kept = torch.chunk.__globals__",
    "kept = x.__class__",
    "kept = x.__class__.__bases__[0].__subclasses__()",
    "kept = x.T.__init__(x)",
    "kept = x.view.__self__",
    "kept = ().__class__.__mro__",
    "kept = torch",
    "kept = torch.serialization",
    "kept = int",
    "kept = eval('1')",
    "kept = (lambda: (lambda: 1)())()",
    "kept = torch.chunk(*x)",
    "kept = torch.chunk(x, **x)",
    "kept = torch.chunk(x, __class__=1)",
    "kept = [y for y in x]",
    "kept = {y: 1 for y in x}",
    "kept = {1, 2}",
    "kept = f'{x}'",
    "kept = (y := x)",
    "kept = lambda a: a",
    "kept = (lambda a: a, x)",
    "kept = (lambda a: a)(x)",
    "kept = torch.vmap(lambda x: x)(x)",
    "kept = torch.vmap(lambda kept: kept)(x)",
    "kept = torch.vmap(lambda a, a: a)(x, x)",
    "kept = torch.vmap(lambda a=x: a)(x)",
    "kept = torch.vmap(lambda *a: a)(x)",
    "kept = torch.vmap(lambda torch: torch)(x)",
    "kept = torch.vmap(lambda a: torch.vmap(lambda a: a)(a))(x)",
    "kept = torch.vmap(lambda a: b)(x)",
    "kept = torch.vmap(lambda a: (b := a))(x)",
    "kept = torch.vmap(lambda a: a)(x, in_dims=0)",
    "kept = torch.vmap(lambda a: torch.load('pwned'))(x)",
    "kept = torch.vmap(lambda a: a)(x)(x)",
    "kept = 1 < 2 < 3",
    "kept = x if mask else ...",
    "kept = b'1'",
    "kept = 10000000000000000000000",
    f"kept = '{'a' * 2000}'",
    "kept = 1e999",
    "kept = unknown",
    "kept = kept",
    "x = mask",
    "torch = x",
    "int = x",
    "__builtins__ = x",
    "kept: int = x",
    "kept += x",
    "kept = other = x",
    "x[0] = mask",
    "x.grad = mask",
    "kept, *rest = x",
    "(kept, (a, b)) = x",
    "() = x",
    "import os",
    "from os import system",
    "global x",
    "del x",
    "assert x",
    "raise x",
    "x.shape",
    "'a docstring'",
    "return x",
    "if x: pass",
    "for y in x: pass",
    "with x: pass",
    "def inner(): return 1",
    "class Inner: pass",
    "yield x",
    "await x",
]


@pytest.mark.parametrize(
    "value", ["f\"{'\u200b'}\"", f"{{0x{'f' * 4000}: 1}}", f"+0x{'f' * 4000}", f"x[0b{'1' * 20000}:]"], ids=range(4)
)
def test_what_python_cannot_print_is_refused_in_one_line(value: str) -> None:
    with pytest.raises(ProgramError, match=r"^bad\.py:5: found .+, expected .+") as refused:
        parse(with_step(f"kept = {value}"), "bad.py", CATALOGUE)
    assert len(str(refused.value).splitlines()) == 1


def test_an_expectation_is_read_as_it_is_printed() -> None:
    text = with_step("kept = x").replace("\n", "\n# expect:  export/explicit \t dde at a  b\n", 1)
    case = parse(text, "case.py", CATALOGUE)
    assert case.expect[0] == "export/explicit dde at a b"
    assert parse(print_program(case.program, case.expect), "case.py", CATALOGUE) == case
    with pytest.raises(ProgramError, match=r"^bad\.py:2: found .+, expected an expectation of printable characters"):
        parse(text.replace("a  b", "a \u202e b"), "bad.py", CATALOGUE)


@pytest.mark.parametrize("step", FORBIDDEN_STEPS)
def test_a_forbidden_step_is_rejected_with_its_line(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProgramError, match=r"^bad\.py:5: found .+, expected .+") as refused:
        parse(with_step(step), "bad.py", CATALOGUE)
    assert len(str(refused.value)) < 400
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("# ddefuzz program v1", "# ddefuzz program v2", 1),
        ("# ddefuzz program v1", "print('user code')", 1),
        ("# expect: export", "# except: export", 2),
        ("mask = trues(4)", "mask = trues()", 3),
        ("mask = trues(4)", "mask = trues(7)", 3),
        ("mask = trues(4)", "mask = trues(torch.load('a'))", 3),
        ("mask = trues(4)", "mask = trues(k=4)", 3),
        ("mask = trues(4)", "mask = falses(4)", 3),
        ("mask = trues(4)", "mask = __import__('os')", 3),
        ("mask = trues(4)", "mask = trues(4), channels_last", 3),
        ("mask = trues(4)", "mask = trues(4), grad", 3),
        ("mask = trues(4)", "mask = trues(4), grad, grad", 3),
        ("mask = trues(4)", "mask = values([1])", 3),
        ("x = normal", "x = values([1])", 3),
        ("mask = trues(4)", "mask", 3),
        ("mask = trues(4)", "other = normal; mask = normal", 3),
        ("mask = trues(4)", "x = normal", 3),
        ("; x = normal", "", 4),
        ("x: Float32", "x: Float31", 4),
        ('[Tensor, "u0 4"]', '[Tensor, "u0 -4"]', 4),
        ('[Tensor, "u0 4"]', '[Tensor, "n 4"]', 4),
        ('[Tensor, "u0 4"]', '[Tensor, "u0=3 u0"]', 4),
        ('[Tensor, "u0 4"]', '[Tensor, "999999999 999999999"]', 3),
        ('[Tensor, "u0 4"]', '[Tensor, "0 999999999 999999999"]', 3),
        ('[Tensor, "u0 4"]', "[Tensor]", 4),
        (': Float32[Tensor, "u0 4"]', "", 4),
        (': Float32[Tensor, "u0 4"]', ': Float32[Tensor, "u0 4"] = torch.load("a")', 4),
        ("def program", "def other", 4),
        ("def program", "@torch.compile\ndef program", 5),
        ("def program", "async def program", 4),
        ("):", ") -> torch.load('a'):", 4),
        ("):", ", *args):", 4),
        ("):", ", **kwargs):", 4),
        ("def program", "import os\ndef program", 4),
        ("    return parts[0]\n", "    return parts[0]\nprint(1)\n", 8),
        ("    return parts[0]\n", "    return\n", 7),
        ("    return parts[0]\n", "", 6),
        ("    return parts[0]\n", "   return parts[0]\n", 7),
        ("    kept = x[mask]", "    kept = x[mask", 5),
        ("    kept = x[mask]", "    kept = '\\d'", 5),
        ("torch.chunk(kept, 2)", "torch.chunk(kept, dim=0, dim=0)", 6),
    ],
)
def test_a_malformed_file_is_rejected_with_the_line(old: str, new: str, line: int) -> None:
    assert old in SAMPLE
    with pytest.raises(ProgramError, match=rf"^bad\.py:{line}: found .+, expected .+"):
        parse(SAMPLE.replace(old, new, 1), "bad.py", CATALOGUE)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 3_000,
        "[" * 3_000 + "]" * 3_000,
        "(" + "-\n" * 60_000 + "1)",
        "(" + "not\n" * 40_000 + "1)",
        "(1" + "+1\n" * 60_000 + ")",
        "(1" + "**1\n" * 50_000 + ")",
        "(x" + "[0]\n" * 50_000 + ")",
        "(x" + ".T\n" * 50_000 + ")",
        "(x" + ".view(1)\n" * 20_000 + ")",
        "(" + "x if x else\n" * 15_000 + "1)",
        "(" + "lambda:\n" * 20_000 + "1)",
        "int(" * 100 + "1" + ")" * 100,
        "x\0",
        "9" * 5_000,
    ],
    ids=lambda expression: expression[:12].replace("\n", " ").replace("\0", "null"),
)
def test_deep_nesting_and_odd_tokens_are_refused(expression: str) -> None:
    with pytest.raises(ProgramError, match=r"^deep\.py:\d+: found .+, expected .+"):
        parse(with_step(f"kept = {expression}"), "deep.py", CATALOGUE)


def test_long_files_and_lines_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"^long\.py:5: found a line of \d+ characters"):
        parse(with_step(f"kept = {'x' * MAX_LINE}"), "long.py", CATALOGUE)
    path = tmp_path / "huge.py"
    path.write_text(with_step(f"kept = {'x' * 10_000_000}"))
    with pytest.raises(ProgramError, match=f"huge.py:1: found more than {MAX_BYTES} bytes"):
        read_case(path, CATALOGUE)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(SAMPLE.encode() + b"    # \xe9\n")
    with pytest.raises(ProgramError, match=r"latin\.py:8: found the byte 0xe9, expected text in UTF-8"):
        read_case(path, CATALOGUE)
    with pytest.raises(InputError, match=r"gone\.py: cannot be read: No such file"):
        read_case(tmp_path / "gone.py", CATALOGUE)


def test_a_byte_order_mark_makes_a_program_no_user_code(tmp_path: Path) -> None:
    path = tmp_path / "marked.py"
    path.write_text(SAMPLE, encoding="utf-8-sig")
    text = read_program(path)
    assert text is not None
    with pytest.raises(ProgramError, match=r"marked\.py:1: found a byte order mark, expected"):
        parse(text, str(path), CATALOGUE)


def test_user_code_of_any_length_and_encoding_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "user.py"
    for content in (b"# \xe9\n", b"", b"x = 1\n" * 1_000_000):
        path.write_bytes(content)
        assert read_program(path) is None


def test_reading_a_case_needs_no_torch_and_gives_what_parsing_gives(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(SAMPLE)
    assert read_case(path, CATALOGUE) == parse(SAMPLE, str(path), CATALOGUE)
