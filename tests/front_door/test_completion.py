"""What the Tab key completes, in the shells that are installed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from commands import ended
from workshop.paths import ROOT

COMPLETIONS = ROOT / "tools" / "packages" / "completions"
# What a shell does when the Tab key is pressed behind the words.
BASH = """
source {script}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ echo by: "$@"; }}
_allod_completion allod
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
words=({words})
CURRENT=$#words
_describe() {{ print -l -- ${{completions_with_descriptions%%:*}} }}
compadd() {{ print -l -- $completions }}
_path_files() {{ print by: $* }}
compdef() {{ }}
fpath=({folder})
autoload -U _allod
_allod
"""
FISH = """
source {script}
complete -C {words!r}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the command."""
    command = tmp_path / "allod"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m allod \"$@\"\n")
    command.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def completed(shell: str, words: str, path: str) -> list[str]:
    """What a shell completes the words to."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    if shell == "bash":
        code = BASH.format(script=COMPLETIONS / "allod.bash", words=words or "''")
    elif shell == "zsh":
        code = ZSH.format(folder=COMPLETIONS, words=words)
    else:
        code = FISH.format(script=COMPLETIONS / "allod.fish", words=words)
    options = ["-f"] if shell == "zsh" else []
    environment = {**os.environ, "PATH": path}
    done = ended(shell, *options, "-c", code, environment=environment)
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("allod lea", ["leaks"]),
        ("allod trace dump --mo", ["--most"]),
        ("allod top --sort gro", ["growth"]),
        ("allod run -- allo", ["allod"]),
    ],
)
def test_commands_options_and_programs_are_completed(
    shell: str, words: str, expected: list[str], path: str
) -> None:
    assert completed(shell, words, path) == expected


def test_a_file_is_completed_by_the_shell(path: str) -> None:
    assert completed("bash", "allod run -- cat /etc/pass", path)[0] == "by: -o default"


def test_a_command_that_is_none_is_no_complaint(path: str) -> None:
    assert "error" not in "".join(completed("bash", "allod nothing le", path))
