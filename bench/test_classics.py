"""The classic workloads do the same work each time and under every allocator."""

from pathlib import Path

import pytest

from bench.compare.cases import Case, classics
from bench.compare.peers import ROOT
from bench.tiny import TINY, Params, compile_library, run, start

ALLOD = ROOT / "build" / "release" / "liballod.so"
PROGRAMS = sorted({case.program for case in classics.CASES})


def kind(case: Case) -> Params:
    """What makes the case another one than its program's other cases."""
    return {**case.params, **TINY[case.program]}


# The work.


@pytest.mark.parametrize("case", classics.CASES, ids=lambda case: case.name)
def test_a_classic_does_the_same_work_each_time(programs: Path, case: Case) -> None:
    first, second = (run(programs, case.program, kind(case)) for _ in range(2))
    assert first["seconds"] > 0
    assert first["ops"] == second["ops"] > 0
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize("case", classics.CASES, ids=lambda case: case.name)
def test_a_classic_does_the_same_work_under_allod(programs: Path, case: Case) -> None:
    if not ALLOD.is_file():
        pytest.skip("build/release/liballod.so is not built")
    plain = run(programs, case.program, kind(case))
    preloaded = run(programs, case.program, kind(case), ALLOD)
    assert Path(preloaded["malloc_from"]).samefile(ALLOD)
    for same in ("params", "ops", "checksum"):
        assert preloaded[same] == plain[same]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_checksum_of_a_classic_depends_on_its_seed(
    programs: Path, program: str
) -> None:
    sums = {run(programs, program, {"seed": seed})["checksum"] for seed in (1, 2, 3)}
    assert len(sums) == 3


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("cfrac", {"digits": 6, "primes": 16, "rounds": 20}),
        ("larson", {"threads": 1, "objects": 1, "lives": 1, "max": 8}),
        ("larson", {"threads": 5, "sized": 1, "max": 5_000}),
        ("logic", {"inputs": 4, "cubes": 1, "rounds": 20}),
        ("logic", {"inputs": 24, "cubes": 4, "literals": 24}),
        ("mixed_order", {"blocks": 12, "threads": 5, "max": 1}),
        ("nbody", {"bodies": 2, "theta": 10}),
        ("nbody", {"theta": 1_000}),
        ("scratch", {"threads": 5, "size": 1, "handed": 1}),
        ("simple", {"rounds": 1, "size": 0, "threads": 5}),
        ("ttest", {"threads": 1, "bins": 1, "blocks": 1, "max": 1}),
        ("ttest", {"threads": 5, "max": 100_000}),
        ("xmalloc", {"producers": 3, "consumers": 2, "waiting": 1}),
        ("xmalloc", {"producers": 1, "consumers": 5, "batches": 1, "batch": 1}),
    ],
)
def test_a_classic_runs_at_its_limits(
    programs: Path, program: str, params: Params
) -> None:
    first, second = (run(programs, program, params) for _ in range(2))
    assert first["checksum"] == second["checksum"]


def test_a_delete_with_a_size_changes_nothing_else(programs: Path) -> None:
    plain = run(programs, "larson", {"sized": 0})
    assert run(programs, "larson", {"sized": 1})["checksum"] == plain["checksum"]


def test_the_simple_workload_tells_its_batches_apart(programs: Path) -> None:
    points = run(programs, "simple", {})["points"]
    assert [point["name"] for point in points] == ["25", "100", "400", "1600"]
    assert all(point["nanoseconds"] > 0 for point in points)
    assert "points" not in run(programs, "simple", {"size": 0})


# What goes wrong is seen.


def test_the_sized_server_calls_the_allocators_sized_delete(
    programs: Path, tmp_path: Path
) -> None:
    library = compile_library(
        tmp_path,
        "void *_Znwm(size_t n) { return malloc(n); }\n"
        "void _ZdlPv(void *p) { free(p); }\n"
        "void _ZdlPvm(void *p, size_t n) { (void)p; (void)n; _Exit(7); }",
    )
    assert start(programs, "larson", {"sized": 0}, library).returncode == 0
    assert start(programs, "larson", {"sized": 1}, library).returncode == 7


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("larson", {"max": 60}),
        ("mixed_order", {"max": 60}),
        ("simple", {"size": 0}),
        ("ttest", {"max": 60}),
        ("xmalloc", {}),
    ],
)
def test_an_allocator_that_hands_out_live_memory_is_caught(
    programs: Path, tmp_path: Path, program: str, params: Params
) -> None:
    library = compile_library(
        tmp_path,
        "static char pool[1 << 16];\n"
        "void *__libc_malloc(size_t n);\n"
        "void __libc_free(void *p);\n"
        "void *malloc(size_t n) { return n < 64 ? pool : __libc_malloc(n); }\n"
        "void free(void *p) { if (p != pool) __libc_free(p); }",
    )
    done = start(programs, program, params, library)
    assert done.returncode == 1
    assert "was overwritten" in done.stderr


def test_an_allocator_that_does_not_clear_is_caught(
    programs: Path, tmp_path: Path
) -> None:
    library = compile_library(
        tmp_path,
        "void *calloc(size_t n, size_t m) {\n"
        "  void *p = malloc(n * m);\n"
        # Pointers stay null, bytes do not.
        "  return p == NULL ? p : memset(p, n == 1 && m % 8 != 0, n * m);\n"
        "}",
    )
    done = start(programs, "ttest", {}, library)
    assert done.returncode == 1
    assert "calloc's memory is not zero" in done.stderr


def test_a_realloc_that_forgets_is_caught(programs: Path, tmp_path: Path) -> None:
    library = compile_library(
        tmp_path,
        "void *realloc(void *p, size_t n) { free(p); return calloc(1, n); }",
    )
    done = start(programs, "ttest", {}, library)
    assert done.returncode == 1
    assert "a block was overwritten" in done.stderr
