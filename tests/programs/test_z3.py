"""The Z3 theorem prover."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench.programs import z3

from .launcher import DebianPackages, Launcher, Sides

PERCENT = 20
"""Of what the benchmark asks: two problems of each theory."""


def question(answer: str, problem: Iterable[str]) -> str:
    """A problem in a scope of its own; where there is a model, it is printed."""
    model = ["(get-model)"] if answer == "sat" else []
    return "\n".join(["(push)", *problem, "(check-sat)", *model, "(pop)"])


@pytest.mark.slow
def test_z3_answers_the_same_with_the_same_models(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("z3")
    asked = list(z3.problems(PERCENT))
    questions = [question(answer, problem) for answer, problem in asked]
    script = "\n".join(["(set-option :produce-models true)", *questions, ""])

    def work(launcher: Launcher) -> str:
        answers = launcher.run("z3", "-in", stdin=script.encode())
        launcher.check_allocator_of("z3")
        return answers.text

    answers = sides.agree_on(work).splitlines()
    verdicts = [line for line in answers if line in ("sat", "unsat", "unknown")]
    assert verdicts == [answer for answer, _ in asked]
