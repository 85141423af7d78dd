"""Tests of variants for control runs: sources of data-dependent sizes become inputs. Real torch captures them."""

from __future__ import annotations

import pytest

from ddefuzz.answers.control import first_source, without_sources
from ddefuzz.answers.model import NOT_JUDGED, Control, data_dependent
from ddefuzz.campaign.case import run_control
from ddefuzz.campaign.tasks import ControlTask
from ddefuzz.classify.evidence import failing_ops
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.minimize.eager import inspect
from ddefuzz.oracles.capture import judge
from ddefuzz.program.model import Program, functions_in
from ddefuzz.program.sizes import static
from tests.minimize.reduction import program


def form_of(text: str) -> Program | None:
    return without_sources(program(text), inspect, first_source)


def test_a_program_without_sources_is_its_own_form() -> None:
    text = """
        # inputs: x0 = normal
        def program(x0: Float32[Tensor, "u0=5 2"]):
            return torch.diff(x0)
    """
    assert form_of(text) == program(text)
    assert static(program(text)) == program(text.replace("u0=5", "5"))


def test_a_tensor_of_a_size_that_data_decides_is_an_input() -> None:
    assert form_of("""
        # inputs: mask = trues(4)
        def program(mask: Bool[Tensor, "6"]):
            a = torch.nonzero(mask)
            return torch.diff(a, dim=0)
    """) == program("""
        # inputs: index = values([0, 2, 3, 5])
        def program(index: Int64[Tensor, "u0=4 1"]):
            return torch.diff(index, dim=0)
    """)


def test_a_number_that_data_decides_is_a_size_of_an_input() -> None:
    assert form_of("""
        # inputs: index = sizes(4, 3)
        def program(index: Int64[Tensor, "2"]):
            a, b = index.tolist()
            c = torch.zeros(a, b)
            return torch.diff(c)
    """) == program("""
        # inputs: x = normal; y = normal
        def program(x: Float32[Tensor, "u0=4"], y: Float32[Tensor, "u1=3"]):
            a = torch.zeros(x.shape[0], y.shape[0])
            return torch.diff(a)
    """)


def test_a_number_that_is_no_size_is_a_constant() -> None:
    assert form_of("""
        # inputs: x = ones
        def program(x: Float32[Tensor, ""]):
            return torch.full((2,), x.item())
    """) == program("""
        def program():
            return torch.full((2,), 1.0)
    """)


def test_a_source_inside_of_an_expression_keeps_its_grad() -> None:
    assert form_of("""
        # inputs: x = normal, grad; mask = trues(4)
        def program(x: Float32[Tensor, "6"], mask: Bool[Tensor, "6"]):
            return torch.diff(x[mask])
    """) == program("""
        # inputs: x = normal, grad
        def program(x: Float32[Tensor, "u0=4"]):
            return torch.diff(x)
    """)


def test_a_program_of_sources_alone_has_no_variant() -> None:
    assert (
        form_of("""
        # inputs: x = normal; mask = trues(4)
        def program(x: Float32[Tensor, "6"], mask: Bool[Tensor, "6"]):
            return torch.masked_select(x, mask)
    """)
        is None
    )


def judged(body: str, stage: Stage) -> tuple[Control, bool | None]:
    text = "# ddefuzz program v1\n" + body
    seen = observe(Run(ProgramSubject(text), stage))
    (shown,) = judge([seen])
    found = run_control(ControlTask(text, shown, failing_ops(seen))).control
    return found, data_dependent(shown, found)


CONTROLS: dict[str, tuple[str, Stage, Control, bool]] = {
    "a guard": (
        '# inputs: x = normal\ndef program(x: Float32[Tensor, "u0"]):\n    return torch.diff(x)\n',
        "export",
        Control("passes", "passes"),
        True,
    ),
    "no fake kernel": (
        '# inputs: x = normal\ndef program(x: Float32[Tensor, "2 u0"]):\n    return torch.geqrf(x)\n',
        "aot",
        Control("passes", "fails"),
        False,
    ),
    "refused whatever its sizes": (
        '# inputs: x = normal\ndef program(x: Float32[Tensor, "u0"]):\n    return x.is_same_size(x)\n',
        "compile",
        Control("fails", "fails"),
        False,
    ),
    "an answer that is data": (
        '# inputs: x = normal\ndef program(x: Float32[Tensor, "2"]):\n    return torch.equal(x, x)\n',
        "export",
        Control("fails", "fails"),
        True,
    ),
    "an op that is the source": (
        '# inputs: x = normal\ndef program(x: Float32[Tensor, "2"]):\n    return torch.combinations(x)\n',
        "compile",
        NOT_JUDGED,
        True,
    ),
}


@pytest.mark.parametrize("case", CONTROLS)
def test_real_failures(case: str) -> None:
    body, stage, expected, about_data = CONTROLS[case]
    assert judged(body, stage) == (expected, about_data)


@pytest.mark.parametrize("stage", ["fake", "export", "export-strict", "compile", "aot", "inductor"])
def test_backed_dims_are_captured_where_unbacked_ones_are_not(stage: Stage) -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.diff(x)
"""
    assert observe(Run(ProgramSubject(text), stage)).outcome == "fail"
    backed = observe(Run(ProgramSubject(text, backed=True), stage, graph=True))
    assert backed.outcome == "ok"
    assert backed.graph is not None or stage == "fake"


def test_backed_dims_are_symbols() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.zeros(x.shape)
"""
    assert functions_in(program(text.partition("\n")[2])) == ("torch.zeros",)
    for stage in ("export", "compile"):
        graph = observe(Run(ProgramSubject(text, backed=True), stage, graph=True)).graph
        assert graph is not None
        assert "sym_size" in graph or "size(" in graph
