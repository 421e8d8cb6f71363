"""`./allod test` runs what it is told to, and counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import allod
from workshop import pytest_gtest, pytest_shares, testing
from workshop.paths import ROOT

# Test


def test_the_last_line_counts_tests_and_errors_are_failures(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_skipped(): pytest.skip('why')\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    raise RuntimeError\n"
        "def test_whose_teardown_fails(broken): pass\n"
        "def test_with_unknown_fixture(nothing): pass\n"
    )
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    done = allod(
        "test", tmp_path, "-p", "no:cacheprovider", "--continue-on-collection-errors"
    )
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "1 passed, 4 failed, 1 skipped"


def test_all_passed_is_success(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("def test_good(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


@pytest.mark.parametrize("argument", ["--frobnicate", "-knothing_of_this_name"])
def test_running_nothing_is_a_failure(tmp_path: Path, argument: str) -> None:
    (tmp_path / "test_sample.py").write_text("def test_good(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path, argument)
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_quick_leaves_slow_tests_out(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(
        "import pytest\ndef test_good(): pass\n"
        "@pytest.mark.slow\ndef test_slow(): assert False\n"
    )
    done = allod("test", "--quick", "-p", "no:cacheprovider", tmp_path)
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


def test_a_group_needs_only_its_presets() -> None:
    programs = testing.presets_for([testing.TESTS / "programs"], quick=False)
    assert [preset.name for preset in programs] == ["release"]
    everything = testing.presets_for([testing.TESTS], quick=False)
    assert {"release", "clang"} <= {preset.name for preset in everything}


# GoogleTest programs

LISTING: dict[str, object] = {
    "testsuites": [
        {
            "name": "Suite",
            "testsuite": [
                {"name": "First", "file": "../tests/first.cpp"},
                {"name": "DISABLED_Second", "file": "../tests/first.cpp"},
            ],
        },
        {
            "name": "Typed/0",
            "testsuite": [{"name": "Sized", "file": "/at/tests/second.cpp"}],
        },
        {
            "name": "Numbers/Odd",
            "testsuite": [{"name": "Is/0", "file": "first.cpp"}],
        },
    ]
}
# Plays a GoogleTest program whose second test brings it down.
PLAYER = """#!/bin/sh
case "$1" in --gtest_flagfile=*) filter=$(cat "${1#*=}") ;; esac
echo x >>"$0.starts"
case "$filter" in
*Suite.First*)
    printf '[ RUN      ] Suite.First\\nhello\\n[       OK ] Suite.First (12 ms)\\n'
    printf '[ RUN      ] Suite.Second\\nfatal words\\n'
    kill -SEGV $$ ;;
*)
    printf '[ RUN      ] Suite.Third\\n[       OK ] Suite.Third (0 ms)\\n'
    exit 3 ;;
esac
"""


def test_a_listing_gives_full_names_and_where_they_are() -> None:
    assert pytest_gtest.read_listing(LISTING) == {
        "Suite.First": "first.cpp",
        "Typed/0.Sized": "second.cpp",
        "Numbers/Odd.Is/0": "first.cpp",
    }


def test_a_crash_fails_one_test_and_the_rest_still_run(tmp_path: Path) -> None:
    player = tmp_path / "player"
    player.write_text(PLAYER)
    player.chmod(0o755)
    names = ["Suite.First", "Suite.Second", "Suite.Third"]
    verdicts = pytest_gtest.run_program(player, names)
    outcomes = [verdicts[name].outcome for name in names]
    assert outcomes == ["passed", "failed", "passed"]
    assert "fatal words" in verdicts["Suite.Second"].text
    assert "SIGSEGV" in verdicts["Suite.Second"].text
    assert verdicts["Suite.First"].seconds == 0.012
    assert (tmp_path / "player.starts").read_text().count("x") == 2


def test_a_test_that_never_runs_has_failed(tmp_path: Path) -> None:
    player = tmp_path / "player"
    player.write_text("#!/bin/sh\nexit 0\n")
    player.chmod(0o755)
    verdict = pytest_gtest.run_program(player, ["Suite.First"])["Suite.First"]
    assert verdict.outcome == "failed"


def test_a_file_is_a_share_but_for_what_is_long_or_must_not_meet_its_like() -> None:
    first, second = "tests/live/test_top.py::a", "tests/live/test_page.py::b"
    assert pytest_shares.share_of(first) == pytest_shares.share_of(second)
    assert pytest_shares.share_of("tests/unit/base.cpp::a") == "tests/unit/base.cpp"
    long = "tests/test_clang_tidy.py::test_nothing_is_found[src]"
    assert pytest_shares.share_of(long) == long


def test_what_is_long_comes_first() -> None:
    names = ["bench/a.py::a", "tests/test_clang_tidy.py::a", "tests/programs/a.py::a"]
    assert sorted(names, key=pytest_shares.place_of) == names[::-1]
    for start in (*pytest_shares.FIRST, *pytest_shares.APART, *pytest_shares.TOGETHER):
        assert (ROOT / start).exists()
