"""What `./allod` explains, and what it refuses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from allod.trace.files import MAGIC
from clone import cli
from commands import allod, ended
from workshop.paths import version


def test_help_lists_every_command_with_one_line() -> None:
    shown = allod("help")
    assert shown.returncode == 0
    listed = shown.stdout.split("Commands:\n")[1].splitlines()
    assert len(listed) == len(cli.allod.commands)
    assert all(len(line.split()) > 2 for line in listed), listed


COMMANDS = [*cli.allod.commands, "trace info", "trace dump"]
# Runs a command where nothing can be installed, built or found that was installed when needed.
BARE = """
import sys
for name in ("jinja2", "matplotlib", "numpy", "plotly", "scipy", "google.protobuf"):
    sys.modules[name] = None
def refuse(*_, **__): sys.exit("something is installed or built")
from clone import cli
from workshop import build, environment, packages
environment._ensure = build.building = packages.ensure_packages = refuse
cli.main()
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    by_option = allod(*command.split(), "--help")
    assert by_option.returncode == 0
    assert f"allod {command}" in by_option.stdout
    assert allod(*command.split(), "-h").stdout == by_option.stdout
    assert allod("help", *command.split()).stdout == by_option.stdout


@pytest.mark.parametrize(
    "words",
    [
        *(each.split() for each in COMMANDS),
        ["bench", "--security"],
        ["bench", "--profilers"],
    ],
    ids=" ".join,
)
def test_no_explanation_installs_or_builds_anything(words: list[str]) -> None:
    for help_option in ("-h", "--help"):
        done = ended(sys.executable, "-c", BARE, *words, help_option)
        assert done.returncode == 0, done.stderr
        assert "Usage: allod" in done.stdout
        assert done.stderr == ""


def test_letters_of_pytest_s_options_do_not_ask_for_help(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text("def test_hello(): pass\n")
    done = allod("test", "-p", "no:cacheprovider", tmp_path, "-khello")
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"


def test_the_version_is_that_of_the_build() -> None:
    assert version() in allod("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["--frobnicate"], "--frobnicate"),
        (["build", "--frobnicate"], "--frobnicate"),
        (["build", "--preset", "frobnicate"], "frobnicate"),
        (["run", "--frobnicate", "--", "true"], "--frobnicate"),
        (["run", "-o", "frobnicate", "--", "true"], "frobnicate"),
        (["run"], "PROGRAM"),
        (["help", "frobnicate"], "frobnicate"),
        (["test", "--only", "frobnicate"], "frobnicate"),
    ],
)
def test_what_is_unknown_is_named_and_fails(arguments: list[str], named: str) -> None:
    done = allod(*arguments)
    assert done.returncode != 0
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["bulid"], "build"),
        (["help", "reply"], "replay"),
        (["trace", "inf"], "info"),
        (["run", "--stat", "--", "true"], "--stats"),
        (["test", "--only", "progams"], "programs"),
        (["replay", "x", "--peer", "alod"], "allod"),
    ],
)
def test_what_is_misspelt_is_understood_and_refused(
    arguments: list[str], meant: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(MAGIC)
    done = allod(*arguments, directory=tmp_path)
    assert done.returncode != 0
    assert "did you mean" in done.stderr.lower()
    assert meant in done.stderr.lower().partition("did you mean")[2]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "--profile", "--interval", "0", "--", "true"], "is not a size"),
        (["run", "--profile", "--interval", "-1", "--", "true"], "is not a size"),
        (["run", "--profile", "--interval", "many", "--", "true"], "is not a size"),
        (["run", "--interval", "4K", "--", "true"], "--interval needs --profile"),
        (["run", "--output", "x", "--", "true"], "--output needs --profile"),
        (["run", "--children", "--", "true"], "--children needs --live"),
        (["top", "--once", "--every", "3"], "--every does nothing with --once"),
        (["fuzz", "--totals", "--record"], "--record does nothing with --totals"),
        (["record", "-o", "x", "--", "true"], "use --output x"),
    ],
)
def test_an_option_without_effect_is_an_error(
    arguments: list[str], complaint: str, tmp_path: Path
) -> None:
    done = allod(*arguments, directory=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert os.listdir(tmp_path) == []
