"""What holds for every workload program and every case of one."""

import subprocess
from pathlib import Path

import pytest

from bench.compare.cases import GROUPS, Case, classics, patterns
from bench.compare.peers import ROOT
from bench.tiny import TINY, Params, compile_library, run, start

ALLOD = ROOT / "build" / "release" / "liballod.so"
CASES = [*classics.CASES, *patterns.CASES]
PROGRAMS = sorted({case.program for case in CASES})
SEEDED = sorted({*PROGRAMS} - {"bulk", "calloc", "realloc", "sweep", "tree"})
# A classic by its cases; cases of a pattern differ in size alone.
WORK = [
    *(
        pytest.param(case.program, {**case.params, **TINY[case.program]}, id=case.name)
        for case in classics.CASES
    ),
    *(
        pytest.param(program, {}, id=program)
        for program in sorted({case.program for case in patterns.CASES})
    ),
]
# A library without heaps that end at once has nothing to compare.
OF_ALLOD_ALONE = {"heaps": ["one by one, against all at once"]}


@pytest.mark.parametrize(("program", "params"), WORK)
def test_a_workload_does_the_same_each_time(
    programs: Path, program: str, params: Params
) -> None:
    first, second = (run(programs, program, params) for _ in range(2))
    assert first["seconds"] > 0
    assert first["ops"] == second["ops"] > 0
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize(("program", "params"), WORK)
def test_a_workload_does_the_same_under_allod(
    programs: Path, program: str, params: Params
) -> None:
    if not ALLOD.is_file():
        pytest.skip("build/release/liballod.so is not built")
    plain = run(programs, program, params)
    preloaded = run(programs, program, params, ALLOD)
    assert Path(preloaded["malloc_from"]).samefile(ALLOD)
    for same in ("ops", "checksum", "params"):
        assert plain[same] == preloaded[same]
    for kind in ("points", "series", "percentiles", "figures"):
        names = [entry["name"] for entry in plain.get(kind, [])]
        if kind == "figures":
            names += OF_ALLOD_ALONE.get(program, [])
        assert [entry["name"] for entry in preloaded.get(kind, [])] == names


@pytest.mark.parametrize("program", SEEDED)
def test_a_checksum_depends_on_the_seed(programs: Path, program: str) -> None:
    sums = {run(programs, program, {"seed": seed})["checksum"] for seed in (1, 2, 3)}
    assert len(sums) == 3


@pytest.mark.parametrize(
    ("program", "params"),
    [
        ("cfrac", {"digits": 6, "primes": 16, "rounds": 20}),
        ("churn", {"at-once": 5, "left": 0}),
        ("cores", {"threads": 1, "ops": 256, "pattern": 1}),
        ("cores", {"threads": 1, "pattern": 2}),
        ("cores", {"threads": 5, "pattern": 2}),
        ("churn", {"blocks": 1, "left": 1}),
        ("fragmentation", {"epochs": 1}),
        ("generations", {"max": 24, "objects": 1}),
        ("holes", {"threads": 1, "busy": 0}),
        ("holes", {"threads": 8, "busy": 2}),
        ("holes", {"least": 24, "most": 24, "every": 2, "busy": 0, "rest": 1}),
        ("idle", {"mebibytes": 1, "together": 1, "idle": 1}),
        ("large", {"threads": 2}),
        ("large", {"min": 1, "max": 1, "part": 1024, "live": 1}),
        ("larson", {"threads": 1, "objects": 1, "lives": 1, "max": 8}),
        ("larson", {"threads": 5, "sized": 1, "max": 5_000}),
        ("latency", {"busy": 0}),
        ("latency", {"max": 16, "live": 1, "ops": 1}),
        ("logic", {"inputs": 4, "cubes": 1, "rounds": 20}),
        ("logic", {"inputs": 24, "cubes": 4, "literals": 24}),
        ("mixed_order", {"blocks": 12, "threads": 5, "max": 1}),
        ("nbody", {"bodies": 2, "theta": 10}),
        ("nbody", {"theta": 1_000}),
        ("pareto", {"threads": 2}),
        ("pareto", {"max": 8, "slots": 1}),
        ("rptest", {"threads": 1, "falloff": 2}),
        ("rptest", {"threads": 5, "falloff": 0, "cross": 1}),
        ("rptest", {"max": 24, "falloff": 2, "blocks": 1, "ops": 1}),
        ("scratch", {"threads": 5, "size": 1, "handed": 1}),
        ("simple", {"rounds": 1, "size": 0, "threads": 5}),
        ("ttest", {"threads": 1, "bins": 1, "blocks": 1, "max": 1}),
        ("ttest", {"threads": 5, "max": 100_000}),
        ("xmalloc", {"producers": 3, "consumers": 2, "waiting": 1}),
        ("xmalloc", {"producers": 1, "consumers": 5, "batches": 1, "batch": 1}),
    ],
)
def test_a_workload_runs_at_its_limits(
    programs: Path, program: str, params: Params
) -> None:
    first, second = (run(programs, program, params) for _ in range(2))
    assert first["ops"] > 0
    assert first["checksum"] == second["checksum"]


@pytest.mark.parametrize(
    ("program", "cleared", "message"),
    [
        # Pointers stay null, bytes do not.
        ("ttest", "n != 1 || m % 8 == 0", "calloc's memory is not zero"),
        ("calloc", "n * m < 64", "a block was not cleared"),
    ],
)
def test_an_allocator_that_does_not_clear_is_caught(
    programs: Path, tmp_path: Path, program: str, cleared: str, message: str
) -> None:
    library = compile_library(
        tmp_path,
        "void *calloc(size_t n, size_t m) {\n"
        "  void *p = malloc(n * m);\n"
        f"  return p == NULL ? p : memset(p, !({cleared}), n * m);\n"
        "}",
    )
    done = start(programs, program, {}, library)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["cfrac", "--digits", "19"], "--digits must be a whole number from 6 to 18"),
        (["larson", "--sized", "2"], "--sized must be a whole number from 0 to 1"),
        (["larson", "--max", "7"], "--max must be a whole number from 8 to"),
        (["logic", "--inputs", "25"], "--inputs must be a whole number from 4 to 24"),
        (["mixed_order", "--blocks", "11"], "--blocks must be a whole number from 12"),
        (["nbody", "--bodies", "1"], "--bodies must be a whole number from 2 to"),
        (["scratch", "--handed", "yes"], "--handed must be a whole number from 0 to 1"),
        (["cores", "--pattern", "3"], "--pattern must be a whole number from 0 to 2"),
        (["simple", "--threads", "0"], "--threads must be a whole number from 1 to"),
        (["ttest", "--lives"], "option '--lives' requires an argument"),
        (["xmalloc", "--speed", "1"], "unrecognized option '--speed'"),
        (["xmalloc", "fast"], "unexpected argument 'fast'"),
        (["pareto", "--max", "7"], "--max must be a whole number from 8 to"),
        (["generations", "--threads", "0"], "--threads must be a whole number from 1"),
        (["rptest", "--falloff", "3"], "--falloff must be a whole number from 0 to 2"),
        (["large", "--min", "9", "--max", "8"], "--min is above --max"),
        (["churn", "--blocks", "5", "--left", "6"], "--left is above --blocks"),
        (["phases", "--phases", "1"], "--phases must be a whole number from 2 to 10"),
        (["idle", "--idle", "soon"], "--idle must be a whole number from 1 to"),
        (["holes", "--least", "99", "--most", "98"], "--least is above --most"),
        (["fragmentation", "--epochs", "-1"], "--epochs must be a whole number"),
        (["survivors", "--every", "1"], "--every must be a whole number from 2 to"),
        (["locality", "--elements"], "option '--elements' requires an argument"),
        (["latency", "--busy", "65"], "--busy must be a whole number from 0 to 64"),
        (["many_threads", "--threads", "1025"], "from 2 to 1024"),
        (["many_threads", "--ops", "9"], "--ops is below --threads"),
        (["realloc", "fast"], "unexpected argument 'fast'"),
        (["calloc", "--seed", "1"], "unrecognized option '--seed'"),
        (["aligned", "--ops", "1"], "--ops must be a whole number from 64 to"),
        (["aligned", "--min", "65", "--max", "66"], "no alignment between --min and"),
        (["sweep", "--markers", "1", "--threads", "2"], "--markers needs one thread"),
        (["immediate", "--ops", "many"], "--ops must be a whole number from 1 to"),
        (["immediate", "--ops", "-1"], "--ops must be a whole number from 1 to"),
        (
            ["immediate", "--max", "65536"],
            "--max must be a whole number from 1 to 65535",
        ),
        (["immediate", "--speed", "1"], "unrecognized option '--speed'"),
        (["immediate", "fast"], "unexpected argument 'fast'"),
    ],
)
def test_bad_parameters_are_refused(
    programs: Path, command: list[str], message: str
) -> None:
    program, *arguments = command
    done = subprocess.run(
        [programs / program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""


# What the C++ library does is the work of those that are left out.
@pytest.mark.parametrize(
    "program", sorted(set(TINY) - {"heaps", "locality", "tailored"})
)
def test_a_program_needs_the_c_library_only(programs: Path, program: str) -> None:
    listing = subprocess.run(
        ["readelf", "--dynamic", str(programs / program)],
        capture_output=True,
        text=True,
        check=True,
    )
    needed = [line for line in listing.stdout.splitlines() if "(NEEDED)" in line]
    assert len(needed) == 1
    assert "libc.so.6" in needed[0]


def test_every_program_has_a_case_and_tiny_parameters() -> None:
    assert {case.program for case in CASES} == set(TINY)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("quick", [False, True])
def test_the_parameters_of_a_case_are_known(
    programs: Path, case: Case, quick: bool
) -> None:
    assert case.group in GROUPS
    # --help is looked at last, after every parameter was checked.
    command = [str(programs / case.program), *case.arguments(quick), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", classics.CASES, ids=lambda case: case.name)
def test_a_classic_names_its_source(case: Case) -> None:
    assert case.source
