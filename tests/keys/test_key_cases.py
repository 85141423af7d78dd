"""The text form of a case of a key function: it is read as data, and anything else is one line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from ddefuzz.errors import InputError
from ddefuzz.findings.textform import read_finding, read_findings
from ddefuzz.keys.case import (
    KEY_FUNCTIONS,
    KeyCase,
    Options,
    TensorSpec,
    parse_key,
    print_key,
)
from ddefuzz.oracles.keys import check_trust, untrusted_function
from ddefuzz.program.text import is_key, is_program
from ddefuzz.show.evidence import facts_of, site_lines

CASE = KeyCase(
    "torch._dynamo.guards:extract_tensor_metadata",
    "tells-apart",
    Options(sizes="01", alignment=False),
    (
        TensorSpec((2, 3), (1, 0), 4, "int64", "meta"),
        TensorSpec((), (), kind="parameter", requires_grad=True, bits="neg"),
    ),
)
TEXT = """\
# ddefuzz key v1
function = "torch._dynamo.guards:extract_tensor_metadata"
violates = "tells-apart"
options = {"sizes": "01", "alignment": False}
tensors = [
    {"sizes": (2, 3), "strides": (1, 0), "offset": 4, "dtype": "int64", "kind": "meta"},
    {"sizes": (), "strides": (), "kind": "parameter", "requires_grad": True, "bits": "neg"},
]
"""


def test_a_case_is_a_text_and_back() -> None:
    assert print_key(CASE) == TEXT
    assert parse_key(TEXT, "x") == CASE
    assert is_key(TEXT)
    assert is_program(TEXT), "it is a stored case, which nothing executes to read it"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("key v1", "key v2", "found '# ddefuzz key v2', expected '# ddefuzz key v1'"),
        ('"tells-apart"', 'print("x")', "expected assignments of literals"),
        ('"tells-apart"', '"nothing"', "violates: found 'nothing', expected one of "),
        ("violates =", "other =", "found function, other, options, tensors, expected function, violates, options"),
        ("options =", "import os\noptions =", "each once"),
        ('"int64"', '"object"', "expected a tensor of at most 1048576 elements"),
        ("(1, 0)", "(1,)", "expected a tensor of at most"),
        ("(1, 0)", "(1, -1)", "expected a tensor of at most"),
        ('"offset": 4', '"offset": 10**9', "expected assignments of literals"),
        ('"offset": 4', '"offset": 1000000000', "expected a tensor of at most"),
        ('"offset": 4', f'"offset": 0x{"f" * 5000}+1j', "expected assignments of literals"),
        ('"kind": "meta"', '"kind": "cat"', "kind: found 'cat', expected one of "),
        ('"kind": "meta"', '"colour": "red"', "found the unknown key 'colour', expected the keys "),
        (TEXT[TEXT.index("    {") : TEXT.index("    {", 200)], "", "found 1 tensors"),
        ("guards:extract", "guards.extract", "expected 2 and MODULE:FUNCTION"),
        ("torch._dynamo", "torch.x;import os", "expected 2 and MODULE:FUNCTION"),
        ("torch._dynamo", "torch.import", "expected 2 and MODULE:FUNCTION"),
        ("torch._dynamo", "torch..guards", "expected 2 and MODULE:FUNCTION"),
        ("_metadata", "_metadata.f", "expected 2 and MODULE:FUNCTION"),
        ("_metadata", "_metadata()", "expected 2 and MODULE:FUNCTION"),
        ("torch._dynamo.guards", "evil\\n.py", "expected 2 and MODULE:FUNCTION"),
        ("torch._dynamo.guards", "/evil.txt", "expected 2 and MODULE:FUNCTION"),
        ("tensors = [", "tensors = [[", "expected assignments of literals"),
    ],
)
def test_another_text_is_one_line(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=said):
        parse_key(TEXT.replace(old, new, 1), "case.py")


@pytest.mark.parametrize(
    "function",
    [
        "subprocess:run",
        "torch.py:f",
        "torchy:f",
        "torch:os",
        "torch.hub:urlopen",
        "torch.utils.collect_env:run",
        "/x/y.py:f",
    ],
)
def test_only_listed_functions_are_called_for_a_stored_case(function: str) -> None:
    assert not untrusted_function(TEXT)
    other = TEXT.replace(CASE.function, function)
    assert untrusted_function(other) == function
    with pytest.raises(InputError, match=f"^found the key function {function}, which is executed only with --trust$"):
        check_trust(other, trust=False)
    check_trust(other, trust=True)
    check_trust("def program(x): ...", trust=False)


@pytest.mark.slow
@pytest.mark.parametrize("function", sorted(KEY_FUNCTIONS))
def test_a_listed_function_is_of_its_module(function: str) -> None:
    module, _, name = function.partition(":")
    assert getattr(import_module(module), name).__module__ == module


def test_a_damaged_case_in_a_folder_of_findings_is_one_line(tmp_path: Path) -> None:
    source = next(Path(__file__).parents[2].glob("findings/key-*"))
    place = tmp_path / source.name
    place.mkdir()
    for file in source.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    assert read_findings(tmp_path, None)[0].minimal  # type: ignore[arg-type]
    (place / "minimal.py").write_text("# ddefuzz key v1\nfunction = open('x')\n")
    with pytest.raises(InputError, match=r"minimal.py: found .*, expected assignments of literals"):
        read_findings(tmp_path, None)  # type: ignore[arg-type]


def test_the_source_of_a_key_function_is_shown() -> None:
    finding = read_finding(next(Path(__file__).parents[2].glob("findings/key-confuses-*")))
    lines = site_lines(finding)
    if lines is None:
        pytest.skip("this torch has other lines there")
    assert "def extract_tensor_metadata(t: torch.Tensor)" in lines.text
    assert ("defined at", f"{lines.path}:{lines.line}") in facts_of(finding)
