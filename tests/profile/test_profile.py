"""The heap profile: estimates against theory, every other case again with samples, and the files
that ./allod run --profile writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import allod, ended
from surface.black_box import (
    Case,
    Runner,
    cases_in,
    environment,
)

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
MIB = 1 << 20
# Small, so that most blocks are samples.
INTERVAL = "100"
# What counts calls of slow paths, or sets limits too low for a record of each block.
OTHERWISE = {
    "deferred_frees_are_called_with_a_heartbeat",
    "few_descriptors",
    "trim_gives_memory_of_small_blocks_back",
}
# What compares figures that the hardened library changes.
EXACT = {
    "counts_by_class_are_exact",
    "estimates_are_as_close_as_theory_says",
    "every_sample_is_visited",
    "with_interval_1_nothing_is_estimated",
}
ELSEWHERE = [
    (folder, case)
    for folder in ("surface", "traps", "heaps")
    for case in cases_in(TESTS / folder)
    if case.program
    not in (
        "symbols",
        "memory_limits",
        "dlopened",
        "stage",
        "misuse",
        "load",
        "handlers",
        "areas",
        "sequences",
    )
    and case.name not in OTHERWISE
    and not (folder == "heaps" and case.program != "heaps")
]


@pytest.mark.parametrize("case", cases_in(FOLDER), ids=str)
def test_profile(case: Case, library: Path, preloaded: Runner) -> None:
    """The library that is linked, and the debug library in its place."""
    if "hardened" in library.name and case.name in EXACT:
        pytest.skip(
            "there, blocks are larger by their canaries, and wait in quarantine"
        )
    if "debug" in library.name and case.name == "counts_by_class_are_exact":
        pytest.skip("there, freed blocks wait")
    if "debug" in library.name and case.name == "a_handler_may_interrupt_the_profile":
        pytest.skip(
            "the debug library has locks of its own, which a handler would find taken"
        )
    preloaded.holds(*case)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "case"), ELSEWHERE, ids=lambda each: str(each))
def test_holds_for_samples_as_well(folder: str, case: Case, release: Runner) -> None:
    elsewhere = release.of(folder)
    if not (elsewhere.programs / case.program).exists():
        pytest.skip("is not built here")
    elsewhere.holds(*case, ALLOD_PROFILE=INTERVAL)


def profile_shapes(build_dir: Path, folder: Path, *library: str) -> None:
    """Runs the known shapes in the folder."""
    program = build_dir / "tests" / "profile" / "shapes"
    words: list[str | Path] = ["run", *library, "--profile", "--interval", "16K"]
    result = allod(*words, "--", program, directory=folder)
    assert result.returncode == 0, result.stderr
    assert {each.name for each in folder.iterdir()} == {
        "shapes.pb.gz",
        "shapes.html",
        "shapes.peak.pb.gz",
        "shapes.peak.html",
    }


@pytest.fixture(scope="module")
def profiled(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with their profile, and a page for each, of the end and of the peak."""
    folder = tmp_path_factory.mktemp("profile")
    profile_shapes(build_dir, folder)
    return folder


@pytest.mark.parametrize("library", ["--debug", "--hardened"])
def test_a_run_writes_a_profile_of_other_libraries(
    library: str, build_dir: Path, tmp_path: Path
) -> None:
    profile_shapes(build_dir, tmp_path, library)
    live = shares(tmp_path / "shapes.pb.gz", "live")
    assert live["shapes::leak"] >= 6 * MIB


def shares(path: Path, kind: str) -> dict[str, int]:
    """Bytes by the function that they were allocated under."""
    from allod.profile import pprof

    result: dict[str, int] = {}
    for stack in pprof.read(path).stacks:
        for name in {frame.function.split("(")[0] for frame in stack.names()}:
            result[name] = result.get(name, 0) + getattr(stack, kind).bytes
    return result


def test_the_file_says_what_the_program_did(profiled: Path) -> None:
    live = shares(profiled / "shapes.pb.gz", "live")
    total = shares(profiled / "shapes.pb.gz", "total")
    peak = shares(profiled / "shapes.pb.gz", "peak")

    def near(value: int, expected: int) -> bool:
        # Six standard deviations of what small blocks deviate by.
        return bool(abs(value - expected) <= 6 * (expected * 16384) ** 0.5)

    assert near(live["shapes::leak"], 8 * MIB)
    assert near(live["shapes::keep"], 4 * MIB)
    assert near(live["shapes::inlined"], 8 * MIB)
    assert "shapes::churn" not in {name for name, size in live.items() if size}
    assert near(total["shapes::churn"], 64 * MIB)
    assert near(peak["shapes::rise_and_fall"], 32 * MIB)
    assert live.get("shapes::rise_and_fall", 0) == 0
    assert live["main"] >= live["shapes::leak"] + live["shapes::keep"]


def test_the_flame_graph_needs_nothing_from_elsewhere(profiled: Path) -> None:
    page = (profiled / "shapes.html").read_text()
    assert "shapes::leak" in page
    assert len(page) < 300_000
    assert re.search(r"<(script|link|img)[^>]+(src|href)=", page) is None


def test_pprof_names_the_function(profiled: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go here")
    top = ended(go, "tool", "pprof", "-top", "-cum", profiled / "shapes.pb.gz")
    assert top.returncode == 0, top.stderr
    assert re.search(r"MB .*shapes::leak", top.stdout), top.stdout


def test_a_signal_asks_for_a_profile(liballod: Path, tmp_path: Path) -> None:
    script = "x = [str(i) for i in range(50000)]; print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(liballod)
        | {
            "ALLOD_PROFILE": "1",
            "ALLOD_PROFILE_SIGNAL": "USR2",
            "ALLOD_PROFILE_FILE": str(tmp_path / "heap.%p"),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGUSR2)
        # The handler has run before the next system call of the process returns to it.
        process.stdin.write("\n")
        process.stdin.close()
        process.stdout.read()
    written = sorted(each.name for each in tmp_path.iterdir())
    assert written == [f"heap.{process.pid}", f"heap.{process.pid}.1"]


def test_a_full_disk_is_a_failure_of_the_command(
    build_dir: Path, tmp_path: Path
) -> None:
    program = build_dir / "tests" / "profile" / "shapes"
    words = ["run", "--profile", "--", "prlimit", "--fsize=100", str(program)]
    result = allod(*words, directory=tmp_path)
    assert result.returncode == 1, result.stderr
    assert "File too large\n" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("allod: error: ")
    assert "is empty: the library could not write it" in last


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("/dev/full", "No space left on device"),
        (".", "Is a directory"),
        ("missing/heap", "No such file or directory"),
        ("file/heap", "Not a directory"),
    ],
)
def test_a_profile_that_cannot_be_written(
    where: str, reason: str, tmp_path: Path, preloaded: Runner
) -> None:
    """One line says where and why; the program ends as it would."""
    (tmp_path / "file").touch()
    result = preloaded.run_well("shapes", ALLOD_PROFILE="1M", ALLOD_PROFILE_FILE=where)
    assert result.stderr == (
        f"allod: warning: cannot write the profile to {where}: {reason}\n"
    )


def test_the_profile_of_the_last_peak_stays(preloaded: Runner, tmp_path: Path) -> None:
    """It is not replaced by what could be written of the next one, and the reader is told once."""
    heap = tmp_path / "heap"
    peak = tmp_path / "heap.peak"
    peak.write_text("the last peak\n")
    result = preloaded.behind("prlimit", "--fsize=100").run(
        "shapes", ALLOD_PROFILE=4096, ALLOD_PROFILE_FILE=heap, ALLOD_PROFILE_PEAKS=1
    )
    assert peak.read_text() == "the last peak\n"
    assert {each.name for each in tmp_path.iterdir()} >= {"heap", "heap.peak"}
    assert not (tmp_path / "heap.peak.new").exists()
    assert heap.read_bytes() == b""
    lines = [line for line in result.stderr.splitlines() if "warning" in line]
    assert lines == [
        f"allod: warning: cannot write the profile to {path}: File too large"
        for path in (peak, heap)
    ]


def test_a_file_that_is_no_profile_is_named(tmp_path: Path) -> None:
    from allod.console import Failure
    from allod.profile import model

    for text in ("", "heap profile: x", "heap profile: 1: 2 [3: 4] @ heap_v2/1\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(Failure, match="x "):
            model.read_text(tmp_path / "x")


def test_two_profiles_are_compared_by_function(profiled: Path) -> None:
    files = (profiled / "shapes.pb.gz", profiled / "shapes.peak.pb.gz")
    result = allod("diff", *files, directory=profiled)
    assert result.returncode == 0, result.stderr
    line = next(each for each in result.stdout.splitlines() if "rise_and_fall" in each)
    # The peak is written when it is an eighth above the last, so a little may be missing.
    grown = re.search(r"\+(\d+\.\d) MiB", line)
    assert grown is not None and 20 < float(grown[1]) < 40, result.stdout
    same = allod("diff", files[0], files[0], directory=profiled)
    assert "MiB" not in same.stdout, same.stdout
    told = allod("diff", "--json", *files, directory=profiled)
    rows = {
        row["function"].split("(")[0]: row for row in json.loads(told.stdout)["rows"]
    }
    risen = rows["shapes::rise_and_fall"]
    assert abs(risen["all"] - 32 * MIB) < 12 * MIB
    assert rows["shapes::block"]["own"] >= risen["all"] * 0.8
    allod("diff", "--output", "changes.txt", *files, directory=profiled)
    assert "rise_and_fall" in (profiled / "changes.txt").read_text()


# As https://github.com/firefox-devtools/profiler reads them.
DHAT_FRAME = re.compile(
    r"0x([0-9a-f]+): (.+) \((?:in )?(.+?)(?::(\d+))?(?::(\d+))?\)", re.IGNORECASE
)


def exported(profiled: Path, form: str) -> str:
    result = allod("export", "--format", form, "shapes.pb.gz", directory=profiled)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_speedscope_gets_a_profile_of_each_kind(profiled: Path) -> None:
    told = json.loads(exported(profiled, "speedscope"))
    frames = told["shared"]["frames"]
    for profile, kind in zip(told["profiles"], ("live", "peak", "total"), strict=True):
        assert profile["type"] == "sampled" and profile["unit"] == "bytes"
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        sizes: dict[str, int] = {}
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
            for name in {frames[each]["name"].split("(")[0] for each in sample}:
                sizes[name] = sizes.get(name, 0) + weight
            # The outermost function comes first.
            names = [frames[each]["name"] for each in sample]
            if "main" in names:
                assert names.index("main") < len(names) - 1
        known = {
            name: size
            for name, size in shares(profiled / "shapes.pb.gz", kind).items()
            if size
        }
        assert sizes == known
    leak = next(each for each in frames if each["name"].startswith("shapes::leak"))
    assert leak["file"].endswith("shapes.cpp") and leak["line"] > 0


def test_dhat_has_all_figures_and_frames(profiled: Path) -> None:
    told = json.loads(exported(profiled, "dhat"))
    assert told["dhatFileVersion"] == 2 and told["mode"] == "heap"
    frames = told["ftbl"]
    matches = [DHAT_FRAME.fullmatch(frame) for frame in frames[1:]]
    assert frames[0] == "[root]" and all(matches)
    for kind, key in (("live", "eb"), ("peak", "gb"), ("total", "tb")):
        sizes: dict[str, int] = {}
        for point in told["pps"]:
            names = {DHAT_FRAME.fullmatch(frames[each])[2] for each in point["fs"]}  # type: ignore[index]
            for name in {each.split("(")[0] for each in names}:
                sizes[name] = sizes.get(name, 0) + point[key]
        known = shares(profiled / "shapes.pb.gz", kind)
        for name in ("shapes::leak", "shapes::keep", "main"):
            assert sizes[name] == known[name]
    assert all(point["mb"] >= max(point["gb"], point["eb"]) for point in told["pps"])


def test_other_formats_are_written(profiled: Path) -> None:
    folded = exported(profiled, "folded")
    assert re.search(r"^.*main.*;shapes::leak\(\).* \d+$", folded, re.MULTILINE)
    result = allod("export", "--format", "html", "shapes.pb.gz", directory=profiled)
    assert result.returncode == 1 and "needs --output" in result.stderr
    for form, name in (("html", "again.html"), ("pprof", "again.pb.gz")):
        words = ["export", "--format", form, "--output", name, "shapes.pb.gz"]
        assert allod(*words, directory=profiled).returncode == 0
    assert shares(profiled / "again.pb.gz", "live") == shares(
        profiled / "shapes.pb.gz", "live"
    )
    assert "shapes::leak" in (profiled / "again.html").read_text()
