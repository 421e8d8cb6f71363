"""Z3: problems of several theories in one SMT-LIB file, each with a known answer."""

from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from random import Random

from bench.programs.common import Bench, Outcome, Script, cached, main
from bench.programs.process import Failure, digest

PERCENT = 100


def pigeons(count: int) -> Iterator[str]:
    """More pigeons than holes: short clauses and a long search (Haken 1985)."""
    holes = range(count - 1)
    for pigeon, hole in product(range(count), holes):
        yield f"(declare-const p{pigeon}_{hole} Bool)"
    for pigeon in range(count):
        yield f"(assert (or {' '.join(f'p{pigeon}_{hole}' for hole in holes)}))"
    for hole in holes:
        for one, other in combinations(range(count), 2):
            yield f"(assert (or (not p{one}_{hole}) (not p{other}_{hole})))"


def multiplier(width: int) -> Iterator[str]:
    """A bit-vector product written in two ways is the same."""
    yield f"(declare-const a (_ BitVec {width}))"
    yield f"(declare-const b (_ BitVec {width}))"
    terms = [
        f"(ite (= ((_ extract {bit} {bit}) b) #b1) (bvshl a (_ bv{bit} {width}))"
        f" (_ bv0 {width}))"
        for bit in range(width)
    ]
    sum_ = terms[0]
    for term in terms[1:]:
        sum_ = f"(bvadd {term} {sum_})"
    yield f"(assert (distinct (bvmul a b) {sum_}))"


def schedule(jobs: int, chance: Random) -> Iterator[str]:
    """Jobs on machines that must not overlap: difference arithmetic, satisfiable."""
    lengths = [chance.randrange(2, 12) for _ in range(jobs)]
    for job in range(jobs):
        yield f"(declare-const s{job} Int)"
        yield f"(assert (and (>= s{job} 0) (<= s{job} {sum(lengths)})))"
    for one, other in combinations(range(jobs), 2):
        if one % 3 == other % 3:
            yield (
                f"(assert (or (>= s{one} (+ s{other} {lengths[other]}))"
                f" (>= s{other} (+ s{one} {lengths[one]}))))"
            )


def stores(count: int, chance: Random) -> Iterator[str]:
    """Stores to different places of an array commute."""
    yield "(declare-sort Place)(declare-sort Value)"
    yield "(declare-const memory (Array Place Value))"
    for number in range(count):
        yield f"(declare-const i{number} Place)(declare-const v{number} Value)"
    yield f"(assert (distinct {' '.join(f'i{number}' for number in range(count))}))"
    order = list(range(count))
    sides = []
    for _ in range(2):
        term = "memory"
        for number in order:
            term = f"(store {term} i{number} v{number})"
        sides.append(term)
        chance.shuffle(order)
    yield f"(assert (distinct {sides[0]} {sides[1]}))"


def group(elements: int) -> Iterator[str]:
    """A group in which every square is one is commutative: quantifiers."""
    yield "(declare-sort E)(declare-fun m (E E) E)(declare-const one E)"
    yield "(assert (forall ((x E) (y E) (z E)) (= (m x (m y z)) (m (m x y) z))))"
    yield "(assert (forall ((x E)) (= (m one x) x)))"
    yield "(assert (forall ((x E)) (= (m x x) one)))"
    names = [f"c{number}" for number in range(elements)]
    for name in names:
        yield f"(declare-const {name} E)"
    forth, back = names[0], names[-1]
    for name in names[1:]:
        forth = f"(m {forth} {name})"
    for name in reversed(names[:-1]):
        back = f"(m {back} {name})"
    yield f"(assert (not (= {forth} {back})))"


def terms(count: int, chance: Random) -> Iterator[str]:
    """Congruence over many shared terms, with let and if."""
    yield "(declare-fun f (Int Int) Int)(declare-fun g (Int) Int)"
    for number in range(count):
        yield f"(declare-const t{number} Int)"
    for number in range(2, count):
        one, other = chance.randrange(number), chance.randrange(number)
        yield (
            f"(assert (let ((u (f t{one} (g t{other})))) (= t{number}"
            f" (ite (> u (+ t{one} {chance.randrange(99)})) (g u) (- u t{other})))))"
        )
    yield "(assert (and (= (f t0 (g t1)) 5) (= (g t0) (g t1)) (not (= (f t0 (g t0)) 5))))"


def problems(percent: int) -> Iterator[tuple[str, Iterator[str]]]:
    """Each problem with its answer, larger or more of them with more work."""
    chance = Random(5)
    for number in range(max(1, percent // 10)):
        yield "unsat", pigeons(7 + number % 2)
        yield "unsat", multiplier(5 + number % 3)
        yield "sat", schedule(30 + number, chance)
        yield "unsat", stores(14 + number, chance)
        yield "unsat", group(3)
        yield "unsat", terms(1000, chance)


def write(path: Path, percent: int) -> None:
    with path.open("w") as file:
        for _, lines in problems(percent):
            body = "\n".join(lines)
            file.write(f"{body}\n(check-sat)\n(reset)\n")


def inputs(bench: Bench) -> Path:
    percent = bench.count(PERCENT)
    return cached("z3.smt2", lambda path: write(path, percent), Path(__file__), percent)


def run(bench: Bench) -> Outcome:
    source = inputs(bench)
    usage, output = bench.run("z3", "-smt2", source)
    expected = [answer for answer, _ in problems(bench.count(PERCENT))]
    if (found := output.read_text().split()) != expected:
        raise Failure(f"z3 answers {found[:9]}, not {expected[:9]}")
    return Outcome(usage, len(expected), digest(output))


SCRIPT = Script("z3", __doc__, {"z3": "z3"}, run, inputs)

if __name__ == "__main__":
    main(SCRIPT)
