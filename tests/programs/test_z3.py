"""The Z3 theorem prover."""

from __future__ import annotations

from random import Random

import pytest

from .launcher import DebianPackages, Launcher, Sides

PIGEONS = 9
PRIMES = (46337, 61001)
JOBS = 14
QUEENS = 16


def problems() -> str:
    """Problems of several theories, each of which is asked in a scope of its own."""
    chance = Random(3)
    script = ["(set-option :produce-models true)"]

    def scope(lines: list[str], model: bool = False) -> None:
        question = ["(check-sat)"] + (["(get-model)"] if model else [])
        script.extend(["(push)", *lines, *question, "(pop)"])

    holes = [
        f"(declare-const p{p}_{h} Bool)"
        for p in range(PIGEONS)
        for h in range(1, PIGEONS)
    ]
    for p in range(PIGEONS):
        holes.append(
            f"(assert (or {' '.join(f'p{p}_{h}' for h in range(1, PIGEONS))}))"
        )
    holes += [
        f"(assert (not (and p{p}_{h} p{q}_{h})))"
        for h in range(1, PIGEONS)
        for p in range(PIGEONS)
        for q in range(p)
    ]
    scope(holes)

    product = PRIMES[0] * PRIMES[1]
    scope(
        [
            "(declare-const a (_ BitVec 32))",
            "(declare-const b (_ BitVec 32))",
            f"(assert (= (bvmul a b) (_ bv{product} 32)))",
            "(assert (bvult a (_ bv65536 32)))",
            "(assert (bvult b (_ bv65536 32)))",
            "(assert (bvult (_ bv1 32) a))",
            "(assert (bvult a b))",
        ],
        model=True,
    )

    jobs = [f"(declare-const s{job} Int)" for job in range(JOBS)]
    lengths = [chance.randrange(2, 9) for _ in range(JOBS)]
    for job in range(JOBS):
        end = sum(lengths) // 2 + 6 - lengths[job]
        jobs.append(f"(assert (and (>= s{job} 0) (<= s{job} {end})))")
        jobs += [
            f"(assert (or (>= s{job} (+ s{other} {lengths[other]}))"
            f" (>= s{other} (+ s{job} {lengths[job]}))))"
            for other in range(job)
            if other % 2 == job % 2
        ]
    scope(jobs, model=True)

    queens = [f"(declare-const q{row} Int)" for row in range(QUEENS)]
    for row in range(QUEENS):
        queens.append(f"(assert (and (>= q{row} 0) (< q{row} {QUEENS})))")
        for other in range(row):
            apart = row - other
            queens.append(
                f"(assert (distinct q{row} q{other}"
                f" (+ q{other} {apart}) (- q{other} {apart})))"
            )
    scope(queens)

    scope(
        [
            "(declare-sort E)",
            "(declare-fun m (E E) E)",
            "(declare-const one E)",
            "(assert (forall ((x E) (y E) (z E)) (= (m x (m y z)) (m (m x y) z))))",
            "(assert (forall ((x E)) (= (m one x) x)))",
            "(assert (forall ((x E)) (= (m x x) one)))",
            "(assert (not (forall ((x E) (y E)) (= (m x y) (m y x)))))",
        ]
    )
    return "\n".join(script) + "\n"


@pytest.mark.slow
def test_z3_answers_the_same_with_the_same_models(
    sides: Sides, debian_packages: DebianPackages
) -> None:
    debian_packages("z3")
    script = problems().encode()

    def work(launcher: Launcher) -> str:
        answers = launcher.run("z3", "-in", stdin=script)
        launcher.check_allocator_of("z3")
        return answers.text

    answers = sides.agree_on(work).splitlines()
    verdicts = [line for line in answers if line in ("sat", "unsat", "unknown")]
    assert verdicts == ["unsat", "sat", "sat", "sat", "unsat"]
