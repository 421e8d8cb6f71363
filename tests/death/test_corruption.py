"""Random calls with defects among them: a model says which report must come, and when."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping

import pytest
from surface.black_box import Runner, describe

MODEL_SEEDS = range(1, 9)


MODEL_OPERATIONS = 20_000


MODELLED = (
    "all",
    "all,sweep",
    "-guards,-empty",
    "all,history",
    "-canary,-origin",
    "-zero",
    "-quarantine,-neighbours",
    "light",
    "balanced",
    "balanced,-canary",
    "none",
)


# Without one of these, what the model says does not come.
MISSED_BY_MODEL = (
    "canary",
    "neighbours",
    "zero",
    "written",
    "quarantine",
    "guards",
    "empty",
    "origin",
)


# More blocks in use than the usual ones of the model.
MANY_BLOCKS = "20000"


@pytest.mark.parametrize("measures", MODELLED)
@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_is_found_and_nothing_else(
    seed: int, measures: str, hardened: Runner
) -> None:
    """Random calls with defects among them: the model says which report must come, and when."""
    model_holds(hardened, seed, *measures.split(","), ALLOD_HARDENED=measures)


@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_in_hardened_heaps_of_the_default_library_is_found(
    seed: int, release: Runner
) -> None:
    model_holds(release, seed, "heaps")


@pytest.mark.parametrize("seed", MODEL_SEEDS)
def test_every_defect_and_every_copy_that_leaves_its_block_is_found(
    seed: int, hardened: Runner
) -> None:
    library = hardened.library
    both = f"{library.with_name('liballod-copies.so')} {library}"
    model_holds(hardened, seed, "copies", LD_PRELOAD=both)


def test_every_defect_is_found_among_many_blocks(
    release: Runner, hardened: Runner
) -> None:
    model_holds(hardened, 1, MANY_BLOCKS)
    model_holds(release, 1, "heaps", MANY_BLOCKS)


@pytest.mark.parametrize(
    ("measures", "words"),
    [
        *((f"-{name}", "all") for name in MISSED_BY_MODEL),
        ("all", "sweep"),
        ("all", "copies"),
    ],
)
def test_the_model_misses_a_measure_that_is_not_there(
    measures: str, words: str, hardened: Runner
) -> None:
    variables = {"ALLOD_HARDENED": measures}
    done = run_model(hardened, 1, [words], variables, rounds=3)
    assert done.returncode == 1, describe(done)
    assert "does not hold" in done.stderr


def run_model(
    runner: Runner,
    seed: int,
    words: Iterable[str],
    variables: Mapping[str, str] | None = None,
    *,
    rounds: int = 1,
) -> subprocess.CompletedProcess[str]:
    """Plays random calls; a hardened library has all of its measures unless told otherwise."""
    operations = str(rounds * MODEL_OPERATIONS)
    given = {"ALLOD_HARDENED": "all"} | dict(variables or {})
    return runner.run("corruption", str(seed), operations, *words, **given)


def model_holds(runner: Runner, seed: int, *words: str, **variables: str) -> None:
    done = run_model(runner, seed, words, variables)
    assert done.returncode == 0, describe(done)
    assert "all found" in done.stdout
