"""./allod leaks finds every planted leak, and nothing in programs that have none."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from allod.console import Failure
from commands import allod
from conftest import DebianPackages
from surface.black_box import Runner, describe, run_program
from workshop.paths import ROOT

LEAKING = 23
PLANTED = {
    "planted::leak_one()": 1,
    "planted::leak_chain()": 2,
    "planted::leak_cycle()": 2,
    "planted::leak_huge()": 1,
    "planted::leak_behind_freed()": 1,
    "planted::leak_object()": 2,
    "planted::leak_on_thread(void*)": 1,
}


def leaks(*words: str | Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    return allod("leaks", *words, directory=directory)


def found(errors: str) -> dict[str, int]:
    """Leaking blocks by the planted function that they were allocated under."""
    result: dict[str, int] = {}
    blocks = 0
    for line in errors.splitlines():
        if "allocated at" in line:
            counts = re.findall(r"in ([\d,]+) block", line)
            blocks = sum(int(count.replace(",", "")) for count in counts)
        elif (name := re.search(r"#\d+ (planted::leak_.+?\)) ", line)) is not None:
            result[name[1]] = result.get(name[1], 0) + blocks
            blocks = 0
    return result


def test_every_planted_leak_is_found(build_dir: Path, tmp_path: Path) -> None:
    program = build_dir / "tests" / "profile" / "planted"
    result = leaks("--", program, "leak", directory=tmp_path)
    assert result.returncode == LEAKING, result.stderr
    assert found(result.stderr) == PLANTED, result.stderr
    assert "reachable only from other leaks" in result.stderr


@pytest.mark.parametrize("order", [1, -1])
def test_the_search_notes_every_block_whatever_the_profile_is_to_sample(
    release: Runner, order: int
) -> None:
    options = [("ALLOD_LEAKS", "1"), ("ALLOD_PROFILE", "1G")][::order]
    result = release.run("planted", "leak", **dict(options))
    blocks = re.findall(r"bytes in (\d+) blocks", result.stderr)
    assert sum(map(int, blocks)) == sum(PLANTED.values()), describe(result)


def test_what_something_leads_to_is_no_leak(build_dir: Path, tmp_path: Path) -> None:
    program = build_dir / "tests" / "profile" / "planted"
    result = leaks("--", program, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "leak" not in result.stderr, result.stderr


MANY = """\
#include <stdlib.h>
#include <string.h>
int main(int n, char** a) {
  const size_t count = strtoul(a[n - 1], 0, 10);
  void** all = 0;
  for (size_t i = 0; i < count; ++i) {
    void** block = malloc(48);
    memset(block, 0, 48);
    *block = all;
    all = block;
  }
  __asm__ volatile("" : : "r"(all) : "memory");
  static void** volatile kept;
  kept = all;
  return 0;
}
"""


def test_a_search_takes_at_most_64_bytes_a_block(
    liballod: Path, tmp_path: Path
) -> None:
    source = tmp_path / "many.c"
    source.write_text(MANY)
    program = tmp_path / "many"
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    count = 600_000

    def peak(searches: str) -> int:
        with subprocess.Popen(
            [program, str(count)],
            env={"LD_PRELOAD": str(liballod), "ALLOD_LEAKS": searches},
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None
            assert b"leak" not in process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss * 1024

    usual = 1 << 20
    assert peak("1") - peak("0") - usual < 64 * count


def test_a_long_search_gives_a_sign_of_life(liballod: Path, tmp_path: Path) -> None:
    """A debugger holds it up for longer than two seconds."""
    if shutil.which("gdb") is None:
        pytest.skip("there is no gdb")
    source = tmp_path / "many.c"
    source.write_text(MANY)
    program = tmp_path / "many"
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    commands = [
        "set startup-with-shell off",
        f"set environment LD_PRELOAD {liballod}",
        "set environment ALLOD_LEAKS 1",
        "set breakpoint pending on",
        "break allod::leaks::(anonymous namespace)::Graph::mark",
        "run",
        "shell sleep 2.5",
        "delete",
        "continue",
    ]
    done = subprocess.run(
        ["gdb", "-nx", "-batch"]
        + [word for command in commands for word in ("-ex", command)]
        + ["--args", program, "30000"],
        env={key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.search(
        r"allod: searching for leaks: (\d+) of 30000 blocks were read", done.stderr
    )
    assert said is not None, done.stdout + done.stderr
    assert int(said[1]) <= 30000
    assert "exited normally" in done.stdout


FORGOTTEN = {
    "one_block": 1,
    "many_blocks": 1000,
    "blocks_of_all_sizes": 38,
    "a_list": 1000,
    "a_ring": 1000,
    "a_tree": 1023,
    "the_lowest_and_the_highest_of_many": 2,
    "on_the_stack_of_a_thread_that_has_ended": 1000,
    "on_the_stacks_of_many_threads_that_have_ended": 20_000,
    "in_variables_of_a_thread_that_has_ended": 100,
    "the_argument_of_a_thread_that_has_ended": 1,
    "nothing_that_a_thread_has": 0,
    "nothing_that_a_thread_has_given_to_the_system": 0,
    "in_the_child_of_a_fork": 20,
    "a_search_on_a_stack_beside_data": 1000,
    "in_a_library_that_was_closed": 10,
    "nothing_that_a_library_has": 0,
}


@pytest.mark.parametrize("case", FORGOTTEN)
def test_what_is_forgotten_in_any_shape_is_found(case: str, preloaded: Runner) -> None:
    result = preloaded.run_well("forgotten", case, ALLOD_LEAKS=1)
    said = re.search(r"allod: error: (\d+) blocks leak", result.stderr)
    assert (0 if said is None else int(said[1])) == FORGOTTEN[case], describe(result)


@pytest.mark.parametrize("case", FORGOTTEN)
def test_leak_sanitizer_finds_the_same(
    case: str, build_dir: Path, tmp_path: Path
) -> None:
    program = build_dir / "tests" / "profile" / "forgotten_sanitized"
    if not program.exists():
        pytest.skip("there is no LeakSanitizer here")
    result = run_program([program, case], dict(os.environ), tmp_path)
    if "LeakSanitizer has encountered a fatal error" in result.stderr:
        pytest.skip("LeakSanitizer may not trace here")
    said = re.search(r"leaked in (\d+) allocation", result.stderr)
    assert (0 if said is None else int(said[1])) == FORGOTTEN[case], describe(result)


@pytest.mark.parametrize(
    "case",
    [
        "a_file_that_has_become_shorter",
        "guards_in_a_mapping",
        "guards_in_a_block",
        "the_first_thread_has_ended",
        "a_search_on_a_stack_for_signals",
    ],
)
def test_memory_that_cannot_be_read_is_passed(case: str, preloaded: Runner) -> None:
    """What leads to blocks beside it counts."""
    result = preloaded.run_well("refused", case, ALLOD_LEAKS=1)
    said = re.search(r"allod: error: (\d+) blocks leak", result.stderr)
    assert said is not None, describe(result)
    assert int(said[1]) == 100, describe(result)


@pytest.mark.parametrize(
    ("case", "last_words"),
    [(["leak"], "they follow here"), ([], "there are none")],
)
def test_leaks_that_cannot_be_written(
    case: list[str], last_words: str, preloaded: Runner
) -> None:
    """They are told on standard error; the program ends as it would."""
    result = preloaded.run_well(
        "planted", *case, ALLOD_LEAKS=1, ALLOD_LEAKS_FILE="/dev/full"
    )
    warning, *told = result.stderr.splitlines()
    assert warning == (
        "allod: warning: cannot write leaks to /dev/full: No space left on device; "
        f"{last_words}"
    )
    headline = told[0] if told else ""
    assert bool(case) == bool(re.fullmatch(r"allod: error: \d+ blocks leak", headline))


def test_a_full_disk_is_a_failure_of_the_command(
    build_dir: Path, tmp_path: Path
) -> None:
    """The reader is not left with the status of a program that leaks nothing."""
    program = build_dir / "tests" / "profile" / "planted"
    command = ("prlimit", "--fsize=100", program, "leak")
    result = leaks("--", *command, directory=tmp_path)
    assert result.returncode == 1, result.stderr
    assert re.search(
        r"allod: warning: cannot write leaks to \S+: File too large; they follow here\n"
        r"allod: error: \d+ blocks leak\n",
        result.stderr,
    )
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(
        r"allod: error: cannot write the leaks to \S+; they are above", last
    )


def test_suppressions_are_those_of_leak_sanitizer(
    build_dir: Path, tmp_path: Path
) -> None:
    program = build_dir / "tests" / "profile" / "planted"
    file = tmp_path / "known"
    file.write_text(
        "# known\nleak:leak_one\nleak:^planted::leak_c*e\nleak:planted.cpp$\n"
    )
    result = leaks("--suppressions", file, "--", program, "leak", directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 block suppressed by leak:leak_one" in result.stderr
    assert "suppressed by leak:^planted::leak_c*e" in result.stderr


def test_a_line_that_is_no_suppression_is_named(tmp_path: Path) -> None:
    from allod.profile.leaks import Suppressions

    file = tmp_path / "known"
    file.write_text("leak:x\nthread:y\n")
    with pytest.raises(Failure, match=r"known:2: 'thread:y' is not leak:PATTERN"):
        Suppressions([file])


def test_the_status_of_a_failing_program_stays(tmp_path: Path) -> None:
    assert leaks("--", "sh", "-c", "exit 7", directory=tmp_path).returncode == 7


@pytest.mark.parametrize(
    "command",
    [
        ["git", "-C", str(ROOT), "log", "-20", "--stat"],
        [
            "sqlite3",
            ":memory:",
            "create table t(x); insert into t values(1); select * from t",
        ],
        ["redis-server", "--version"],
    ],
    ids=lambda command: str(command[0]),
)
def test_nothing_is_found_in_clean_programs(
    command: list[str], debian_packages: DebianPackages, tmp_path: Path
) -> None:
    debian_packages("git", "sqlite3", "redis-server")
    result = leaks("--", *command, directory=tmp_path)
    assert result.returncode == 0, result.stderr
    assert " leak" not in result.stderr, result.stderr


def test_leaks_can_be_told_to_programs(build_dir: Path, tmp_path: Path) -> None:
    program = build_dir / "tests" / "profile" / "planted"
    result = leaks("--json", "--", program, "leak", directory=tmp_path)
    [report] = json.loads(result.stdout)
    told: dict[str, int] = {}
    for stack in report["stacks"]:
        names = [frame["function"] for frame in stack["frames"]]
        name = next(each for each in names if "leak" in each).split("(")[0]
        told[name.split("::")[-1]] = stack["bytes"]
    assert told["leak_huge"] == 8 << 20
    assert report["blocks"] == sum(stack["blocks"] for stack in report["stacks"])
    assert result.returncode == LEAKING
    text = leaks("--output", "leaks.txt", "--", program, "leak", directory=tmp_path)
    assert "leak_huge" in (tmp_path / "leaks.txt").read_text()
    assert "leak_huge" not in text.stderr
